// Microseconds since some moment, never backwards, for deadlines. 25 ns.
#pragma once

#include <chrono>
#include <cstdint>

namespace lkv {

inline uint64_t MonotonicUs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace lkv
