// RecordStore: equally sized records, of which a fixed number is in RAM and the
// others on a disk, which nobody waits for.
//
// Every record is written once, soon after it was filled; its frame in RAM can
// be taken from then on without a write, and the record fetched into another
// one ahead of its use. Records are written in segments and read one by one: a
// record and its checksum begin at a multiple of the disk's read alignment.
// A segment's space is used again when all its records are gone.
//
// How a step goes:
//
//   store.Poll();                  // what has come meanwhile
//   store.Show(id);                // for those of it that are wanted now
//   store.Pin(id); data(id); store.Unpin(id);
//   store.Drop(id);                // make room
//   store.Fetch(ids);              // for later steps
//   id = store.Open(); fill(store.fill_data(id)); store.Seal(id);
//
// So what can be read changes by Show, Drop and Seal alone, at the moment of
// the caller's choice, and never because the disk was fast (record_table.h has
// the states).
//
// Nothing that was stored is lost because a write fails, the disk is full or
// the quota is reached: unwritten records keep their frames, and the store
// *refuses*, until there is space again. A record that cannot be read, or whose
// checksum differs, is asked for again by whoever wants it; after kTriesMax
// times it is lost. Wrong bytes are never shown: the checksum covers which
// record it is, so that neither a torn segment nor an older one passes.
//
// Thread rule: thread-compatible; calls that are const may run at the same time
// as each other. The bytes of a pinned record may be read by any thread
// whatever the owner calls meanwhile. No call but Await waits for the disk;
// none allocates after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/block_io.h"
#include "io/io_buffer.h"
#include "lookaheadkv/status.h"
#include "store/page_pool.h"
#include "store/record_table.h"
#include "store/segment_space.h"

namespace lkv {

// Counts since Create, but for the last two.
struct RecordStoreCounters {
  uint64_t n_segments_written = 0;
  uint64_t n_writes_failed = 0;
  uint64_t n_writes_refused = 0;  // segments that found no space, each once
  uint64_t n_opens_refused = 0;   // no frame
  uint64_t n_fetches = 0;         // begun
  uint64_t n_fetches_failed = 0;
  uint64_t n_fetches_overdue = 0;
  uint64_t n_checksums_wrong = 0;
  uint64_t n_lost = 0;
  uint64_t n_waits = 0;  // in Await
  // Now.
  uint64_t disk_bytes = 0;   // what du says
  uint32_t n_unwritten = 0;  // records that wait for a place in a segment
};

class RecordStore {
 public:
  static constexpr uint32_t kWriteBuffers = 3;
  static constexpr uint32_t kTriesMax = 3;

  struct Options {
    uint32_t record_bytes = 0;  // multiple of 4
    uint32_t n_frames = 0;      // records in RAM
    uint64_t disk_bytes_max = 0;
    // What others are left on the file system.
    uint64_t free_bytes_min = 0;
    // As in OpenedBlockIo.
    uint32_t read_alignment = 0;
    uint32_t segment_bytes = 256 * 1024;  // multiple of kIoBlockBytes
    uint32_t n_fetches_max = 24;          // under way
    uint32_t fetch_deadline_us = 0;       // 0: none
  };
  // kInvalidArgument when the quota is below one segment, frames below two, or
  // io has too little room. `io` has an empty file and outlives the store.
  static Result<std::unique_ptr<RecordStore>> Create(const Options& options,
                                                     BlockIo& io);
  // Waits until the disk leaves the store's memory alone.
  ~RecordStore();
  RecordStore(const RecordStore&) = delete;
  RecordStore& operator=(const RecordStore&) = delete;

  // What a record takes in RAM for good, wherever its bytes are.
  static constexpr size_t kMetadataBytesPerRecord =
      RecordTable::kBytesPerRecord;

  // A new record with one holder, to be filled in its frame. None while all
  // frames are taken. 40 ns.
  std::optional<RecordId> Open();
  // [record_bytes], undefined contents. Requires kFilling.
  uint8_t* fill_data(RecordId id);
  // Its bytes stay as they are from now on, and go to the disk. A copy and a
  // checksum, 0.2 us for 3.3 KiB; every slots_per_segment() times a call of the
  // system, 30 us.
  void Seal(RecordId id);

  RecordState state(RecordId id) const { return table_.state(id); }
  // Requires a readable record; valid until it is dropped.
  const uint8_t* data(RecordId id) const;
  void Pin(RecordId id) { table_.Pin(id); }
  void Unpin(RecordId id) { table_.Unpin(id); }

