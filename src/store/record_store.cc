#include "store/record_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/errno_text.h"
#include "base/types.h"
#include "io/crc32c.h"

namespace lkv {
namespace {

// Behind the bytes of a record. The checksum is over all that is before it.
struct Trailer {
  uint64_t serial;  // of the segment: no two ever have the same
  uint32_t slot;
  uint32_t masked_crc;
};
constexpr size_t kTrailerBytes = 16;
static_assert(sizeof(Trailer) == kTrailerBytes);
constexpr size_t kStampBytes = offsetof(Trailer, masked_crc);

// Completions of writes have tags from here on, those of reads are below.
constexpr uint64_t kFirstWriteTag = uint64_t{1} << 32;

// Polls without an attempt to write: after too little space was left, and after
// a write failed. At a poll a step, about a second and half a minute.
constexpr uint32_t kPauseForSpace = 64;
constexpr uint32_t kPauseForDisk = 1024;

constexpr uint32_t kWaitUs = 1'000;

// The file system's own records of where a file lies: in the worst case one of
// 4 KiB for each 340 pieces of 4 KiB (ext4). They count, too.
constexpr uint64_t kBlocksPerIndexBlock = 340;

uint64_t SegmentsWithin(uint64_t disk_bytes_max, uint32_t segment_bytes) {
  const uint64_t index_bytes =
      CeilDiv(disk_bytes_max, kBlocksPerIndexBlock * kIoBlockBytes) *
      kIoBlockBytes;
  return disk_bytes_max < index_bytes
             ? 0
             : (disk_bytes_max - index_bytes) / segment_bytes;
}

uint32_t SlotBytes(const RecordStore::Options& options) {
  return CeilDiv(options.record_bytes + uint32_t{kTrailerBytes},
                 options.read_alignment) *
         options.read_alignment;
}

Status TooSmall(const std::string& what, uint64_t is, uint64_t least) {
  return InvalidArgument("third tier: " + what + " of " + std::to_string(is) +
                         " bytes is too small; give it " +
                         std::to_string(least) + " or more");
}

}  // namespace

Result<std::unique_ptr<RecordStore>> RecordStore::Create(const Options& options,
                                                         BlockIo& io) {
  CHECK(options.record_bytes > 0 && options.record_bytes % 4 == 0);
  CHECK(options.segment_bytes % kIoBlockBytes == 0);
  CHECK(options.n_fetches_max > 0);
  CHECK(kIoBlockBytes % options.read_alignment == 0);
  const uint32_t slot_bytes = SlotBytes(options);
  CHECK(slot_bytes <= options.segment_bytes);
  CHECK(options.n_fetches_max + kWriteBuffers <= io.capacity());
  const uint32_t n_slots = options.segment_bytes / slot_bytes;
  const uint64_t n_segments =
      SegmentsWithin(options.disk_bytes_max, options.segment_bytes);
  if (n_segments == 0) {
    return TooSmall("a quota", options.disk_bytes_max,
                    options.segment_bytes + kIoBlockBytes);
  }
  // One segment's worth may wait for the last record of it.
  if (options.n_frames < 2 * n_slots) {
    return TooSmall("RAM", uint64_t{options.n_frames} * options.record_bytes,
                    uint64_t{2} * n_slots * options.record_bytes);
  }
  if (options.n_frames + n_segments * n_slots >= kNone) {
    return InvalidArgument("third tier: a quota of " +
                           std::to_string(options.disk_bytes_max) +
                           " bytes is more than it can count; give it less");
  }
  Result<PagePool> frames =
      PagePool::Create({.page_bytes = CeilDiv(options.record_bytes, 64) * 64,
                        .capacity_pages = options.n_frames});
  if (!frames.ok()) return frames.status();
  return std::unique_ptr<RecordStore>(new RecordStore(
      options, io, *std::move(frames), static_cast<uint32_t>(n_segments)));
}

RecordStore::RecordStore(const Options& options, BlockIo& io, PagePool frames,
                         uint32_t n_segments_max)
    : options_(options),
      slot_bytes_(SlotBytes(options)),
      n_slots_(options.segment_bytes / slot_bytes_),
      io_(io),
      frames_(std::move(frames)),
      table_(options.n_frames + n_segments_max * n_slots_),
      space_(n_segments_max),
      links_(options.n_frames),
      buffers_(kWriteBuffers),
      landing_bytes_(options.n_fetches_max * WholeIoBlocks(slot_bytes_)),
      landings_(options.n_fetches_max) {
  for (WriteBuffer& buffer : buffers_) {
    buffer.bytes = IoBuffer(options.segment_bytes);
    // What no record fills is written, too.
    std::memset(buffer.bytes.data(), 0, buffer.bytes.size());
    buffer.records.assign(n_slots_, kNoRecord);
  }
  free_landings_.reserve(options.n_fetches_max);
  requests_.reserve(options.n_fetches_max);
  for (uint32_t i = 0; i < options.n_fetches_max; ++i) {
    landings_[i].bytes = landing_bytes_.data() + i * WholeIoBlocks(slot_bytes_);
    free_landings_.push_back(i);
  }
}

RecordStore::~RecordStore() {
  IoCompletion ignored[8];
  while (io_.n_pending() > 0) {
    if (io_.Poll(ignored) == 0) io_.Wait(kWaitUs);
  }
}

uint32_t RecordStore::TakeFrame() {
  const uint8_t* const frame = frames_.Take();
  return static_cast<uint32_t>(static_cast<size_t>(frame - frames_.PageAt(0)) /
                               frames_.page_bytes());
}

std::optional<RecordId> RecordStore::Open() {
  if (frames_.n_free() == 0) {
    ++counters_.n_opens_refused;
    return std::nullopt;
  }
  return table_.Add(TakeFrame());
}

uint8_t* RecordStore::fill_data(RecordId id) {
  CHECK(state(id) == RecordState::kFilling);
  return frames_.PageAt(table_.frame(id));
}

const uint8_t* RecordStore::data(RecordId id) const {
  CHECK(table_.IsReadable(id));
  return frames_.PageAt(table_.frame(id));
}

void RecordStore::Seal(RecordId id) {
  table_.Move(id, RecordState::kUnwritten);
  Enqueue(id);
  FillBuffers();
}

void RecordStore::Enqueue(RecordId id) {
  const uint32_t frame = table_.frame(id);
  links_[frame] = {.record = id, .before = last_unwritten_, .after = kNone};
  (last_unwritten_ == kNone ? first_unwritten_
                            : links_[last_unwritten_].after) = frame;
  last_unwritten_ = frame;
  ++n_unwritten_;
}

void RecordStore::Dequeue(uint32_t frame) {
  const Link& link = links_[frame];
  (link.before == kNone ? first_unwritten_ : links_[link.before].after) =
      link.after;
  (link.after == kNone ? last_unwritten_ : links_[link.after].before) =
      link.before;
  --n_unwritten_;
}

void RecordStore::FillBuffers() {
  while (first_unwritten_ != kNone) {
    WriteBuffer* const buffer = BufferWithRoom();
    if (buffer == nullptr) return;
    const RecordId id = links_[first_unwritten_].record;
    Dequeue(first_unwritten_);
    Append(*buffer, id);
    if (buffer->n_slots < n_slots_) continue;
    buffer->state = WriteBuffer::State::kFull;
    WriteBuffers();
  }
}

RecordStore::WriteBuffer* RecordStore::BufferWithRoom() {
  WriteBuffer* free_one = nullptr;
  for (WriteBuffer& buffer : buffers_) {
    if (buffer.state == WriteBuffer::State::kFilling) return &buffer;
    if (buffer.state == WriteBuffer::State::kFree) free_one = &buffer;
  }
  if (free_one == nullptr) return nullptr;
  free_one->state = WriteBuffer::State::kFilling;
  free_one->n_slots = 0;
  free_one->n_records = 0;
  free_one->serial = ++last_serial_;
  free_one->is_refused = false;
  return free_one;
}

void RecordStore::Append(WriteBuffer& buffer, RecordId id) {
  const uint32_t slot = buffer.n_slots++;
  uint8_t* const bytes = BufferSlot(buffer, slot);
  std::memcpy(bytes, frames_.PageAt(table_.frame(id)), options_.record_bytes);
  Trailer trailer = {.serial = buffer.serial, .slot = slot, .masked_crc = 0};
  uint8_t* const stamp = bytes + options_.record_bytes;
  std::memcpy(stamp, &trailer, kStampBytes);
  trailer.masked_crc =
      MaskCrc32c(Crc32c({bytes, options_.record_bytes + kStampBytes}));
  std::memcpy(stamp + kStampBytes, &trailer.masked_crc, sizeof(uint32_t));
  buffer.records[slot] = id;
  ++buffer.n_records;
  table_.Move(id, RecordState::kWriting);
  const auto index = static_cast<uint32_t>(&buffer - buffers_.data());
  table_.SetPlace(id, index * n_slots_ + slot);
}

void RecordStore::WriteBuffers() {
  for (WriteBuffer& buffer : buffers_) {
    if (buffer.state != WriteBuffer::State::kFull) continue;
    if (buffer.n_records == 0) {
      buffer.state = WriteBuffer::State::kFree;
      continue;
    }
    const std::optional<uint32_t> segment = TakeSegment();
    if (!segment.has_value()) {
      if (!buffer.is_refused) ++counters_.n_writes_refused;
      buffer.is_refused = true;
      continue;
    }
    buffer.segment = *segment;
    buffer.state = WriteBuffer::State::kInFlight;
    const auto index = static_cast<uint64_t>(&buffer - buffers_.data());
    const IoRequest request = {
        .kind = IoRequest::Kind::kWrite,
        .tag = kFirstWriteTag + index,
        .offset = uint64_t{*segment} * options_.segment_bytes,
        .data = buffer.bytes.data(),
        .n_bytes = options_.segment_bytes};
    // Create has checked that there is room.
    CHECK(io_.Submit({&request, 1}) == 1);
  }
}

std::optional<uint32_t> RecordStore::TakeSegment() {
  if (n_polls_ < write_again_at_) return std::nullopt;
  std::optional<uint32_t> segment = space_.Take();
  if (!segment.has_value() && !space_.CanGrow()) {
    Refuse(Refusal::kQuota, 0, 0);
    return std::nullopt;
  }
  if (!segment.has_value()) {
    const Result<uint64_t> free_bytes = io_.FreeBytes();
    if (!free_bytes.ok() || *free_bytes < NeededBytes()) {
      Refuse(Refusal::kFreeSpace, 0, kPauseForSpace);
      return std::nullopt;
    }
    segment = space_.Grow();
  }
  refusal_ = Refusal::kNone;
  return segment;
}

uint64_t RecordStore::NeededBytes() const {
  // Those in flight may not have taken their space yet.
  const auto n_in_flight = std::count_if(
      buffers_.begin(), buffers_.end(), [](const WriteBuffer& buffer) {
        return buffer.state == WriteBuffer::State::kInFlight;
      });
  return options_.free_bytes_min +
         (1 + static_cast<uint64_t>(n_in_flight)) * options_.segment_bytes;
}

void RecordStore::Refuse(Refusal reason, int error, uint32_t polls) {
  refusal_ = reason;
  refusal_error_ = error;
  write_again_at_ = n_polls_ + polls;
}

void RecordStore::FinishWrite(WriteBuffer& buffer,
                              const IoCompletion& completion) {
  CHECK(buffer.state == WriteBuffer::State::kInFlight);
  const bool is_written = completion.outcome == IoCompletion::Outcome::kDone;
  for (uint32_t slot = 0; slot < n_slots_; ++slot) {
    const RecordId id = buffer.records[slot];
    if (id == kNoRecord) continue;
    table_.Move(id,
                is_written ? RecordState::kResident : RecordState::kUnwritten);
    if (is_written) {
      table_.SetPlace(id, buffer.segment * n_slots_ + slot);
    } else {
      Enqueue(id);
    }
  }
  if (is_written && buffer.n_records > 0) {
    space_.Fill(buffer.segment, buffer.n_records, buffer.serial);
  } else {
    space_.Give(buffer.segment);
  }
  if (is_written) {
    ++counters_.n_segments_written;
  } else {
    ++counters_.n_writes_failed;
    Refuse(Refusal::kDisk, completion.error, kPauseForDisk);
  }
  buffer.state = WriteBuffer::State::kFree;
}

void RecordStore::Drop(RecordId id) {
  const uint32_t frame = table_.frame(id);
  // From kFetching there is another way to kOnDisk.
  CHECK(state(id) != RecordState::kFetching);
  table_.Move(id, RecordState::kOnDisk);
  GiveFrame(frame);
}

size_t RecordStore::Fetch(std::span<const RecordId> ids) {
  requests_.clear();
  for (const RecordId id : ids) {
    if (free_landings_.empty() || frames_.n_free() == 0) break;
    table_.Move(id, RecordState::kFetching);
    table_.SetFrame(id, TakeFrame());
    const uint32_t landing = free_landings_.back();
    free_landings_.pop_back();
    landings_[landing].record = id;
    ++n_fetching_;
    const uint32_t place = table_.place(id);
    requests_.push_back(
        {.kind = IoRequest::Kind::kRead,
         .tag = landing,
         .offset = uint64_t{place / n_slots_} * options_.segment_bytes +
                   uint64_t{place % n_slots_} * slot_bytes_,
         .data = landings_[landing].bytes,
         .n_bytes = slot_bytes_,
         .deadline_us = options_.fetch_deadline_us});
  }
  if (requests_.empty()) return 0;
  // Create has checked that there is room.
  CHECK(io_.Submit(requests_) == requests_.size());
  counters_.n_fetches += requests_.size();
  return requests_.size();
}

void RecordStore::Poll() {
  ++n_polls_;
  IoCompletion completions[16];
  size_t n_completions = std::size(completions);
  while (n_completions == std::size(completions)) {
    n_completions = io_.Poll(completions);
    for (size_t i = 0; i < n_completions; ++i) {
      const IoCompletion& completion = completions[i];
      if (completion.tag >= kFirstWriteTag) {
        FinishWrite(buffers_[completion.tag - kFirstWriteTag], completion);
      } else {
        FinishRead(static_cast<uint32_t>(completion.tag), completion);
      }
    }
  }
  WriteBuffers();
  FillBuffers();
}

void RecordStore::FinishRead(uint32_t index, const IoCompletion& completion) {
  Landing& landing = landings_[index];
  const RecordId id = std::exchange(landing.record, kNoRecord);
  // Until then the disk may still write there.
  if (completion.is_final()) free_landings_.push_back(index);
  if (id == kNoRecord) return;
  if (completion.outcome == IoCompletion::Outcome::kOverdue) {
    ++counters_.n_fetches_overdue;
    EndFetch(id, RecordState::kOnDisk);
  } else if (completion.outcome == IoCompletion::Outcome::kFailed) {
    ++counters_.n_fetches_failed;
    FailFetch(id);
  } else if (!IsIntact(landing.bytes, table_.place(id))) {
    ++counters_.n_checksums_wrong;
    FailFetch(id);
  } else {
    std::memcpy(frames_.PageAt(table_.frame(id)), landing.bytes,
                options_.record_bytes);
    table_.Move(id, RecordState::kArrived);
    --n_fetching_;
  }
}

bool RecordStore::IsIntact(const uint8_t* bytes, uint32_t place) const {
  Trailer trailer;
  std::memcpy(&trailer, bytes + options_.record_bytes, sizeof(trailer));
  return trailer.serial == space_.serial(place / n_slots_) &&
         trailer.slot == place % n_slots_ &&
         trailer.masked_crc ==
             MaskCrc32c(Crc32c({bytes, options_.record_bytes + kStampBytes}));
}

void RecordStore::FailFetch(RecordId id) {
  const bool is_lost = table_.CountFailure(id) >= kTriesMax;
  if (is_lost) ++counters_.n_lost;
  EndFetch(id, is_lost ? RecordState::kLost : RecordState::kOnDisk);
}

void RecordStore::EndFetch(RecordId id, RecordState state) {
  const uint32_t frame = table_.frame(id);
  table_.Move(id, state);
  GiveFrame(frame);
  --n_fetching_;
}

void RecordStore::Await(RecordId id) {
  if (state(id) != RecordState::kFetching) return;
  ++counters_.n_waits;
  while (state(id) == RecordState::kFetching) {
    io_.Wait(kWaitUs);
    Poll();
  }
}

void RecordStore::Release(RecordId id) {
  if (!table_.Release(id)) return;
  const RecordState was = state(id);
  const uint32_t place = table_.place(id);
  if (was == RecordState::kUnwritten) Dequeue(table_.frame(id));
  if (was == RecordState::kWriting) {
    WriteBuffer& buffer = buffers_[place / n_slots_];
    buffer.records[place % n_slots_] = kNoRecord;
    --buffer.n_records;
  }
  if (was == RecordState::kFetching) {
    const auto landing =
        std::find_if(landings_.begin(), landings_.end(),
                     [&](const Landing& l) { return l.record == id; });
    CHECK(landing != landings_.end());
    landing->record = kNoRecord;
    --n_fetching_;
  }
  const bool is_on_disk =
      was == RecordState::kResident || was == RecordState::kOnDisk ||
      was == RecordState::kFetching || was == RecordState::kArrived ||
      was == RecordState::kLost;
  if (is_on_disk) space_.ReleaseRecord(place / n_slots_);
  if (RecordTable::HasFrame(was)) GiveFrame(table_.frame(id));
  table_.Remove(id);
}

Status RecordStore::refusal() const {
  switch (refusal_) {
    case Refusal::kNone:
      return {};
    case Refusal::kQuota:
      return OutOfMemory("third tier: its quota of " +
                         std::to_string(options_.disk_bytes_max) +
                         " bytes is used up; raise it");
    case Refusal::kFreeSpace:
      return IoError("third tier: less than " +
                     std::to_string(options_.free_bytes_min) +
                     " bytes would be left on its file system; make room there "
                     "or give another folder");
    case Refusal::kDisk:
      return IoError("third tier: its file cannot be written (" +
                     ErrnoText(refusal_error_) +
                     "); check the disk and its free space");
  }
  return {};
}

RecordStoreCounters RecordStore::counters() const {
  RecordStoreCounters counters = counters_;
  counters.disk_bytes = uint64_t{space_.n_grown()} * options_.segment_bytes;
  counters.n_unwritten = n_unwritten_;
  return counters;
}

}  // namespace lkv
