#include "kernels/avx2_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_attention.h"

namespace lkv {

void AddAvx2Attention(KernelTable* table) { AddAttentionKernels(table); }

}  // namespace lkv
