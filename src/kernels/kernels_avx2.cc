#include "kernels/avx2_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_page_masses.h"
#include "kernels/simd_rows.h"

namespace lkv {

void FillAvx2Kernels(KernelTable* table) {
  table->name = "avx2";
  AddRowKernels(table);
  table->page_sums = PageSums;
  table->page_masses = PageMasses;
  AddAvx2Matmul(table);
  AddAvx2Attention(table);
  AddAvx2Cold(table);
}

}  // namespace lkv
