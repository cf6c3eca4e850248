#include "kernels/avx2_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_cold.h"

namespace lkv {

void AddAvx2Cold(KernelTable* table) { AddColdKernels(table); }

}  // namespace lkv
