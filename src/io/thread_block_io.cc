#include "io/thread_block_io.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "io/monotonic_us.h"
#include "io/pending_requests.h"

namespace lkv {
namespace {

// A queue of fixed capacity. Thread-compatible.
template <typename T>
class Ring {
 public:
  explicit Ring(uint32_t capacity) : items_(capacity) {}
  bool empty() const { return n_ == 0; }
  void Push(T item) {
    CHECK(n_ < items_.size());
    items_[(first_ + n_++) % items_.size()] = item;
  }
  T Pop() {
    const T item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --n_;
    return item;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0;
  size_t n_ = 0;
};

// Threads started meanwhile get no signals: those are for the program's own.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

class ThreadBlockIo final : public BlockIo {
 public:
  ThreadBlockIo(const ScratchFile& file, uint32_t capacity)
      : file_(file), pending_(capacity), queue_(capacity), results_(capacity) {}
  ~ThreadBlockIo() override;
  // May throw std::system_error.
  void Start(uint32_t n_threads);

  uint32_t capacity() const override { return pending_.capacity(); }
  uint32_t n_pending() const override { return pending_.n_pending(); }
  size_t Submit(std::span<const IoRequest> requests) override;
  size_t Poll(std::span<IoCompletion> out) override;
  void Wait(uint32_t at_most_us) override;
  Result<uint64_t> FreeBytes() const override { return file_.FreeBytes(); }

 private:
  struct Job {
    uint32_t slot;
    IoRequest request;
  };
  struct JobResult {
    uint32_t slot;
    int64_t result;  // as of PendingRequests::Advance
  };
  void Work();
  int64_t Do(const IoRequest& request) const;

  const ScratchFile& file_;
  PendingRequests pending_;
  std::mutex mutex_;
  std::condition_variable has_job_;
  std::condition_variable has_result_;
  // Guarded by mutex_.
  Ring<Job> queue_;
  Ring<JobResult> results_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

void ThreadBlockIo::Start(uint32_t n_threads) {
  const WithoutSignals without_signals;
  threads_.reserve(n_threads);
  for (uint32_t i = 0; i < n_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

// Ends what was begun; what still waits is not begun any more.
ThreadBlockIo::~ThreadBlockIo() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadBlockIo::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_job_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
    if (is_ending_) return;
    const Job job = queue_.Pop();
    lock.unlock();
    const int64_t result = Do(job.request);
    lock.lock();
    results_.Push({job.slot, result});
    has_result_.notify_one();
  }
}

int64_t ThreadBlockIo::Do(const IoRequest& request) const {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t n =
      request.kind == IoRequest::Kind::kRead
          ? pread(file_.descriptor(), request.data, request.n_bytes, offset)
          : pwrite(file_.descriptor(), request.data, request.n_bytes, offset);
  return n < 0 ? -errno : n;
}

size_t ThreadBlockIo::Submit(std::span<const IoRequest> requests) {
  const uint64_t now_us = MonotonicUs();
  size_t n_taken = 0;
  {
    const std::lock_guard lock(mutex_);
    while (n_taken < requests.size() && !pending_.is_full()) {
      const IoRequest& request = requests[n_taken++];
      queue_.Push({pending_.Add(request, now_us), request});
    }
  }
  // A call for each thread that is woken, not for each request.
  for (size_t i = 0; i < n_taken && i < threads_.size(); ++i) {
    has_job_.notify_one();
  }
  return n_taken;
}

size_t ThreadBlockIo::Poll(std::span<IoCompletion> out) {
  CHECK(!out.empty());
  size_t n_out = pending_.TakeOverdue(MonotonicUs(), out);
  const std::lock_guard lock(mutex_);
  while (n_out < out.size() && !results_.empty()) {
    const JobResult done = results_.Pop();
    if (pending_.Advance(done.slot, done.result, &out[n_out]) ==
        PendingRequests::Next::kFinished) {
      ++n_out;
    } else {
      queue_.Push({done.slot, pending_.Rest(done.slot)});
      has_job_.notify_one();
    }
  }
  return n_out;
}

void ThreadBlockIo::Wait(uint32_t at_most_us) {
  if (n_pending() == 0) return;
  std::unique_lock lock(mutex_);
  has_result_.wait_for(lock, std::chrono::microseconds(at_most_us),
                       [&] { return !results_.empty(); });
}

}  // namespace

Result<std::unique_ptr<BlockIo>> OpenThreadBlockIo(const ScratchFile& file,
                                                   uint32_t capacity,
                                                   uint32_t n_threads) {
  CHECK(n_threads > 0);
  auto io = std::make_unique<ThreadBlockIo>(file, capacity);
  try {
    io->Start(n_threads);
  } catch (const std::system_error& error) {
    return IoError("threads that read the disk: the system refuses " +
                   std::to_string(n_threads) + " (" + error.what() +
                   "); raise the limit on threads");
  }
  return std::unique_ptr<BlockIo>(std::move(io));
}

}  // namespace lkv
