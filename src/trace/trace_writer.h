// TraceWriter: writes an attention trace (trace_format.h) as it is recorded,
// segment by segment; the file appears at Finish or not at all.
//
// Thread rule: AddStep and AddExpectation for different lanes may run at the
// same time; everything else is one caller's, between them. Memory: one
// segment, 14 MB for 90 lanes at 4,096 tokens. Cost of AddStep: O(slots), 1 us
// for 2048.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "lookaheadkv/status.h"
#include "trace/trace_format.h"

namespace lkv {

class TraceWriter {
 public:
  // kInvalidArgument: an info that names no lane. Otherwise as
  // FileSystem::Create.
  static Result<std::unique_ptr<TraceWriter>> Create(
      const FileSystem& file_system, const std::string& path,
      const TraceInfo& info);

  // What step number n_steps() did in one lane: the statistics of its token's
  // value and the masses [n_steps() + 1] that its query paid.
  struct LaneStep {
    float value_norm = 0;
    float value_distance = 0;
    const float* mass_max = nullptr;
    const float* mass_mean = nullptr;
  };
  void AddStep(uint32_t lane, const LaneStep& step);
  // Behind AddStep of a step with HasExpectation, for every lane: what it
  // expects of the tokens, [n_steps() + 1].
  void AddExpectation(uint32_t lane, std::span<const float> attention);
  // Every lane has had the step. kInvalidArgument past kMaxTraceSteps.
  Status FinishStep();
  // Every step is written: what the tokens of one lane got in a second reading,
  // [n_steps()]. For all lanes, in their order, or for none.
  Status AddReread(std::span<const float> mass_max);
  // No more of anything. kInvalidArgument when there was no step.
  Status Finish();

  uint32_t n_steps() const { return n_steps_; }
  uint64_t n_bytes() const { return file_->n_bytes(); }

 private:
  TraceWriter(std::unique_ptr<NewFile> file, const TraceInfo& info)
      : file_(std::move(file)), info_(info), lanes_(info.n_lanes()) {}

  // Records of the segment under way.
  struct alignas(64) Lane {
    std::vector<uint8_t> records;
    std::vector<float> page_max, page_mean, page_peak;
    uint32_t n_steps = 0;
    uint32_t n_expectations = 0;
  };
  Status WriteBlock(std::vector<uint8_t>& payload);
  Status WriteSegment();
  // Writes the steps that fill no whole segment, once.
  Status WriteLastSegment();

  std::unique_ptr<NewFile> file_;
  const TraceInfo info_;
  std::vector<Lane> lanes_;  // [n_lanes]
  std::vector<uint64_t> block_offsets_;
  uint32_t n_steps_ = 0;
  uint32_t n_written_steps_ = 0;  // of those
  uint32_t n_rereads_ = 0;        // lanes
};

}  // namespace lkv
