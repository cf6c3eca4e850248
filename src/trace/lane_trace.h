// One lane of a trace in memory: rows as numbers, found by their step.
//
// 4,096 steps take 17 MB. Thread-compatible; reading is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lookaheadkv/status.h"
#include "trace/trace_format.h"

namespace lkv {

class LaneTrace {
 public:
  // Page rows of step t have PagesOf(t + 1) entries.
  struct PageRows {
    const float* max;   // sums over the page of the group maxima
    const float* mean;  // likewise of the group means
    const float* peak;  // the page's largest group maximum
  };
  // Token rows of step t have t + 1 entries.
  struct TokenRows {
    const float* max;
    const float* mean;
  };

  // Takes memory for all rows.
  explicit LaneTrace(uint32_t n_steps);

  // Appends steps from their records, which hold nothing else. kCorrupt, with
  // a reason: too many or too few bytes, values that are no attention. Requires
  // that the steps fit.
  Status Append(std::span<const uint8_t> records, uint32_t n_steps);

  // What the tokens got in a second reading, a code of each. Requires all
  // steps. kCorrupt, with a reason: too many or too few.
  Status SetReread(std::span<const uint8_t> codes);

  // Steps appended so far.
  uint32_t n_steps() const { return n_steps_; }
  PageRows pages(uint32_t step) const {
    const size_t at = PageRowAt(step);
    return {&page_max_[at], &page_mean_[at], &page_peak_[at]};
  }
  // Requires HasTokenRows(step).
  TokenRows tokens(uint32_t step) const {
    const size_t at = token_row_at_[step];
    return {&token_max_[at], &token_mean_[at]};
  }
  // What the queries behind step `step` were expected to pay: [step + 1].
  // Requires HasExpectation(step).
  const float* expectation(uint32_t step) const {
    return &expected_[ExpectationAt(step)];
  }
  float value_norm(uint32_t pos) const { return value_norm_[pos]; }
  float value_distance(uint32_t pos) const { return value_distance_[pos]; }
  // [n_steps], or empty: no second reading was recorded.
  std::span<const float> reread() const { return reread_; }

 private:
  // Entries of all page rows before that of `step`: PagesOf(1) + ... +
  // PagesOf(step).
  static size_t PageRowAt(uint32_t step) {
    const size_t q = step / kPageTokens;
    const size_t r = step % kPageTokens;
    return (q + 1) * (q * kPageTokens / 2 + r);
  }

  // Entries of all expectations before the one behind `step`: those of so many
  // whole segments, 1 + 2 + ... times their length.
  static size_t ExpectationAt(uint32_t step) {
    const size_t n_before = step / kSegmentSteps;
    return n_before * (n_before + 1) / 2 * kSegmentSteps;
  }

  uint32_t n_steps_ = 0;
  std::vector<float> value_norm_, value_distance_;       // [capacity]
  std::vector<float> page_max_, page_mean_, page_peak_;  // rows
  std::vector<size_t> token_row_at_;                     // [capacity]
  std::vector<float> token_max_, token_mean_;            // rows
  std::vector<float> expected_;                          // rows
  std::vector<float> reread_;
};

}  // namespace lkv
