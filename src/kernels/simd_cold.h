// The kernels of cold groups of a vector set. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/simd_attend_cold.h"
#include "kernels/simd_encode_cold.h"
#include "kernels/simd_scan_cold.h"

namespace lkv {
namespace {

inline void AddColdKernels(KernelTable* table) {
  table->encode_cold = EncodeCold;
  table->scan_cold = ScanCold;
  table->attend_cold = AttendCold;
}

}  // namespace
}  // namespace lkv
