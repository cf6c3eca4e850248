#include "store/segment_space.h"

#include "base/check.h"

namespace lkv {

SegmentSpace::SegmentSpace(uint32_t n_segments_max)
    : n_segments_max_(n_segments_max),
      segments_(n_segments_max, Access::kSparse) {}

std::optional<uint32_t> SegmentSpace::Take() {
  if (first_free_ == kNone) return std::nullopt;
  const uint32_t segment = first_free_;
  first_free_ = segments_.data()[segment].next_free;
  return segment;
}

uint32_t SegmentSpace::Grow() {
  CHECK(CanGrow());
  return n_grown_++;
}

void SegmentSpace::Fill(uint32_t segment, uint32_t n_records, uint64_t serial) {
  CHECK(segment < n_grown_ && n_records > 0);
  CHECK(segments_.data()[segment].n_records == 0);
  segments_.data()[segment].n_records = n_records;
  segments_.data()[segment].serial = serial;
}

void SegmentSpace::Give(uint32_t segment) {
  CHECK(segment < n_grown_);
  CHECK(segments_.data()[segment].n_records == 0);
  segments_.data()[segment].next_free = first_free_;
  first_free_ = segment;
}

uint64_t SegmentSpace::serial(uint32_t segment) const {
  CHECK(segment < n_grown_);
  return segments_.data()[segment].serial;
}

void SegmentSpace::ReleaseRecord(uint32_t segment) {
  CHECK(segment < n_grown_);
  CHECK(segments_.data()[segment].n_records > 0);
  if (--segments_.data()[segment].n_records == 0) Give(segment);
}

}  // namespace lkv
