#include "kernels/copy_slot.h"

#include <cstring>

#include "kernels/int8_page.h"

namespace lkv {
namespace {

void CopyHalves(uint32_t head_dim, const uint16_t* from, uint32_t from_slot,
                uint16_t* to, uint32_t to_slot) {
  for (uint32_t d = 0; d < head_dim; ++d) {
    to[d * kPageTokens + to_slot] = from[d * kPageTokens + from_slot];
  }
  const size_t values = size_t{kPageTokens} * head_dim;
  std::memmove(to + values + size_t{to_slot} * head_dim,
               from + values + size_t{from_slot} * head_dim,
               head_dim * sizeof(uint16_t));
}

void CopyBytes(uint32_t head_dim, const uint8_t* from, uint32_t from_slot,
               uint8_t* to, uint32_t to_slot) {
  for (uint32_t d = 0; d < head_dim; ++d) {
    to[Int8KeyAt(to_slot, d)] = from[Int8KeyAt(from_slot, d)];
    to[Int8ValueAt(head_dim, to_slot, d)] =
        from[Int8ValueAt(head_dim, from_slot, d)];
  }
  const size_t scales = Int8ScalesAt(head_dim);
  for (uint32_t part = 0; part < 2; ++part) {  // the key's, the value's
    const size_t part_at = scales + part * kPageTokens * sizeof(uint16_t);
    std::memmove(to + part_at + to_slot * sizeof(uint16_t),
                 from + part_at + from_slot * sizeof(uint16_t),
                 sizeof(uint16_t));
  }
}

}  // namespace

void CopySlot(KvType type, uint32_t head_dim, const uint8_t* from,
              uint32_t from_slot, uint8_t* to, uint32_t to_slot) {
  if (type == KvType::kInt8) {
    CopyBytes(head_dim, from, from_slot, to, to_slot);
  } else {
    CopyHalves(head_dim, reinterpret_cast<const uint16_t*>(from), from_slot,
               reinterpret_cast<uint16_t*>(to), to_slot);
  }
}

}  // namespace lkv
