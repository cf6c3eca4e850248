// Small sessions for tests, and a way to change their files so that checksums
// do not give it away.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/crc32c.h"
#include "session/session_reader.h"
#include "session/session_writer.h"
#include "testing/memory_file_system.h"

namespace lkv {

inline SessionOwner TestOwner(uint8_t number = 1) {
  return OwnerOf(std::vector<uint8_t>{number, 2, 3});
}

inline SecretKey TestKey(uint8_t number = 1) {
  return SecretKey(std::array<uint8_t, SecretKey::kBytes>{number});
}

inline Fingerprint TestFingerprint() {
  Fingerprint print;
  print.Set("kv_type", "f16");
  print.Set("weights", "b179c952");
  return print;
}

// n_tokens tokens that differ between versions from token `shared` on.
inline std::vector<int32_t> TestTokens(uint32_t n_tokens, uint32_t version,
                                       uint32_t shared = 0) {
  std::vector<int32_t> tokens(n_tokens);
  for (uint32_t i = 0; i < n_tokens; ++i) {
    tokens[i] = static_cast<int32_t>(i < shared ? i : i + 1000 * version);
  }
  return tokens;
}

inline SessionSpec TestSpec(const std::string& name, uint32_t version = 1,
                            uint32_t n_tokens = 100) {
  return {.name = name,
          .owner = TestOwner(),
          .fingerprint = TestFingerprint(),
          .tokens = TestTokens(n_tokens, version),
          .complete_tokens = n_tokens};
}

// Payload of which every byte depends on version and block.
inline std::vector<uint8_t> TestBlock(uint32_t version, uint32_t number,
                                      size_t n_bytes) {
  std::vector<uint8_t> bytes(n_bytes);
  for (size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<uint8_t>(version * 31 + number * 7 + i + (i >> 8));
  }
  return bytes;
}

inline const std::vector<size_t> kTestBlockBytes = {5000, 4096, 1, 0};

inline PayloadBound TestBound(const std::vector<size_t>& block_bytes) {
  PayloadBound bound;
  bound.n_blocks = static_cast<uint32_t>(block_bytes.size());
  for (const size_t n : block_bytes) bound.n_bytes += n;
  return bound;
}

// Blocks of a version of a session, one lane each.
inline Status AppendTestBlocks(SessionWriter& writer, uint32_t version,
                               const std::vector<size_t>& block_bytes) {
  for (uint32_t i = 0; i < block_bytes.size(); ++i) {
    const BlockInfo info = {.kind = 3,
                            .n_bytes = block_bytes[i],
                            .positions = {i, i + 10},
                            .lanes = {i, i + 1}};
    const Status s = writer.Append(info, TestBlock(version, i, block_bytes[i]));
    if (!s.ok()) return s;
  }
  return {};
}

// Whether the blocks are those of this version, read through checksums.
inline Status CheckTestBlocks(const SessionReader& reader, uint32_t version,
                              const std::vector<size_t>& block_bytes) {
  if (reader.blocks().size() != block_bytes.size()) {
    return Corrupt("another number of blocks");
  }
  for (uint32_t i = 0; i < block_bytes.size(); ++i) {
    IoBuffer buffer(block_bytes[i]);
    const std::span<uint8_t> out = buffer.span();
    if (Status s = reader.LoadBlock(i, out); !s.ok()) return s;
    const std::vector<uint8_t> expected = TestBlock(version, i, block_bytes[i]);
    if (reader.blocks()[i].stored_bytes != expected.size() ||
        !std::equal(expected.begin(), expected.end(), out.begin())) {
      return Corrupt("block " + std::to_string(i) + " has wrong bytes");
    }
  }
  return {};
}

// A reader of a file that consists of these bytes.
inline Result<std::unique_ptr<SessionReader>> OpenBytes(
    std::vector<uint8_t> bytes, const SessionAccess& access = {}) {
  MemoryFileSystem files;
  files.files["s"] = std::move(bytes);
  return SessionReader::Open(*files.Open("s"), "s", access);
}

// Sets the masked checksum at the end of `part` to what it has to be.
inline void RepairCrc(std::span<uint8_t> part) {
  const size_t at = part.size() - sizeof(uint32_t);
  const uint32_t crc = MaskCrc32c(Crc32c(part.first(at)));
  std::memcpy(&part[at], &crc, sizeof(crc));
}

// Sets all checksums but those of blocks, as far as the parts can be found.
inline void RepairChecksums(std::vector<uint8_t>& bytes) {
  if (bytes.size() < kHeaderBytes + kFooterBytes) return;
  uint64_t front_bytes = 0;
  std::memcpy(&front_bytes, &bytes[kHeaderIdentityBytes], sizeof(front_bytes));
  if (front_bytes <= bytes.size() - kHeaderBytes) {
    const uint32_t crc =
        MaskCrc32c(Crc32c(std::span(bytes).subspan(kHeaderBytes, front_bytes)));
    std::memcpy(&bytes[kHeaderIdentityBytes + sizeof(front_bytes)], &crc,
                sizeof(crc));
  }
  RepairCrc(std::span(bytes).first(kHeaderBytes));
  uint8_t* footer = &bytes[bytes.size() - kFooterBytes];
  uint64_t index_offset = 0;
  uint32_t n_blocks = 0;
  std::memcpy(&index_offset, footer, sizeof(index_offset));
  std::memcpy(&n_blocks, footer + sizeof(index_offset), sizeof(n_blocks));
  const uint64_t index_bytes = uint64_t{n_blocks} * kBlockEntryBytes;
  if (index_offset <= bytes.size() &&
      index_bytes <= bytes.size() - index_offset) {
    const uint32_t crc =
        MaskCrc32c(Crc32c(std::span(bytes).subspan(index_offset, index_bytes)));
    std::memcpy(footer + sizeof(index_offset) + sizeof(n_blocks), &crc,
                sizeof(crc));
  }
  RepairCrc({footer, kFooterBytes});
}

}  // namespace lkv
