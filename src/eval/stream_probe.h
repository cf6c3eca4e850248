// StreamProbe: how fast this machine reads memory just now, so that speeds of
// different runs and machines can be compared as shares of it.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"

namespace lkv {

class StreamProbe {
 public:
  // Holds 256 MiB, well above the last-level caches of today's machines.
  explicit StreamProbe(uint32_t n_threads);

  // Reads the buffer once with all threads; 10^9 bytes per second. About 10 ms.
  double MeasureGigabytesPerSecond();

 private:
  ThreadTeam team_;
  AlignedBuffer<uint64_t> buffer_;
  // Where the sums go, so that no read can be left out.
  AlignedBuffer<uint64_t> sums_;  // [item, one cache line]
};

}  // namespace lkv
