#include "gguf/truncation_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

// One guarded range, as the handler sees it. end == 0: free.
struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> is_torn{false};
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

std::array<Slot, TruncationGuard::kMaxGuards> slots;

// Guards who takes and frees slots; the handler goes without.
std::mutex mutex;
size_t n_guards = 0;
// Whether the last guard ended while another handler stood over ours.
bool is_beneath = false;
// Read by the handler; written only where ours is not installed.
struct sigaction handler_before = {};

Slot* FindSlot(uintptr_t address) {
  for (Slot& slot : slots) {
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (address < end &&
        slot.begin.load(std::memory_order_relaxed) <= address) {
      return &slot;
    }
  }
  return nullptr;
}

// Puts zeros over [address, end of the slot's range), having said so: no thread
// may read a zero that IsTorn() does not know of. Only system calls.
bool ReplaceByZeros(Slot* slot, uintptr_t address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = address / page * page;
  slot->is_torn = true;
  void* zeros =
      mmap(reinterpret_cast<void*>(begin), slot->end - begin, PROT_READ,
           MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return zeros != MAP_FAILED;
}

// Does with a signal what had been done without us.
void PassOn(int signal_number, siginfo_t* info, void* context) {
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
    handler_before.sa_sigaction(signal_number, info, context);
    return;
  }
  const bool is_access = info->si_code > 0;  // else sent by a process
  if (handler_before.sa_handler == SIG_IGN && !is_access) return;
  if (handler_before.sa_handler != SIG_DFL &&
      handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(signal_number);
    return;
  }
  // Ends the process: an access, which cannot be ignored, is repeated.
  signal(signal_number, SIG_DFL);
  if (!is_access) raise(signal_number);
}

void OnBusError(int signal_number, siginfo_t* info, void* context) {
  const int errno_before = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Slot* slot = info->si_code > 0 ? FindSlot(address) : nullptr;
  if (slot == nullptr || !ReplaceByZeros(slot, address)) {
    PassOn(signal_number, info, context);
  }
  errno = errno_before;
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         action.sa_sigaction == OnBusError;
}

// Whether a handler that was not there before ours is taken to stand over it.
bool IsNewFunction(const struct sigaction& action) {
  return action.sa_sigaction != handler_before.sa_sigaction &&
         ((action.sa_flags & SA_SIGINFO) != 0 ||
          (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN));
}

struct sigaction CurrentHandler() {
  struct sigaction now = {};
  CHECK(sigaction(SIGBUS, nullptr, &now) == 0);
  return now;
}

void InstallHandler() {
  const struct sigaction now = CurrentHandler();
  // One that stands over ours passes on to it: over it, ours would lead back.
  const bool is_reached = IsOurs(now) || (is_beneath && IsNewFunction(now));
  is_beneath = false;
  if (is_reached) return;
  handler_before = now;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | (now.sa_flags & (SA_ONSTACK | SA_RESTART));
  action.sa_mask = now.sa_mask;
  CHECK(sigaction(SIGBUS, &action, nullptr) == 0);
}

void RemoveHandler() {
  is_beneath = !IsOurs(CurrentHandler());
  if (!is_beneath) CHECK(sigaction(SIGBUS, &handler_before, nullptr) == 0);
}

}  // namespace

std::optional<TruncationGuard> TruncationGuard::Create(
    std::span<const uint8_t> range) {
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < kMaxGuards; ++i) {
    Slot& slot = slots[i];
    if (slot.end != 0) continue;
    if (n_guards++ == 0) InstallHandler();
    slot.begin = reinterpret_cast<uintptr_t>(range.data());
    slot.is_torn = false;
    slot.end = slot.begin + range.size();
    return TruncationGuard(i);
  }
  return std::nullopt;
}

TruncationGuard::~TruncationGuard() {
  if (slot_ == kNone) return;
  const std::lock_guard lock(mutex);
  slots[slot_].end = 0;
  if (--n_guards == 0) RemoveHandler();
}

TruncationGuard::TruncationGuard(TruncationGuard&& other) noexcept
    : slot_(std::exchange(other.slot_, kNone)) {}

TruncationGuard& TruncationGuard::operator=(TruncationGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

bool TruncationGuard::IsTorn() const {
  CHECK(slot_ != kNone);
  return slots[slot_].is_torn;
}

}  // namespace lkv
