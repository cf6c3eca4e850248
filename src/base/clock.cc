#include "base/clock.h"

#include <time.h>

namespace lkv {
namespace {

class System final : public Clock {
 public:
  int64_t UnixSeconds() const override { return time(nullptr); }
};

}  // namespace

const Clock& SystemClock() {
  static const System clock;
  return clock;
}

}  // namespace lkv
