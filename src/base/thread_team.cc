#include "base/thread_team.h"

#include <signal.h>

#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lkv {
namespace {

// 100 us on Zen 5 (25 ns a pause; other cores 3 to 45 ns): longer than what one
// thread does alone between two phases of a step, 40 times shorter than a
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

// Phases are counted modulo 2^32; within one run nobody is half of that behind.
bool IsBefore(uint32_t phase, uint32_t other) {
  return static_cast<int32_t>(phase - other) < 0;
}

// Runs are counted, too: odd while one is open to members.
bool IsOpen(uint32_t run) { return run % 2 == 1; }

// How far the items of one member's share are taken, and in which phase: in one
// word, so that one compare-and-swap moves it on.
struct alignas(64) Cursor {
  static uint64_t Pack(uint32_t phase, uint32_t n_taken) {
    return uint64_t{phase} << 32 | n_taken;
  }
  static uint32_t Phase(uint64_t word) {
    return static_cast<uint32_t>(word >> 32);
  }
  static uint32_t Taken(uint64_t word) { return static_cast<uint32_t>(word); }

  std::atomic<uint64_t> word{0};
};

// On a cache line of its own, because some members poll one word while others
// write the next. Each at another place of its line: libstdc++ keeps those who
// sleep on words 64 bytes apart in one list, and a member asleep on one would
// make every change of the others a system call.
template <int kPlace>
struct alignas(64) PolledWord {
  uint32_t unused[kPlace] = {};
  std::atomic<uint32_t> word{0};
};

// Any number would do; from here a few phases lead past 2^32.
constexpr uint32_t kFirstPhase = UINT32_MAX - 20;

}  // namespace

struct ThreadTeam::State {
  explicit State(uint32_t n_threads) : cursors(n_threads) {
    phase = kFirstPhase;
  }

  PolledWord<1> run_line;
  PolledWord<2> inside_line;
  PolledWord<3> phase_line;
  std::atomic<uint32_t>& run = run_line.word;        // even: closed
  std::atomic<uint32_t>& inside = inside_line.word;  // workers perhaps in a run
  std::atomic<uint32_t>& phase = phase_line.word;    // under way; those before
                                                     // it are over
  alignas(64) std::atomic<size_t> n_done{0};         // items of that phase
  alignas(64) std::vector<Cursor> cursors;           // [n_threads]
  // Of the run: written while none is open.
  ErasedFn fn = nullptr;
  void* context = nullptr;
  uint32_t first_phase = 0;
  bool stop = false;
  std::vector<std::thread> workers;
};

