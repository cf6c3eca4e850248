// The fastest asynchronous I/O that works here, found by doing it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/block_io.h"
#include "io/folder.h"
#include "io/scratch_file.h"

namespace lkv {

struct BlockIoOptions {
  // As Mooncake found, too: a disk is busy with 32 requests.
  uint32_t capacity = 32;
  enum class Method { kBest, kThreads };
  Method method = Method::kBest;
};

struct OpenedBlockIo {
  std::unique_ptr<ScratchFile> file;  // outlives io
  std::unique_ptr<BlockIo> io;
  // What offsets and lengths of reads are multiples of: 512 where the disk
  // takes that, else kIoBlockBytes. Writes are in whole kIoBlockBytes.
  uint32_t read_alignment = 0;
  // For people: what is in use, and why not what would be better. "io_uring,
  // past the page cache".
  std::string description;
};

// A new scratch file in `folder`, and what reads and writes it: of io_uring and
// threads, past the page cache or through it, the best that really writes a
// block, makes it safe and reads it back. Blocks: a few writes of the disk.
// kIo when none does.
Result<OpenedBlockIo> OpenBlockIo(Folder& folder,
                                  const BlockIoOptions& options);

}  // namespace lkv
