#include "io/uring_block_io.h"

#include <liburing.h>

#include <cerrno>

#include "base/check.h"
#include "base/errno_text.h"
#include "io/monotonic_us.h"
#include "io/pending_requests.h"

namespace lkv {
namespace {

class UringBlockIo final : public BlockIo {
 public:
  UringBlockIo(const ScratchFile& file, uint32_t capacity, const io_uring& ring)
      : file_(file), pending_(capacity), ring_(ring) {}
  ~UringBlockIo() override;

  uint32_t capacity() const override { return pending_.capacity(); }
  uint32_t n_pending() const override { return pending_.n_pending(); }
  size_t Submit(std::span<const IoRequest> requests) override;
  size_t Poll(std::span<IoCompletion> out) override;
  void Wait(uint32_t at_most_us) override;
  Result<uint64_t> FreeBytes() const override { return file_.FreeBytes(); }

 private:
  void Prepare(uint32_t slot);
  void HandOver();

  const ScratchFile& file_;
  PendingRequests pending_;
  io_uring ring_;
};

UringBlockIo::~UringBlockIo() {
  IoCompletion ignored[8];
  while (n_pending() > 0) {
    constexpr uint32_t kSecond = 1'000'000;
    Wait(kSecond);
    Poll(ignored);
  }
  io_uring_queue_exit(&ring_);
}

void UringBlockIo::Prepare(uint32_t slot) {
  const IoRequest& rest = pending_.Rest(slot);
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  // The ring has as many entries as there are slots, and each is submitted
  // before the call ends.
  CHECK(entry != nullptr);
  if (rest.kind == IoRequest::Kind::kRead) {
    io_uring_prep_read(entry, file_.descriptor(), rest.data, rest.n_bytes,
                       rest.offset);
  } else {
    io_uring_prep_write(entry, file_.descriptor(), rest.data, rest.n_bytes,
                        rest.offset);
    io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
  }
  io_uring_sqe_set_data64(entry, slot);
}

// What the kernel does not take now (-EAGAIN, -EBUSY, -EINTR) stays in the ring
// and goes with the next call; Poll makes one.
void UringBlockIo::HandOver() { io_uring_submit(&ring_); }

size_t UringBlockIo::Submit(std::span<const IoRequest> requests) {
  const uint64_t now_us = MonotonicUs();
  size_t n_taken = 0;
  while (n_taken < requests.size() && !pending_.is_full()) {
    Prepare(pending_.Add(requests[n_taken++], now_us));
  }
  if (n_taken > 0) HandOver();
  return n_taken;
}

size_t UringBlockIo::Poll(std::span<IoCompletion> out) {
  CHECK(!out.empty());
  size_t n_out = pending_.TakeOverdue(MonotonicUs(), out);
  io_uring_cqe* entry = nullptr;
  while (n_out < out.size() && io_uring_peek_cqe(&ring_, &entry) == 0) {
    const auto slot = static_cast<uint32_t>(io_uring_cqe_get_data64(entry));
    const int result = entry->res;
    io_uring_cqe_seen(&ring_, entry);
    if (pending_.Advance(slot, result, &out[n_out]) ==
        PendingRequests::Next::kFinished) {
      ++n_out;
    } else {
      Prepare(slot);
    }
  }
  if (io_uring_sq_ready(&ring_) > 0) HandOver();
  return n_out;
}

void UringBlockIo::Wait(uint32_t at_most_us) {
  if (n_pending() == 0) return;
  __kernel_timespec limit = {.tv_sec = at_most_us / 1'000'000,
                             .tv_nsec = (at_most_us % 1'000'000) * 1'000};
  io_uring_cqe* entry = nullptr;
  io_uring_wait_cqe_timeout(&ring_, &entry, &limit);
}

// Asks the kernel to finish requests when this thread calls it or next polls,
// not to interrupt what it computes (Linux 5.19); without that where it is
// older.
int OpenRing(uint32_t capacity, io_uring* ring) {
  const int error = io_uring_queue_init(
      capacity, ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
  return error == -EINVAL ? io_uring_queue_init(capacity, ring, 0) : error;
}

}  // namespace

Result<std::unique_ptr<BlockIo>> OpenUringBlockIo(const ScratchFile& file,
                                                  uint32_t capacity) {
  io_uring ring = {};
  if (const int error = -OpenRing(capacity, &ring); error != 0) {
    return IoError("io_uring: the system refuses it (" + ErrnoText(error) +
                   "); allow it in the container's seccomp profile and in "
                   "kernel.io_uring_disabled");
  }
  // Waiting with a limit would take entries of its own (before Linux 5.11).
  if ((ring.features & IORING_FEAT_EXT_ARG) == 0) {
    io_uring_queue_exit(&ring);
    return IoError(
        "io_uring: this kernel is too old for it; use Linux 5.11 or "
        "newer");
  }
  return std::unique_ptr<BlockIo>(new UringBlockIo(file, capacity, ring));
}

}  // namespace lkv
