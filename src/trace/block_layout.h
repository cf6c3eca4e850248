// How the blocks of a trace file are framed: shared by writer and reader.
//
//   block     u32 magic, u32 crc, u64 payload_bytes, payload
//             crc: CRC-32C of payload_bytes and payload
//   end mark  u64 offset of the index block, u32 CRC-32C of it, u32 magic
#pragma once

#include <cstddef>
#include <cstdint>

namespace lkv {

inline constexpr uint32_t kBlockMagic = 0x54564b4c;  // "LKVT"
inline constexpr uint32_t kEndMagic = 0x454b4c54;    // "TLKE"
inline constexpr size_t kBlockHeadBytes = 16;
// What the checksum covers begins here.
inline constexpr size_t kBlockCheckedAt = 8;
inline constexpr size_t kEndMarkBytes = 16;

}  // namespace lkv
