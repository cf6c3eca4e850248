// ThreadTeam: a fixed set of threads that run one function together, with a
// barrier, many thousand times a second.
//
// A step of the model is one Run(); inside it the members share out rows,
// heads and lanes by index and meet at barriers. Waiting spins briefly (a
// barrier of a busy team is over in 0.3 us), then sleeps on a futex: a team
// that only spins loses a scheduler tick (4 ms) per barrier as soon as another
// process wants the core.
//
// Thread rule: one owner calls Run(); the members run inside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "lookaheadkv/status.h"

namespace lkv {

class ThreadTeam;

// A half-open range of work items.
struct Share {
  size_t begin = 0;
  size_t end = 0;
};

// One thread's place in the team while a Run() is under way.
class TeamMember {
 public:
  TeamMember(ThreadTeam* team, uint32_t index) : team_(team), index_(index) {}

  uint32_t index() const { return index_; }
  uint32_t n_members() const;

  // Returns when every member has called it. What members wrote before is
  // visible to all after it.
  void Barrier();

  // This member's contiguous part of n items. Every item belongs to exactly
  // one member; the split depends on n and the team's size only.
  Share ShareOf(size_t n) const {
    return {n * index_ / n_members(), n * (index_ + 1) / n_members()};
  }

 private:
  ThreadTeam* team_;
  uint32_t index_;
};

class ThreadTeam {
 public:
  // Requires 1 <= n_threads <= kMaxThreads. Starts n_threads - 1 threads; the
  // caller of Run() is member 0. kOutOfMemory when the system refuses one.
  static Result<std::unique_ptr<ThreadTeam>> Create(uint32_t n_threads);
  // The same where nothing can be done about a refusal: it ends the process.
  explicit ThreadTeam(uint32_t n_threads) noexcept;
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  static constexpr uint32_t kMaxThreads = 256;

  uint32_t n_threads() const { return n_threads_; }

  // Runs fn(TeamMember&) on every thread and returns when all are done. Not
  // reentrant. Allocates nothing.
  template <typename Fn>
  void Run(Fn&& fn) {
    RunErased(
        [](void* context, TeamMember& me) {
          (*static_cast<std::remove_reference_t<Fn>*>(context))(me);
        },
        &fn);
  }

 private:
  friend class TeamMember;
  using ErasedFn = void (*)(void* context, TeamMember& me);
  struct State;

  enum class Started { kNone };
  ThreadTeam(uint32_t n_threads, Started);
  void StartWorkers();  // throws std::system_error

  void RunErased(ErasedFn fn, void* context);
  void Barrier();
  void WorkerLoop(uint32_t index);

  const uint32_t n_threads_;
  std::unique_ptr<State> state_;
};

inline uint32_t TeamMember::n_members() const { return team_->n_threads(); }
inline void TeamMember::Barrier() { team_->Barrier(); }

}  // namespace lkv
