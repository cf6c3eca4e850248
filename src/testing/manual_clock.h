// A clock that shows what the test sets.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace lkv {

class ManualClock final : public Clock {
 public:
  int64_t unix_seconds = 1'800'000'000;

  int64_t UnixSeconds() const override { return unix_seconds; }
};

}  // namespace lkv
