// The requests of a BlockIo that are under way: what is left of them, how often
// they were repeated, when they are due. Pure; the caller says what time it is.
//
// Thread-compatible. Allocates in its constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/block_io.h"

namespace lkv {

class PendingRequests {
 public:
  // Times that a request may be interrupted, put off or stopped short before it
  // has failed. Blocks of 512 bytes, one at a time, would be 512 for a segment
  // of 256 KiB; no disk does that.
  static constexpr uint32_t kRepetitionsMax = 64;

  explicit PendingRequests(uint32_t capacity);

  uint32_t capacity() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t n_pending() const { return n_pending_; }
  bool is_full() const { return n_pending_ == capacity(); }

  // Returns its slot, which is its own until it is finished. Requires room.
  uint32_t Add(const IoRequest& request, uint64_t now_us);
  // What is still to be read or written.
  const IoRequest& Rest(uint32_t slot) const { return slots_[slot].rest; }

  enum class Next { kFinished, kAgain };
  // `result`: bytes, or an errno below zero, of a call for Rest(slot).
  // kFinished: *completion says how, and the slot is free. kAgain: the call is
  // to be made once more.
  Next Advance(uint32_t slot, int64_t result, IoCompletion* completion);

  // Those whose deadline has passed, each once; as many as fit. O(1) while no
  // deadline has.
  size_t TakeOverdue(uint64_t now_us, std::span<IoCompletion> out);

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  struct Slot {
    IoRequest rest;
    uint64_t due_us = kNever;  // kNever, too, once it was said to be overdue
    uint32_t n_repetitions = 0;
    bool is_used = false;
  };

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t n_pending_ = 0;
  uint64_t first_due_us_ = kNever;  // of all, or earlier
};

}  // namespace lkv
