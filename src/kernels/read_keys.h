// Reads the keys of a page as numbers. No vector code: it serves what is asked
// for once in many tokens.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace lkv {

// keys [head_dim][kPageTokens]: of all slots of a page of the type (layouts in
// kernel_table.h), what was never written included. key_offset [head_dim] is
// added; nullptr = nothing. 2 us at head_dim 64.
void ReadKeys(KvType type, const uint8_t* page, uint32_t head_dim,
              const float* key_offset, float* keys);

}  // namespace lkv
