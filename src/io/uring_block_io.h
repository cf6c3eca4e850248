// Reads and writes through a ring that the kernel shares (io_uring).
//
// Reads begin in the call that submits them; writes, which may have to wait for
// locks of the file system, are begun by a thread of the kernel.
#pragma once

#include <cstdint>
#include <memory>

#include "io/block_io.h"
#include "io/scratch_file.h"

namespace lkv {

// kIo, with the kernel's reason, where it has no such rings or denies them.
// `file` outlives the result.
Result<std::unique_ptr<BlockIo>> OpenUringBlockIo(const ScratchFile& file,
                                                  uint32_t capacity);

}  // namespace lkv
