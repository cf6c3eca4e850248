// What time it is, behind a seam: decisions about age must be testable, and
// survive clocks that are wrong.
#pragma once

#include <cstdint>

namespace lkv {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since 1970. May jump, also backwards. Thread-safe.
  virtual int64_t UnixSeconds() const = 0;
};

// The clock of this machine.
const Clock& SystemClock();

}  // namespace lkv
