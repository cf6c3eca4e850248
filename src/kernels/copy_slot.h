// Copies a cached token from one slot to another. No arithmetic: the same for
// every kernel set.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace lkv {

// Key and value of slot `from_slot` of a page of the type, with their scales if
// it has any; layouts in kernel_table.h. The pages may be one. 60 ns at
// head_dim 64.
void CopySlot(KvType type, uint32_t head_dim, const uint8_t* from,
              uint32_t from_slot, uint8_t* to, uint32_t to_slot);

}  // namespace lkv
