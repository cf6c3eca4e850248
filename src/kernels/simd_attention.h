// The attention functions of a vector set. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/simd_attend_decode.h"
#include "kernels/simd_attend_prefill.h"
#include "kernels/simd_slots.h"

namespace lkv {
namespace {

// Fills the members of a table that concern one element type.
template <KvType kType>
inline void AddAttentionKernelsFor(KernelTable* table) {
  const size_t type = static_cast<size_t>(kType);
  if constexpr (kType == KvType::kInt8) {
    table->write_slot[type] = WriteInt8Slot<QuantizeRow>;
  } else {
    table->write_slot[type] = WriteSlot<kType>;
  }
  table->attend_decode[type] = AttendDecode<kType>;
  table->attend_prefill[type] = AttendPrefill<kType>;
  table->value_stats[type] = ValueStats<kType>;
}

inline void AddAttentionKernels(KernelTable* table) {
  AddAttentionKernelsFor<KvType::kF16>(table);
  AddAttentionKernelsFor<KvType::kBF16>(table);
  AddAttentionKernelsFor<KvType::kInt8>(table);
  table->attend_prefill_mixed = AttendPrefill<KvType::kF16>;
  table->reduce_mass = ReduceMass;
}

}  // namespace
}  // namespace lkv
