// Which segments of a file are in use, and by how many records.
//
// A segment is written whole, once; it is used again when the last of its
// records is gone. The file only grows where no segment is free, so its size on
// the disk is n_grown() segments.
//
// Pure but for the memory it owns. Thread-compatible. O(1). Allocates in its
// constructor only.
#pragma once

#include <cstdint>
#include <optional>

#include "base/aligned_buffer.h"

namespace lkv {

class SegmentSpace {
 public:
  explicit SegmentSpace(uint32_t n_segments_max);

  // Segments that the file has grown to.
  uint32_t n_grown() const { return n_grown_; }
  bool CanGrow() const { return n_grown_ < n_segments_max_; }

  // One that the file has already, if any is free.
  std::optional<uint32_t> Take();
  // A new one at the end. Requires CanGrow().
  uint32_t Grow();

  // One that was taken is written: n_records > 0 of it are in use, `serial` is
  // what they are stamped with.
  void Fill(uint32_t segment, uint32_t n_records, uint64_t serial);
  // One that was taken is not needed, or could not be written.
  void Give(uint32_t segment);
  uint64_t serial(uint32_t segment) const;
  // One record of it less.
  void ReleaseRecord(uint32_t segment);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Segment {
    uint64_t serial;
    uint32_t n_records;  // 0: free, or taken
    uint32_t next_free;
  };

  const uint32_t n_segments_max_;
  AlignedBuffer<Segment> segments_;  // [n_segments_max]
  uint32_t n_grown_ = 0;
  uint32_t first_free_ = kNone;
};

}  // namespace lkv
