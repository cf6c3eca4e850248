#include "trace/lane_trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/unsigned_f8.h"
#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// The most that rounding adds to a sum of weights that is 1.
constexpr float kMostMass = 1.01f;
// And to one of 8-bit floats.
constexpr double kMostExpected = 1.07;

// Reads numbers off the front of bytes that are known to be enough. Remembers
// whether one was no finite number >= 0.
class RecordReader {
 public:
  explicit RecordReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void F16(uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; ++i) {
      uint16_t half;
      std::memcpy(&half, &bytes_[2 * size_t{i}], sizeof(half));
      out[i] = F16ToF32(half);
      is_sound_ &= std::isfinite(out[i]) && out[i] >= 0;
    }
    bytes_ = bytes_.subspan(2 * size_t{n});
  }
  void F8(uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; ++i) out[i] = UnsignedF8ToF32(bytes_[i]);
    bytes_ = bytes_.subspan(n);
  }
  bool is_sound() const { return is_sound_; }

 private:
  std::span<const uint8_t> bytes_;
  bool is_sound_ = true;
};

}  // namespace

LaneTrace::LaneTrace(uint32_t n_steps)
    : value_norm_(n_steps),
      value_distance_(n_steps),
      page_max_(PageRowAt(n_steps)),
      page_mean_(PageRowAt(n_steps)),
      page_peak_(PageRowAt(n_steps)),
      token_row_at_(n_steps) {
  size_t n_entries = 0;
  for (uint32_t step = 0; step < n_steps; ++step) {
    token_row_at_[step] = n_entries;
    if (HasTokenRows(step)) n_entries += step + 1;
  }
  token_max_.resize(n_entries);
  token_mean_.resize(n_entries);
  expected_.resize(ExpectationAt(n_steps));
}

Status LaneTrace::Append(std::span<const uint8_t> records, uint32_t n_steps) {
  CHECK(n_steps_ + n_steps <= value_norm_.size());
  const uint64_t n_bytes = StepRecordsBytes(n_steps_, n_steps);
  if (records.size() != n_bytes) {
    return Corrupt("steps from " + std::to_string(n_steps_) + " on have " +
                   std::to_string(records.size()) + " bytes instead of " +
                   std::to_string(n_bytes));
  }
  RecordReader reader(records);
  for (uint32_t i = 0; i < n_steps; ++i, ++n_steps_) {
    const uint32_t step = n_steps_;
    const uint32_t n_pages = PagesOf(step + 1);
    const size_t row = PageRowAt(step);
    reader.F16(1, &value_norm_[step]);
    reader.F16(1, &value_distance_[step]);
    reader.F16(n_pages, &page_max_[row]);
    reader.F16(n_pages, &page_mean_[row]);
    reader.F8(n_pages, &page_peak_[row]);
    if (HasTokenRows(step)) {
      reader.F8(step + 1, &token_max_[token_row_at_[step]]);
      reader.F8(step + 1, &token_mean_[token_row_at_[step]]);
    }
    if (HasExpectation(step)) {
      float* expected = &expected_[ExpectationAt(step)];
      reader.F8(step + 1, expected);
      if (!(std::accumulate(expected, expected + step + 1, 0.0) <=
            kMostExpected)) {
        return Corrupt("step " + std::to_string(step) +
                       " holds an expectation that is none");
      }
    }
    float mass = 0;
    for (uint32_t p = 0; p < n_pages; ++p) mass += page_mean_[row + p];
    if (!reader.is_sound() || !(mass <= kMostMass)) {
      return Corrupt("step " + std::to_string(step) +
                     " holds values that are no attention");
    }
  }
  return {};
}

Status LaneTrace::SetReread(std::span<const uint8_t> codes) {
  if (codes.size() != n_steps_) {
    return Corrupt("the second reading has " + std::to_string(codes.size()) +
                   " tokens instead of " + std::to_string(n_steps_));
  }
  reread_.resize(n_steps_);
  RecordReader(codes).F8(n_steps_, reread_.data());
  return {};
}

}  // namespace lkv
