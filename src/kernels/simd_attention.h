// The attention functions of a vector set. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/simd_attend_decode.h"
#include "kernels/simd_attend_prefill.h"
#include "kernels/simd_slots.h"

namespace lkv {
namespace {

// Fills the members of a table that concern one element type.
template <Half kHalf>
inline void AddAttentionKernelsFor(KernelTable* table) {
  const size_t type = static_cast<size_t>(kHalf);
  table->write_slot[type] = WriteSlot<kHalf>;
  table->attend_decode[type] = AttendDecode<kHalf>;
  table->attend_prefill[type] = AttendPrefill<kHalf>;
  table->value_stats[type] = ValueStats<kHalf>;
}

inline void AddAttentionKernels(KernelTable* table) {
  AddAttentionKernelsFor<Half::kF16>(table);
  AddAttentionKernelsFor<Half::kBF16>(table);
  table->reduce_mass = ReduceMass;
}

}  // namespace
}  // namespace lkv
