// Which kernel set serves this process.
#pragma once

#include "kernels/kernel_table.h"
#include "lookaheadkv/status.h"

namespace lkv {

// The best set that this processor runs, or the one that the environment
// variable LKV_KERNELS names. kInvalidArgument when the processor does not run
// that one.
Result<const KernelTable*> ChooseKernels();

}  // namespace lkv
