// TruncationGuard: survives a mapped file that another process truncates (a
// download that starts again, a full disk) instead of ending with SIGBUS.
//
// While a guard lives, a handler answers SIGBUS inside its range: it notes the
// loss, puts zeros in the place of everything from the missing page on, and the
// reader goes on. Whoever read asks IsTorn() before believing what it read.
// Other bus errors go to the handler that was there before, which is called
// from ours, with its own mask; without one they end the process. A handler
// that is installed over ours must pass on to it what is not its own; the end
// of the last guard leaves it there, and else puts the earlier one back.
//
// Thread rule: Create and the end of a guard from any thread, one at a time
// inside; the range may be read by any threads. The handler costs nothing until
// it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace lkv {

class TruncationGuard {
 public:
  // Most guards at the same time: parts of split models.
  static constexpr size_t kMaxGuards = 1024;

  // Guards a read-only mapping, which must live longer. Empty: too many.
  static std::optional<TruncationGuard> Create(std::span<const uint8_t> range);

  ~TruncationGuard();
  TruncationGuard(TruncationGuard&& other) noexcept;
  TruncationGuard& operator=(TruncationGuard&& other) noexcept;

  // True once a part of the range was found missing.
  bool IsTorn() const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  explicit TruncationGuard(size_t slot) : slot_(slot) {}

  size_t slot_;  // in the table that the handler reads
};

}  // namespace lkv
