#include "io/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <climits>

namespace lkv {

uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t before) {
  // The library counts in int and takes a pointer to what it only reads.
  constexpr size_t kMostBytes = INT_MAX;
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kMostBytes);
    crc = crc32_iscsi(const_cast<unsigned char*>(bytes.data()),
                      static_cast<int>(n), crc);
    bytes = bytes.subspan(n);
  }
  return ~crc;
}

}  // namespace lkv
