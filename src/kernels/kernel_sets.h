// How the kernel sets are put together; for the files of this folder only.
// Everyone else calls through the table that SelectKernels() returns, because
// a set may need instructions that the processor lacks.
#pragma once

#include "kernels/kernel_table.h"

namespace lkv {

// Each fills a whole table, name included.
void FillScalarKernels(KernelTable* table);
void FillAvx2Kernels(KernelTable* table);
void FillAvx512Kernels(KernelTable* table);

// A set spans four files: rows (and the function above), matrix products,
// attention and cold groups. Each of these fills the members of its file.
// AVX-512 has a fifth, for processors with bf16.
void AddScalarMatmul(KernelTable* table);
void AddScalarAttention(KernelTable* table);
void AddScalarCold(KernelTable* table);
void AddAvx2Matmul(KernelTable* table);
void AddAvx2Attention(KernelTable* table);
void AddAvx2Cold(KernelTable* table);
void AddAvx512Matmul(KernelTable* table);
void AddAvx512Attention(KernelTable* table);
void AddAvx512Cold(KernelTable* table);
void AddAvx512BF16Prefill(KernelTable* table);

}  // namespace lkv
