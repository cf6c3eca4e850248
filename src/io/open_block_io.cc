#include "io/open_block_io.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errno_text.h"
#include "io/io_buffer.h"
#include "io/local_file_io.h"
#include "io/thread_block_io.h"
#include "io/uring_block_io.h"

namespace lkv {
namespace {

// Sleeping in the disk they take no core.
constexpr uint32_t kThreads = 8;
constexpr uint32_t kSmallBlockBytes = 512;
constexpr uint32_t kProbeWaitUs = 10'000'000;

// Does one request and waits for it. Returns errno.
int Do(BlockIo& io, IoRequest request) {
  request.deadline_us = kProbeWaitUs;
  if (io.Submit({&request, 1}) != 1) return EBUSY;
  IoCompletion completion;
  // Once it has finished or is overdue.
  while (io.Poll({&completion, 1}) == 0) io.Wait(kProbeWaitUs);
  return completion.is_final() ? completion.error : ETIMEDOUT;
}

struct ProbeBuffers {
  IoBuffer written{2 * kIoBlockBytes};
  IoBuffer got{kIoBlockBytes};
};

// Writes two blocks, makes them safe, reads a part of them back that begins and
// ends at multiples of `alignment`. Returns errno; EIO when other bytes come.
int Probe(const ScratchFile& file, BlockIo& io, uint32_t alignment,
          ProbeBuffers& buffers) {
  uint8_t* const written = buffers.written.data();
  for (size_t i = 0; i < buffers.written.size(); ++i) {
    written[i] = static_cast<uint8_t>(i * 31 + i / 251);
  }
  const IoRequest write = {.kind = IoRequest::Kind::kWrite,
                           .data = written,
                           .n_bytes = 2 * kIoBlockBytes};
  if (const int error = Do(io, write); error != 0) return error;
  if (fdatasync(file.descriptor()) != 0) return errno;
  std::memset(buffers.got.data(), 0, kIoBlockBytes);
  const IoRequest read = {.kind = IoRequest::Kind::kRead,
                          .offset = kIoBlockBytes - alignment,
                          .data = buffers.got.data(),
                          .n_bytes = kIoBlockBytes};
  if (const int error = Do(io, read); error != 0) return error;
  const bool is_same = std::memcmp(buffers.got.data(), written + read.offset,
                                   kIoBlockBytes) == 0;
  return is_same ? 0 : EIO;
}

struct Tried {
  std::unique_ptr<BlockIo> io = nullptr;
  uint32_t alignment = 0;
  std::string refusal = {};  // why there is none
};

Tried Try(const ScratchFile& file, Result<std::unique_ptr<BlockIo>> opened) {
  if (!opened.ok()) return {.refusal = std::string(opened.status().message())};
  // Until io is gone a disk that does not answer may still write into them.
  ProbeBuffers buffers;
  std::unique_ptr<BlockIo> io = *std::move(opened);
  int error = 0;
  for (const uint32_t alignment : {kSmallBlockBytes, uint32_t{kIoBlockBytes}}) {
    error = Probe(file, *io, alignment, buffers);
    if (error == 0) return {.io = std::move(io), .alignment = alignment};
    if (error == ETIMEDOUT) break;
  }
  return {.refusal = ErrnoText(error)};
}

class Opening {
 public:
  Opening(const ScratchFile& file, const BlockIoOptions& options)
      : file_(file), options_(options) {}

  Tried TryUring() {
    return Try(file_, OpenUringBlockIo(file_, options_.capacity));
  }
  Tried TryThreads() {
    return Try(file_, OpenThreadBlockIo(file_, options_.capacity, kThreads));
  }

  // The better of the two that works. *description gets its name, and what is
  // wrong with the other.
  Tried TryBoth(std::string* description) {
    std::string not_the_ring;
    if (options_.method == BlockIoOptions::Method::kBest) {
      Tried ring = TryUring();
      *description = "io_uring";
      if (ring.io != nullptr) return ring;
      not_the_ring = " (" + ring.refusal + ")";
    }
    *description = std::to_string(kThreads) + " threads" + not_the_ring;
    return TryThreads();
  }

 private:
  const ScratchFile& file_;
  const BlockIoOptions& options_;
};

}  // namespace

Result<OpenedBlockIo> OpenBlockIo(Folder& folder,
                                  const BlockIoOptions& options) {
  Result<std::unique_ptr<ScratchFile>> file = ScratchFile::Create(folder);
  if (!file.ok()) return file.status();
  Opening opening(**file, options);
  std::string method;
  Tried best;
  std::string way = "past the page cache";
  if (const int error = (*file)->Set(ScratchFile::Cache::kPass); error == 0) {
    best = opening.TryBoth(&method);
  } else {
    best.refusal = ErrnoText(error);
  }
  if (best.io == nullptr) {
    way = "through the page cache (past it: " + best.refusal + ")";
    (*file)->Set(ScratchFile::Cache::kUse);
    best = opening.TryBoth(&method);
  }
  if (best.io == nullptr) {
    return IoError((*file)->path() + ": cannot be written and read back (" +
                   best.refusal +
                   "); check the disk and its free space or give another "
                   "folder");
  }
  if (ftruncate((*file)->descriptor(), 0) != 0) {
    return FileRefused((*file)->path(), "emptied", errno);
  }
  return OpenedBlockIo{.file = *std::move(file),
                       .io = std::move(best.io),
                       .read_alignment = best.alignment,
                       .description = method + ", " + way};
}

}  // namespace lkv