namespace {

// While it lives, threads that begin are not asked to take the signals that
// users send: those belong to whoever waits for input. (Faults stay theirs.)
class WithoutUserSignals {
 public:
  WithoutUserSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      sigaddset(&signals, number);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~WithoutUserSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutUserSignals(const WithoutUserSignals&) = delete;
  WithoutUserSignals& operator=(const WithoutUserSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

ThreadTeam::ThreadTeam(uint32_t n_threads, Status* refusal)
    : n_threads_(n_threads), state_(std::make_unique<State>(n_threads)) {
  CHECK(n_threads >= 1 && n_threads <= kMaxThreads);
  state_->workers.reserve(n_threads - 1);
  const WithoutUserSignals in_workers;
  try {
    for (uint32_t i = 1; i < n_threads; ++i) {
      state_->workers.emplace_back([this, i] { WorkerLoop(i); });
    }
  } catch (const std::system_error& error) {
    CHECK(refusal != nullptr);
    *refusal = OutOfMemory(
        "threads: the system refuses thread " +
        std::to_string(state_->workers.size() + 2) + " of " +
        std::to_string(n_threads) + " (" + error.code().message() +
        "); use fewer threads or raise the limits of this process (ulimit -u, "
        "-v)");
  }
}

ThreadTeam::ThreadTeam(uint32_t n_threads) noexcept
    : ThreadTeam(n_threads, nullptr) {}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::Create(uint32_t n_threads) {
  Status refusal;
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(n_threads, &refusal));
  if (!refusal.ok()) return refusal;
  return team;
}

uint32_t ThreadTeam::DefaultThreads() {
  return std::min(UsableCores(), kMaxThreads);
}

ThreadTeam::~ThreadTeam() {
  state_->stop = true;
  state_->run.fetch_add(1);
  state_->run.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadTeam::RunErased(ErasedFn fn, void* context) noexcept {
  State& s = *state_;
  TeamMember me(this, 0, s.phase.load(std::memory_order_relaxed));
  if (n_threads_ == 1) {
    fn(context, me);
    return;
  }
  s.fn = fn;
  s.context = context;
  s.first_phase = me.phase_;
  // A share that was empty for long would otherwise be 2^31 phases behind.
  for (Cursor& cursor : s.cursors) {
    cursor.word.store(Cursor::Pack(me.phase_, 0), std::memory_order_relaxed);
  }
  s.run.fetch_add(1);
  s.run.notify_all();
  fn(context, me);
  // Closed first, counted then; a worker counts itself first and looks then.
  // So either it sees the closed run or is waited for here.
  s.run.fetch_add(1);
  for (uint32_t n; (n = s.inside.load()) != 0;) WaitForChange(s.inside, n);
}

void ThreadTeam::WorkerLoop(uint32_t index) {
  State& s = *state_;
  uint32_t seen = 0;
  for (;;) {
    WaitForChange(s.run, seen);
    seen = s.run.load();
    if (!IsOpen(seen)) continue;
    s.inside.fetch_add(1);
    seen = s.run.load();
    const bool stop = IsOpen(seen) && s.stop;
    if (IsOpen(seen) && !stop) {
      TeamMember me(this, index, s.first_phase);
      s.fn(s.context, me);
    }
    if (s.inside.fetch_sub(1) == 1) s.inside.notify_one();
    if (stop) return;
  }
}

size_t ThreadTeam::TakeFromShare(uint32_t owner, uint32_t phase,
                                 size_t n_items) {
  const Range share = RangeOf(n_items, owner, n_threads_);
  std::atomic<uint64_t>& word = state_->cursors[owner].word;
  uint64_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    if (IsBefore(phase, Cursor::Phase(seen))) return kNoItem;
    // Nobody has been here in this phase: nothing is taken.
    const uint32_t n_taken =
        Cursor::Phase(seen) == phase ? Cursor::Taken(seen) : 0;
    if (share.begin + n_taken == share.end) return kNoItem;
    // Relaxed: what the item reads was published by the end of the phase
    // before, which this member has seen.
    if (word.compare_exchange_weak(seen, Cursor::Pack(phase, n_taken + 1),
                                   std::memory_order_relaxed)) {
      return share.begin + n_taken;
    }
  }
}

size_t ThreadTeam::TakeItem(uint32_t index, uint32_t phase, size_t n_items) {
  const size_t item = TakeFromShare(index, phase, n_items);
  return item != kNoItem ? item : StealItem(index, phase, n_items);
}

size_t ThreadTeam::StealItem(uint32_t index, uint32_t phase, size_t n_items) {
  for (uint32_t i = 1; i < n_threads_; ++i) {
    const size_t item = TakeFromShare((index + i) % n_threads_, phase, n_items);
    if (item != kNoItem) return item;
  }
  return kNoItem;
}

void ThreadTeam::FinishPhase(uint32_t phase, size_t n_done, size_t n_items) {
  State& s = *state_;
  // acq_rel: the last one takes over what all others wrote, and publishes it
  // with the next phase.
  if (n_done > 0 &&
      s.n_done.fetch_add(n_done, std::memory_order_acq_rel) + n_done ==
          n_items) {
    s.n_done.store(0, std::memory_order_relaxed);
    // seq_cst: notify_all looks for sleepers by a plain read, which must not
    // pass this write.
    s.phase.store(phase + 1);
    s.phase.notify_all();
    return;
  }
  WaitForChange(s.phase, phase);
}

}  // namespace lkv
