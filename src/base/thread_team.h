// ThreadTeam: a fixed set of threads that go through one function together,
// many thousand times a second, and share out its work item by item.
//
// A step of the model is one Run(). Inside it every member passes the same
// ForEach() calls, the phases; each item of a phase is done once, by whoever is
// free, and a phase is over when all its items are done. So a member that has
// lost its core to another process holds up nobody but the item it is at: it
// passes the phases that ended meanwhile in no time when it is back. Only the
// end of a Run() waits for who is still inside. (With barriers that all members
// must reach, each phase would wait for the member that has no core.)
//
// Items begin in equal shares, one after another in memory; who has finished
// its own takes from the others. Which member does an item is a matter of
// chance, so results must not depend on it: cut the work by its size, never by
// the number of members.
//
// Waiting spins briefly, because a phase of a busy team ends soon after its
// last item, then sleeps on a futex.
//
// Thread rule: one owner calls Run(); the members run inside it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "lookaheadkv/status.h"

namespace lkv {

class ThreadTeam;

// A half-open range of things.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// The things that item `item` of n_items deals with: n of them cut into equal
// ranges.
inline Range RangeOf(size_t n, size_t item, size_t n_items) {
  return {n * item / n_items, n * (item + 1) / n_items};
}

// Items for work on n_bytes of memory, about item_bytes each; at least one, at
// most n_max.
inline size_t CountItems(size_t n_bytes, size_t item_bytes, size_t n_max) {
  return std::clamp<size_t>(n_bytes / item_bytes, 1, n_max);
}

// One thread's place in the team while a Run() is under way.
class TeamMember {
 public:
  // For arrays with one entry per member: no two threads have the same.
  uint32_t index() const { return index_; }
  uint32_t n_members() const;
  // The items of a phase that this member does unless others are faster, in
  // order.
  Range ShareOf(size_t n_items) const {
    return RangeOf(n_items, index_, n_members());
  }
  // Whether item + 1 is what this member does after `item`, unless others are
  // faster: then it can prefetch for it.
  bool GoesOnAfter(size_t item, size_t n_items) const {
    const Range share = ShareOf(n_items);
    return share.begin <= item && item + 1 < share.end;
  }

  // One phase: calls fn(item) once for each item in [0, n_items), n_items <
  // 2^32, on any members, and returns when all are done. What items wrote is
  // visible after it returns. Every member must call it with the same n_items.
  //
  // A member may come late, when others are further on. So code outside of
  // items reads only what no item of this Run() writes.
  template <typename Fn>
  void ForEach(size_t n_items, Fn&& fn);

 private:
  friend class ThreadTeam;

  TeamMember(ThreadTeam* team, uint32_t index, uint32_t phase)
      : team_(team), index_(index), phase_(phase) {}

  ThreadTeam* team_;
  uint32_t index_;
  uint32_t phase_;  // the next one, as ThreadTeam counts them
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
  // As many as there are usable cores (base/machine.h), up to kMaxThreads.
  static uint32_t DefaultThreads();

  uint32_t n_threads() const { return n_threads_; }

  // Runs fn(TeamMember&) on the caller's thread and on all others that get a
  // core before the caller is through. Returns when nobody is inside any more.
  // Not reentrant. Allocates nothing. An exception out of fn ends the process:
  // the other members could not be told.
  template <typename Fn>
  void Run(Fn&& fn) {
    RunErased(
        [](void* context, TeamMember& me) {
          (*static_cast<std::remove_reference_t<Fn>*>(context))(me);
        },
        &fn);
  }

  // One phase of its own.
  template <typename Fn>
  void ForEach(size_t n_items, Fn&& fn) {
    Run([&](TeamMember& me) { me.ForEach(n_items, fn); });
  }

 private:
  friend class TeamMember;
  using ErasedFn = void (*)(void* context, TeamMember& me);
  struct State;
  static constexpr size_t kNoItem = SIZE_MAX;

  // Starts as many threads as the system allows. *refusal says when it refuses
  // one, and the team is then fit for its destructor only; without `refusal`
  // that ends the process.
  ThreadTeam(uint32_t n_threads, Status* refusal);

  void RunErased(ErasedFn fn, void* context) noexcept;
  void WorkerLoop(uint32_t index);

  // The next item of a phase for a member, or kNoItem.
  size_t TakeItem(uint32_t index, uint32_t phase, size_t n_items);
  // One item of another member's share.
  size_t StealItem(uint32_t index, uint32_t phase, size_t n_items);
  size_t TakeFromShare(uint32_t owner, uint32_t phase, size_t n_items);
  // A member has done n_done items of a phase and finds no more: returns when
  // the phase is over.
  void FinishPhase(uint32_t phase, size_t n_done, size_t n_items);

  const uint32_t n_threads_;
  std::unique_ptr<State> state_;
};

inline uint32_t TeamMember::n_members() const { return team_->n_threads(); }

template <typename Fn>
void TeamMember::ForEach(size_t n_items, Fn&& fn) {
  if (team_->n_threads() == 1) {
    for (size_t item = 0; item < n_items; ++item) fn(item);
    return;
  }
  if (n_items == 0) return;
  size_t n_done = 0;
  for (size_t item;
       (item = team_->TakeItem(index_, phase_, n_items)) != ThreadTeam::kNoItem;
       ++n_done) {
    fn(item);
  }
  team_->FinishPhase(phase_++, n_done, n_items);
}

}  // namespace lkv
