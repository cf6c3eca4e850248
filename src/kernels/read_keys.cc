#include "kernels/read_keys.h"

#include "kernels/int8_page.h"

namespace lkv {
namespace {

void ReadInt8Keys(const uint8_t* page, uint32_t head_dim, float* keys) {
  const auto* scales =
      reinterpret_cast<const uint16_t*>(page + Int8ScalesAt(head_dim));
  for (uint32_t d = 0; d < head_dim; ++d) {
    for (uint32_t slot = 0; slot < kPageTokens; ++slot) {
      const auto integer = static_cast<int8_t>(page[Int8KeyAt(slot, d)]);
      keys[d * kPageTokens + slot] = BF16ToF32(scales[slot]) * integer;
    }
  }
}

}  // namespace

void ReadKeys(KvType type, const uint8_t* page, uint32_t head_dim,
              const float* key_offset, float* keys) {
  const uint32_t n = head_dim * kPageTokens;
  const auto* halves = reinterpret_cast<const uint16_t*>(page);
  switch (type) {
    case KvType::kF16:
      for (uint32_t i = 0; i < n; ++i) keys[i] = F16ToF32(halves[i]);
      break;
    case KvType::kBF16:
      for (uint32_t i = 0; i < n; ++i) keys[i] = BF16ToF32(halves[i]);
      break;
    case KvType::kInt8:
      ReadInt8Keys(page, head_dim, keys);
      break;
  }
  if (key_offset == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) keys[i] += key_offset[i / kPageTokens];
}

}  // namespace lkv
