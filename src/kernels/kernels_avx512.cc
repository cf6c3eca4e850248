#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_page_masses.h"
#include "kernels/simd_rows.h"

namespace lkv {

void FillAvx512Kernels(KernelTable* table) {
  table->name = "avx512";
  AddRowKernels(table);
  table->page_sums = PageSums;
  table->page_masses = PageMasses;
  AddAvx512Matmul(table);
  AddAvx512Attention(table);
  AddAvx512Cold(table);
}

}  // namespace lkv
