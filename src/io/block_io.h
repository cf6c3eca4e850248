// Asynchronous reads and writes of one file, for who must never wait for a
// disk: requests are handed over, and what became of them is asked for later.
// OpenBlockIo (open_block_io.h) gives the implementation that works best here;
// one in memory that delays, fails, tears and flips is
// testing/memory_block_io.h.
//
// Every request that was taken is answered by exactly one completion that is
// final. Before it there may be one that is not: the request is *overdue*, its
// deadline has passed. Who waited for it is free to go on, but its memory
// belongs to the system until the final one.
//
// Short reads and writes are continued, interrupted ones repeated, up to a
// limit (pending_requests.h): a request is done whole or it has failed.
//
// Thread rule: thread-compatible. The thread that submits must outlive its
// requests. Destroying waits for all that the disk has begun, however long it
// takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lookaheadkv/status.h"

namespace lkv {

struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  // Comes back in the completion; requests under way should differ in it.
  uint64_t tag = 0;
  // Offset and length are multiples of the file's alignment, data of
  // kIoBlockBytes (io_buffer.h).
  uint64_t offset = 0;
  uint8_t* data = nullptr;
  uint32_t n_bytes = 0;
  // From its submission on; 0: none.
  uint32_t deadline_us = 0;
};

struct IoCompletion {
  enum class Outcome : uint8_t { kDone, kFailed, kOverdue };
  uint64_t tag = 0;
  Outcome outcome = Outcome::kDone;
  int error = 0;  // of kFailed: an errno; ENODATA: the file ends before

  bool is_final() const { return outcome != Outcome::kOverdue; }
};

class BlockIo {
 public:
  virtual ~BlockIo() = default;

  // Most requests under way.
  virtual uint32_t capacity() const = 0;
  virtual uint32_t n_pending() const = 0;

  // Hands over as many of `requests` as there is room for, from the front, with
  // one call of the system at most; returns how many. Never waits for the disk.
  virtual size_t Submit(std::span<const IoRequest> requests) = 0;
  // Fills `out` from the front, in no particular order, and returns how many.
  // No waiting; no system call while nothing has come. Requires !out.empty().
  virtual size_t Poll(std::span<IoCompletion> out) = 0;
  // Until Poll may have something to give, at most so long. Not for a thread
  // that decodes.
  virtual void Wait(uint32_t at_most_us) = 0;

  // On the file system, for this user. One system call.
  virtual Result<uint64_t> FreeBytes() const = 0;
};

}  // namespace lkv
