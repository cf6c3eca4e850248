// Stopwatch: wall time since it was made, for measurements that are reported.
// Decisions never depend on it. Thread-compatible; 25 ns a reading.
#pragma once

#include <chrono>

namespace lkv {

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace lkv
