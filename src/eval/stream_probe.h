// StreamProbe: how fast this machine reads memory just now, so that speeds of
// different runs and machines can be compared as shares of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"

namespace lkv {

// Reads n_bytes, a multiple of 64, once with all threads of the team and does
// nothing with them.
void StreamRead(ThreadTeam& team, const uint8_t* data, size_t n_bytes);

class StreamProbe {
 public:
  // Holds 256 MiB, well above the last-level caches of today's machines.
  explicit StreamProbe(ThreadTeam& team);

  // Reads the buffer three times with all threads; the median, in 10^9 bytes
  // per second. About 30 ms.
  double MeasureGigabytesPerSecond();

 private:
  ThreadTeam& team_;
  AlignedBuffer<uint8_t> buffer_;
};

}  // namespace lkv
