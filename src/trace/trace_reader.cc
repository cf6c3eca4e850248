#include "trace/trace_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "io/byte_fields.h"
#include "io/crc32c.h"
#include "trace/block_layout.h"

namespace lkv {
namespace {

// Larger than any model; a file that claims more is damaged.
constexpr uint32_t kMostLayers = 4096;
constexpr uint32_t kMostKvHeads = 4096;

// A block without its head.
std::span<const uint8_t> PayloadOf(const std::vector<uint8_t>& block) {
  return std::span(block).subspan(kBlockHeadBytes);
}

// Reads the info's fields. False when they make no sense.
bool ParseInfo(FieldReader& fields, TraceInfo& info) {
  info.shape.n_layers = fields.Read<uint32_t>();
  info.shape.n_kv_heads = fields.Read<uint32_t>();
  info.shape.group = fields.Read<uint32_t>();
  info.shape.head_dim = fields.Read<uint32_t>();
  const uint32_t n_recorded = fields.Read<uint32_t>();
  if (!fields.ok() || info.shape.n_layers > kMostLayers ||
      info.shape.n_kv_heads == 0 || info.shape.n_kv_heads > kMostKvHeads ||
      n_recorded == 0 || n_recorded > info.shape.n_layers) {
    return false;
  }
  for (uint32_t i = 0; i < n_recorded; ++i) {
    const uint32_t layer = fields.Read<uint32_t>();
    if (layer >= info.shape.n_layers) return false;
    if (i > 0 && layer <= info.layers.back()) return false;
    info.layers.push_back(layer);
  }
  info.model = fields.ReadText();
  info.text = fields.ReadText();
  return fields.ok() && fields.n_left() == 0;
}

}  // namespace

Result<TraceReader> TraceReader::Open(const FileSystem& file_system,
                                      const std::string& path) {
  Result<std::unique_ptr<ReadableFile>> file = file_system.Open(path);
  if (!file.ok()) return file.status();
  TraceReader reader(path, *std::move(file));
  if (Status s = reader.ReadEnds(); !s.ok()) return s;
  return reader;
}

Result<std::vector<TraceReader>> TraceReader::OpenAll(
    const FileSystem& file_system, const std::vector<std::string>& paths) {
  std::vector<TraceReader> traces;
  for (const std::string& path : paths) {
    Result<TraceReader> trace = Open(file_system, path);
    if (!trace.ok()) return trace.status();
    traces.push_back(*std::move(trace));
  }
  return traces;
}

Status TraceReader::Damaged(const std::string& what) const {
  return Corrupt(path_ + ": " + what + "; record it again");
}

Status TraceReader::ReadEnds() {
  uint8_t head[sizeof(kBlockMagic)] = {};
  if (n_bytes() < sizeof(head) || !file_->ReadAt(0, head).ok() ||
      FieldReader(head).Read<uint32_t>() != kBlockMagic) {
    return Corrupt(path_ +
                   ": is no attention trace; make one with"
                   " `lkv trace record`");
  }
  Result<std::vector<uint8_t>> info = ReadBlock(0);
  if (!info.ok()) return info.status();
  FieldReader fields(PayloadOf(*info));
  if (const uint32_t version = fields.Read<uint32_t>();
      version != kTraceVersion) {
    return Damaged("is of version " + std::to_string(version) +
                   ", this program reads version " +
                   std::to_string(kTraceVersion));
  }
  if (!ParseInfo(fields, info_)) return Damaged("describes no model");

  uint8_t end[kEndMarkBytes] = {};
  if (n_bytes() < sizeof(end)) return Damaged("has no end, it was cut off");
  if (Status s = file_->ReadAt(n_bytes() - sizeof(end), end); !s.ok()) return s;
  FieldReader mark(end);
  const auto index_offset = mark.Read<uint64_t>();
  const auto crc = mark.Read<uint32_t>();
  if (mark.Read<uint32_t>() != kEndMagic ||
      crc != Crc32c(std::span(end).first(sizeof(index_offset)))) {
    return Damaged("has no end, it was cut off");
  }
  Result<std::vector<uint8_t>> index = ReadBlock(index_offset);
  if (!index.ok()) return index.status();
  FieldReader entries(PayloadOf(*index));
  n_steps_ = entries.Read<uint32_t>();
  const auto n_rereads = entries.Read<uint32_t>();
  has_reread_ = n_rereads != 0;
  const uint64_t n_blocks =
      uint64_t{CeilDiv(n_steps_, kSegmentSteps)} * info_.n_lanes() + n_rereads;
  if (!entries.ok() || n_steps_ == 0 || n_steps_ > kMaxTraceSteps ||
      (has_reread_ && n_rereads != info_.n_lanes()) ||
      entries.n_left() != n_blocks * sizeof(uint64_t) ||
      StepRecordsBytes(0, n_steps_) > n_bytes() / info_.n_lanes()) {
    return Damaged("has an index of another size than its steps");
  }
  block_offsets_.resize(n_blocks);
  for (uint64_t& offset : block_offsets_) offset = entries.Read<uint64_t>();
  return {};
}

Result<std::vector<uint8_t>> TraceReader::ReadBlock(uint64_t offset) const {
  const std::string name = "the block at byte " + std::to_string(offset);
  if (offset > n_bytes() || n_bytes() - offset < kBlockHeadBytes) {
    return Damaged(name + " lies outside the file");
  }
  std::vector<uint8_t> block(kBlockHeadBytes);
  if (Status s = file_->ReadAt(offset, block); !s.ok()) return s;
  FieldReader fields(block);
  const auto magic = fields.Read<uint32_t>();
  const auto crc = fields.Read<uint32_t>();
  const auto payload_bytes = fields.Read<uint64_t>();
  if (magic != kBlockMagic ||
      payload_bytes > n_bytes() - offset - kBlockHeadBytes) {
    return Damaged(name + " is damaged");
  }
  block.resize(kBlockHeadBytes + payload_bytes);
  if (Status s = file_->ReadAt(offset + kBlockHeadBytes,
                               std::span(block).subspan(kBlockHeadBytes));
      !s.ok()) {
    return s;
  }
  if (Crc32c(std::span(block).subspan(kBlockCheckedAt)) != crc) {
    return Damaged(name + " is damaged (its checksum differs)");
  }
  return block;
}

Result<LaneTrace> TraceReader::ReadLane(uint32_t lane) const {
  CHECK(lane < info_.n_lanes());
  LaneTrace trace(n_steps_);
  for (size_t at = lane; at < block_offsets_.size(); at += info_.n_lanes()) {
    Result<std::vector<uint8_t>> block = ReadBlock(block_offsets_[at]);
    if (!block.ok()) return block.status();
    const uint32_t n_steps =
        std::min(kSegmentSteps, n_steps_ - trace.n_steps());
    const Status s = n_steps > 0 ? trace.Append(PayloadOf(*block), n_steps)
                                 : trace.SetReread(PayloadOf(*block));
    if (!s.ok()) return Damaged(std::string(s.message()));
  }
  return trace;
}

}  // namespace lkv
