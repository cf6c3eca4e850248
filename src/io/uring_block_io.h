// Reads and writes through a ring that the kernel shares (io_uring).
//
// Reads begin in the call that submits them, 3 to 4 us each in a batch: begun
// by threads of the kernel they would hold the caller 0.5 us, but cost a
// quarter more in all, of cores that attention wants. Writes, which may have to
// wait for locks of the file system, are begun by a thread of the kernel.
// Registered memory would make a read 0.4 us cheaper; it is not worth locking
// pages for that.
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
