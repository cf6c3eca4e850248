#include "trace/trace_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/unsigned_f8.h"
#include "io/byte_fields.h"
#include "io/crc32c.h"
#include "kernels/kernel_table.h"
#include "policy/non_negative_f16.h"
#include "trace/block_layout.h"

namespace lkv {
namespace {

std::vector<uint8_t> NewBlock() {
  return std::vector<uint8_t>(kBlockHeadBytes);
}

void AppendF16(std::vector<uint8_t>& bytes, const float* values, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    AppendField(bytes, F32ToF16(std::min(values[i], kMaxF16)));
  }
}

void AppendF8(std::vector<uint8_t>& bytes, const float* values, uint32_t n) {
  const size_t at = bytes.size();
  bytes.resize(at + n);
  for (uint32_t i = 0; i < n; ++i) bytes[at + i] = F32ToUnsignedF8(values[i]);
}

std::vector<uint8_t> InfoBlock(const TraceInfo& info) {
  std::vector<uint8_t> block = NewBlock();
  AppendField(block, kTraceVersion);
  AppendField(block, info.shape.n_layers);
  AppendField(block, info.shape.n_kv_heads);
  AppendField(block, info.shape.group);
  AppendField(block, info.shape.head_dim);
  AppendField(block, static_cast<uint32_t>(info.layers.size()));
  for (uint32_t layer : info.layers) AppendField(block, layer);
  AppendField(block, std::string_view(info.model));
  AppendField(block, std::string_view(info.text));
  return block;
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Create(
    const FileSystem& file_system, const std::string& path,
    const TraceInfo& info) {
  if (info.n_lanes() == 0) {
    return InvalidArgument(path + ": no layer to record; name at least one");
  }
  Result<std::unique_ptr<NewFile>> file = file_system.Create(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<TraceWriter> writer(new TraceWriter(*std::move(file), info));
  for (Lane& lane : writer->lanes_) lane.records = NewBlock();
  std::vector<uint8_t> block = InfoBlock(info);
  if (Status s = writer->WriteBlock(block); !s.ok()) return s;
  return writer;
}

void TraceWriter::AddStep(uint32_t lane_index, const LaneStep& step) {
  Lane& lane = lanes_[lane_index];
  CHECK(lane.n_steps == n_steps_);
  const uint32_t n_tokens = ++lane.n_steps;
  const uint32_t n_pages = PagesOf(n_tokens);
  lane.page_max.assign(n_pages, 0);
  lane.page_mean.assign(n_pages, 0);
  lane.page_peak.assign(n_pages, 0);
  for (uint32_t pos = 0; pos < n_tokens; ++pos) {
    const uint32_t page = pos / kPageTokens;
    lane.page_max[page] += step.mass_max[pos];
    lane.page_mean[page] += step.mass_mean[pos];
    lane.page_peak[page] = std::max(lane.page_peak[page], step.mass_max[pos]);
  }
  AppendF16(lane.records, &step.value_norm, 1);
  AppendF16(lane.records, &step.value_distance, 1);
  AppendF16(lane.records, lane.page_max.data(), n_pages);
  AppendF16(lane.records, lane.page_mean.data(), n_pages);
  AppendF8(lane.records, lane.page_peak.data(), n_pages);
  if (HasTokenRows(n_tokens - 1)) {
    AppendF8(lane.records, step.mass_max, n_tokens);
    AppendF8(lane.records, step.mass_mean, n_tokens);
  }
}

void TraceWriter::AddExpectation(uint32_t lane_index,
                                 std::span<const float> attention) {
  Lane& lane = lanes_[lane_index];
  CHECK(lane.n_steps == n_steps_ + 1 && HasExpectation(n_steps_) &&
        attention.size() == lane.n_steps);
  AppendF8(lane.records, attention.data(), lane.n_steps);
  ++lane.n_expectations;
}

Status TraceWriter::FinishStep() {
  if (n_steps_ == kMaxTraceSteps) {
    return InvalidArgument("trace: longer than " +
                           std::to_string(kMaxTraceSteps) +
                           " steps; record less");
  }
  ++n_steps_;
  for (const Lane& lane : lanes_) {
    CHECK(lane.n_steps == n_steps_);
    CHECK(lane.n_expectations == n_steps_ / kSegmentSteps);
  }
  return n_steps_ % kSegmentSteps == 0 ? WriteSegment() : Status();
}

Status TraceWriter::WriteSegment() {
  n_written_steps_ = n_steps_;
  for (Lane& lane : lanes_) {
    block_offsets_.push_back(file_->n_bytes());
    if (Status s = WriteBlock(lane.records); !s.ok()) return s;
    lane.records.resize(kBlockHeadBytes);
  }
  return {};
}

Status TraceWriter::WriteLastSegment() {
  return n_written_steps_ == n_steps_ ? Status() : WriteSegment();
}

Status TraceWriter::AddReread(std::span<const float> mass_max) {
  CHECK(mass_max.size() == n_steps_ && n_rereads_ < lanes_.size());
  if (n_rereads_ == 0) {
    if (Status s = WriteLastSegment(); !s.ok()) return s;
  }
  std::vector<uint8_t> block = NewBlock();
  AppendF8(block, mass_max.data(), n_steps_);
  block_offsets_.push_back(file_->n_bytes());
  ++n_rereads_;
  return WriteBlock(block);
}

Status TraceWriter::WriteBlock(std::vector<uint8_t>& block) {
  const uint64_t payload_bytes = block.size() - kBlockHeadBytes;
  std::memcpy(&block[8], &payload_bytes, sizeof(payload_bytes));
  const uint32_t crc = Crc32c(std::span(block).subspan(kBlockCheckedAt));
  std::memcpy(&block[0], &kBlockMagic, sizeof(kBlockMagic));
  std::memcpy(&block[4], &crc, sizeof(crc));
  return file_->Append(block);
}

Status TraceWriter::Finish() {
  if (n_steps_ == 0) {
    return InvalidArgument("trace: not one step was recorded; give more text");
  }
  CHECK(n_rereads_ == 0 || n_rereads_ == lanes_.size());
  if (Status s = WriteLastSegment(); !s.ok()) return s;
  const uint64_t index_offset = file_->n_bytes();
  std::vector<uint8_t> index = NewBlock();
  AppendField(index, n_steps_);
  AppendField(index, n_rereads_);
  for (uint64_t offset : block_offsets_) AppendField(index, offset);
  if (Status s = WriteBlock(index); !s.ok()) return s;
  std::vector<uint8_t> end;
  AppendField(end, index_offset);
  AppendField(end, Crc32c(end));
  AppendField(end, kEndMagic);
  if (Status s = file_->Append(end); !s.ok()) return s;
  return file_->Commit();
}

}  // namespace lkv
