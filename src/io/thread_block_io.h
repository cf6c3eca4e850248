// Reads and writes by threads that wait for the disk (pread, pwrite).
#pragma once

#include <cstdint>
#include <memory>

#include "io/block_io.h"
#include "io/scratch_file.h"

namespace lkv {

// kIo when the system refuses the threads. `file` outlives the result.
Result<std::unique_ptr<BlockIo>> OpenThreadBlockIo(const ScratchFile& file,
                                                   uint32_t capacity,
                                                   uint32_t n_threads);

}  // namespace lkv