  // Gives its frame away. Requires kResident or kArrived, and no pin.
  void Drop(RecordId id);
  // Asks the disk for as many of `ids` as there are frames and fetches left,
  // from the front; returns how many. Requires kOnDisk of each. One call of the
  // system; 3 us a record where it is given 16.
  size_t Fetch(std::span<const RecordId> ids);
  // Looks after what the disk has done. A fetched record is then kArrived, or
  // again kOnDisk (it failed or is overdue), or kLost. 0.07 us when nothing has
  // come, 0.5 us for each record that has: a checksum and a copy.
  void Poll();
  // Lets an arrived record be read.
  void Show(RecordId id) { table_.Move(id, RecordState::kResident); }
  // Polls until the record is not kFetching any more. Waits for the disk.
  void Await(RecordId id);

  // One holder more, or less; the last one removes the record. Requires no pin
  // then.
  void Share(RecordId id) { table_.Share(id); }
  void Release(RecordId id);

  uint32_t n_records() const { return table_.n_used(); }
  uint32_t n_free_frames() const { return frames_.n_free(); }
  uint32_t n_fetching() const { return n_fetching_; }
  uint32_t slots_per_segment() const { return n_slots_; }

  // Why the last segment that was to be written was not, for people; OK when
  // it was.
  Status refusal() const;
  RecordStoreCounters counters() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr RecordId kNoRecord{kNone};
  enum class Refusal : uint8_t { kNone, kQuota, kFreeSpace, kDisk };

  // Where a segment is put together.
  struct WriteBuffer {
    enum class State : uint8_t { kFree, kFilling, kFull, kInFlight };
    State state = State::kFree;
    uint32_t n_slots = 0;    // filled
    uint32_t n_records = 0;  // of them not released
    uint32_t segment = 0;    // of kInFlight
    uint64_t serial = 0;
    bool is_refused = false;        // counted as such
    std::vector<RecordId> records;  // [n_slots], kNoRecord: released
    IoBuffer bytes;
  };
  // Where the disk puts one record, until it has been checked.
  struct Landing {
    RecordId record = kNoRecord;  // none: nobody waits for it any more
    uint8_t* bytes = nullptr;
  };
  // Of a frame whose record is unwritten: a doubly linked list.
  struct Link {
    RecordId record;
    uint32_t before;
    uint32_t after;
  };

  RecordStore(const Options& options, BlockIo& io, PagePool frames,
              uint32_t n_segments_max);

  uint32_t TakeFrame();
  void GiveFrame(uint32_t frame) { frames_.Give(frames_.PageAt(frame)); }

  void Enqueue(RecordId id);
  void Dequeue(uint32_t frame);
  // Moves unwritten records into write buffers, as far as those have room.
  void FillBuffers();
  WriteBuffer* BufferWithRoom();
  void Append(WriteBuffer& buffer, RecordId id);
  // Submits full buffers, as far as there is space.
  void WriteBuffers();
  std::optional<uint32_t> TakeSegment();
  // Free space that one segment more takes from, at the least.
  uint64_t NeededBytes() const;
  void Refuse(Refusal reason, int error, uint32_t polls);
  void FinishWrite(WriteBuffer& buffer, const IoCompletion& completion);

  uint8_t* BufferSlot(WriteBuffer& buffer, uint32_t slot) {
    return buffer.bytes.data() + size_t{slot} * slot_bytes_;
  }
  void FinishRead(uint32_t landing, const IoCompletion& completion);
  bool IsIntact(const uint8_t* bytes, uint32_t place) const;
  void FailFetch(RecordId id);
  // Its frame is free again.
  void EndFetch(RecordId id, RecordState state);

  const Options options_;
  const uint32_t slot_bytes_;
  const uint32_t n_slots_;  // of a segment
  BlockIo& io_;
  PagePool frames_;
  RecordTable table_;
  SegmentSpace space_;
  std::vector<Link> links_;  // [n_frames]
  uint32_t first_unwritten_ = kNone;
  uint32_t last_unwritten_ = kNone;
  uint32_t n_unwritten_ = 0;
  std::vector<WriteBuffer> buffers_;  // [kWriteBuffers]
  uint64_t last_serial_ = 0;
  IoBuffer landing_bytes_;
  std::vector<Landing> landings_;        // [n_fetches_max]
  std::vector<uint32_t> free_landings_;  // indices
  std::vector<IoRequest> requests_;      // of one Fetch
  uint32_t n_fetching_ = 0;
  Refusal refusal_ = Refusal::kNone;
  int refusal_error_ = 0;
  uint64_t n_polls_ = 0;
  uint64_t write_again_at_ = 0;  // poll
  RecordStoreCounters counters_;
};

}  // namespace lkv
