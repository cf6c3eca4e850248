#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_attention.h"

namespace lkv {

void AddAvx512Attention(KernelTable* table) { AddAttentionKernels(table); }

}  // namespace lkv
