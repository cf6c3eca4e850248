// Time since a watch was made, for measurements that are reported. Decisions
// never depend on it. Thread-compatible.
#pragma once

#include <time.h>

#include <chrono>

namespace lkv {

// Wall time; 25 ns a reading.
class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

// What all threads of this process together have computed (waiting in a spin
// counts, sleeping does not): other processes that take the cores away change
// it little. A system call a reading.
class CpuStopwatch {
 public:
  double Seconds() const { return Now() - begin_; }

 private:
  static double Now() {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) +
           1e-9 * static_cast<double>(now.tv_nsec);
  }
  double begin_ = Now();
};

}  // namespace lkv
