#include "gguf/truncation_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
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

// Puts zeros over [address, end of the slot's range). Only system calls.
bool ReplaceByZeros(Slot* slot, uintptr_t address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = address / page * page;
  void* zeros =
      mmap(reinterpret_cast<void*>(begin), slot->end - begin, PROT_READ,
           MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) return false;
  slot->is_torn = true;
  return true;
}

void OnBusError(int, siginfo_t* info, void*) {
  const bool is_access = info->si_code > 0;  // else sent by a process
  if (is_access) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    Slot* slot = FindSlot(address);
    if (slot != nullptr && ReplaceByZeros(slot, address)) return;
  }
  // An access is repeated and meets the handler from before.
  sigaction(SIGBUS, &handler_before, nullptr);
  if (!is_access) raise(SIGBUS);
}

void InstallHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGBUS, &action, &handler_before) == 0);
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
  if (--n_guards == 0) CHECK(sigaction(SIGBUS, &handler_before, nullptr) == 0);
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
