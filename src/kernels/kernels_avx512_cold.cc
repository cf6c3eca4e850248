#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_cold.h"

namespace lkv {

void AddAvx512Cold(KernelTable* table) { AddColdKernels(table); }

}  // namespace lkv
