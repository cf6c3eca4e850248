#include "base/thread_team.h"

#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lkv {
namespace {

// 100 us on Zen 5 (25 ns a pause; other cores 3 to 45 ns): longer than what one
// thread does alone between two barriers of a step, 40 times shorter than a
// scheduler tick.
constexpr int kSpins = 4000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns once word != seen. Spins, then sleeps until notified.
void WaitForChange(const std::atomic<uint32_t>& word, uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != seen) return;
    Pause();
  }
  while (word.load(std::memory_order_acquire) == seen) {
    word.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace

struct ThreadTeam::State {
  // Each on its own cache line: workers poll `generation` while others write
  // `arrived`.
  alignas(64) std::atomic<uint32_t> generation{0};  // counts Run() calls
  alignas(64) std::atomic<uint32_t> arrived{0};     // members at the barrier
  alignas(64) std::atomic<uint32_t> phase{0};       // counts finished barriers
  ErasedFn fn = nullptr;
  void* context = nullptr;
  bool stop = false;
  std::vector<std::thread> workers;
};

ThreadTeam::ThreadTeam(uint32_t n_threads, Started)
    : n_threads_(n_threads), state_(std::make_unique<State>()) {
  CHECK(n_threads >= 1 && n_threads <= kMaxThreads);
}

ThreadTeam::ThreadTeam(uint32_t n_threads) noexcept
    : ThreadTeam(n_threads, Started::kNone) {
  StartWorkers();
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::Create(uint32_t n_threads) {
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(n_threads, Started::kNone));
  try {
    team->StartWorkers();
  } catch (const std::system_error& error) {
    return OutOfMemory(
        "threads: the system refuses thread " +
        std::to_string(team->state_->workers.size() + 2) + " of " +
        std::to_string(n_threads) + " (" + error.code().message() +
        "); use fewer threads or raise the limits of this process (ulimit -u, "
        "-v)");
  }
  return team;
}

void ThreadTeam::StartWorkers() {
  state_->workers.reserve(n_threads_ - 1);
  for (uint32_t i = 1; i < n_threads_; ++i) {
    state_->workers.emplace_back([this, i] { WorkerLoop(i); });
  }
}

ThreadTeam::~ThreadTeam() {
  state_->stop = true;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadTeam::RunErased(ErasedFn fn, void* context) {
  state_->fn = fn;
  state_->context = context;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  TeamMember me(this, 0);
  fn(context, me);
  Barrier();
}

void ThreadTeam::WorkerLoop(uint32_t index) {
  TeamMember me(this, index);
  for (uint32_t seen = 0;; ++seen) {
    WaitForChange(state_->generation, seen);
    if (state_->stop) return;
    state_->fn(state_->context, me);
    Barrier();
  }
}

void ThreadTeam::Barrier() {
  if (n_threads_ == 1) return;
  State& s = *state_;
  const uint32_t phase = s.phase.load(std::memory_order_relaxed);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    s.arrived.store(0, std::memory_order_relaxed);
    s.phase.store(phase + 1, std::memory_order_release);
    s.phase.notify_all();
  } else {
    WaitForChange(s.phase, phase);
  }
}

}  // namespace lkv
