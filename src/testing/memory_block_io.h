// A file in memory behind BlockIo, which answers late and in any order, fails,
// stops short, tears writes and flips bits, as a seed says.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "io/block_io.h"
#include "io/pending_requests.h"

namespace lkv {

class MemoryBlockIo final : public BlockIo {
 public:
  // Of each call of the device, in per cent.
  struct Faults {
    uint32_t fails = 0;           // nothing done, EIO
    uint32_t interrupted = 0;     // EINTR
    uint32_t stops_short = 0;     // in the middle, at a multiple of 512
    uint32_t tears_write = 0;     // half is written, all is said to be
    uint32_t flips_bit = 0;       // of what was read
    uint32_t polls_late_max = 0;  // not a share: answered at 0 to so many polls
  };
  Faults faults;
  uint64_t capacity_bytes = UINT64_MAX;  // beyond: ENOSPC
  uint64_t now_us = 0;                   // for deadlines
  bool is_stuck = false;                 // answers nothing
  // Counted.
  uint64_t n_reads = 0;
  uint64_t n_writes = 0;
  uint64_t n_flipped = 0;
  uint64_t n_torn = 0;

  MemoryBlockIo(uint32_t capacity, uint64_t seed)
      : pending_(capacity), random_(seed) {
    calls_.reserve(capacity);
  }

  std::vector<uint8_t>& bytes() { return bytes_; }

  uint32_t capacity() const override { return pending_.capacity(); }
  uint32_t n_pending() const override { return pending_.n_pending(); }
  size_t Submit(std::span<const IoRequest> requests) override {
    size_t n_taken = 0;
    while (n_taken < requests.size() && !pending_.is_full()) {
      const IoRequest& request = requests[n_taken++];
      calls_.push_back({pending_.Add(request, now_us), Late()});
      ++(request.kind == IoRequest::Kind::kRead ? n_reads : n_writes);
    }
    return n_taken;
  }
  size_t Poll(std::span<IoCompletion> out) override {
    size_t n_out = pending_.TakeOverdue(now_us, out);
    if (is_stuck) return n_out;
    for (size_t i = 0; i < calls_.size() && n_out < out.size();) {
      if (calls_[i].polls_left > 0) {
        --calls_[i++].polls_left;
        continue;
      }
      const uint32_t slot = calls_[i].slot;
      if (pending_.Advance(slot, Call(pending_.Rest(slot)), &out[n_out]) ==
          PendingRequests::Next::kFinished) {
        ++n_out;
        calls_[i] = calls_.back();
        calls_.pop_back();
      } else {
        calls_[i].polls_left = Late();
      }
    }
    return n_out;
  }
  void Wait(uint32_t at_most_us) override { now_us += at_most_us; }
  Result<uint64_t> FreeBytes() const override {
    return capacity_bytes - std::min<uint64_t>(capacity_bytes, bytes_.size());
  }

 private:
  struct PendingCall {
    uint32_t slot;
    uint32_t polls_left;
  };

  bool Happens(uint32_t per_cent) { return random_() % 100 < per_cent; }
  uint32_t Late() {
    return static_cast<uint32_t>(random_() % (faults.polls_late_max + 1));
  }
  int64_t Call(const IoRequest& rest) {
    if (Happens(faults.interrupted)) return -EINTR;
    if (Happens(faults.fails)) return -EIO;
    uint32_t n = rest.n_bytes;
    if (n > 512 && Happens(faults.stops_short)) {
      n = static_cast<uint32_t>(1 + random_() % (n / 512)) * 512;
    }
    return rest.kind == IoRequest::Kind::kRead ? Read(rest, n) : Write(rest, n);
  }
  int64_t Read(const IoRequest& rest, uint32_t n) {
    if (rest.offset >= bytes_.size()) return 0;
    n = static_cast<uint32_t>(
        std::min<uint64_t>(n, bytes_.size() - rest.offset));
    std::memcpy(rest.data, &bytes_[rest.offset], n);
    if (Happens(faults.flips_bit)) {
      ++n_flipped;
      rest.data[random_() % n] ^= static_cast<uint8_t>(1 << random_() % 8);
    }
    return n;
  }
  int64_t Write(const IoRequest& rest, uint32_t n) {
    if (rest.offset + n > capacity_bytes) return -ENOSPC;
    if (bytes_.size() < rest.offset + n) bytes_.resize(rest.offset + n);
    const bool is_torn = Happens(faults.tears_write);
    if (is_torn) ++n_torn;
    std::memcpy(&bytes_[rest.offset], rest.data, is_torn ? n / 2 : n);
    return n;
  }

  PendingRequests pending_;
  std::vector<PendingCall> calls_;
  std::vector<uint8_t> bytes_;
  std::mt19937_64 random_;
};

}  // namespace lkv
