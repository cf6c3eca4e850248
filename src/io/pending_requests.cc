#include "io/pending_requests.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace lkv {
namespace {

bool IsWorthRepeating(int error) {
  return error == EINTR || error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

PendingRequests::PendingRequests(uint32_t capacity) : slots_(capacity) {
  free_.reserve(capacity);
  for (uint32_t slot = capacity; slot-- > 0;) free_.push_back(slot);
}

uint32_t PendingRequests::Add(const IoRequest& request, uint64_t now_us) {
  CHECK(!free_.empty());
  CHECK(request.n_bytes > 0);
  const uint32_t slot = free_.back();
  free_.pop_back();
  ++n_pending_;
  slots_[slot] = {.rest = request, .is_used = true};
  if (request.deadline_us != 0) {
    slots_[slot].due_us = now_us + request.deadline_us;
    first_due_us_ = std::min(first_due_us_, slots_[slot].due_us);
  }
  return slot;
}

PendingRequests::Next PendingRequests::Advance(uint32_t slot, int64_t result,
                                               IoCompletion* completion) {
  Slot& its = slots_[slot];
  CHECK(its.is_used);
  IoRequest& rest = its.rest;
  CHECK(result <= int64_t{rest.n_bytes});
  int error = 0;
  if (result > 0) {
    rest.offset += static_cast<uint64_t>(result);
    rest.data += result;
    rest.n_bytes -= static_cast<uint32_t>(result);
  } else if (result < 0) {
    error = static_cast<int>(-result);
  } else {
    error = rest.kind == IoRequest::Kind::kRead ? ENODATA : EIO;
  }
  const bool goes_on = error == 0 ? rest.n_bytes > 0 : IsWorthRepeating(error);
  if (goes_on && its.n_repetitions < kRepetitionsMax) {
    ++its.n_repetitions;
    return Next::kAgain;
  }
  if (goes_on && error == 0) error = EIO;  // bit by bit, without an end
  *completion = {.tag = rest.tag,
                 .outcome = error == 0 ? IoCompletion::Outcome::kDone
                                       : IoCompletion::Outcome::kFailed,
                 .error = error};
  its = {};
  free_.push_back(slot);
  --n_pending_;
  return Next::kFinished;
}

size_t PendingRequests::TakeOverdue(uint64_t now_us,
                                    std::span<IoCompletion> out) {
  if (now_us < first_due_us_) return 0;
  size_t n_out = 0;
  first_due_us_ = kNever;
  for (Slot& slot : slots_) {
    if (slot.due_us <= now_us && n_out < out.size()) {
      out[n_out++] = {.tag = slot.rest.tag,
                      .outcome = IoCompletion::Outcome::kOverdue};
      slot.due_us = kNever;
    }
    first_due_us_ = std::min(first_due_us_, slot.due_us);
  }
  return n_out;
}

}  // namespace lkv
