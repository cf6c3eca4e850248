// The file of one session, little-endian:
//
//   header    4 KiB: magic, version, byte order, flags, file id, creation time,
//             generation, key id, length and checksum of the front; CRC at the
//             end
//   front     fingerprint in clear and its SHA-256, tag of the owner, number of
//             tokens; the text: name, token ids, chain (token_chain.h)
//   payload   blocks, each from a multiple of 4 KiB on
//   index     one entry per block
//   footer    the last 64 bytes, at the end of a 4 KiB block: place and
//             checksum of the index, total length, file id, commit marker, CRC
//
// Checksums are CRC-32C, masked. What a block means is the business of who
// wrote it. A file without a whole footer was never finished. All versions have
// the magic, the version and the header's CRC at the same place; another major
// version is refused, a newer minor one means additions that may be ignored.
//
// A sealed file holds text and blocks under AES-256-GCM, with a key of its own,
// derived from the master key and the file id. The nonce is the number of the
// block and the generation; associated are the first 64 bytes of the header
// and the entry of the block, or the front for its text. Checksums are over
// the sealed bytes, so damage is found without the key.
//
// Pure: bytes in, bytes out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "io/aes_gcm.h"
#include "io/io_buffer.h"
#include "io/sha256.h"
#include "lookaheadkv/status.h"
#include "session/fingerprint.h"
#include "session/token_chain.h"

namespace lkv {

inline constexpr uint16_t kSessionMajor = 1;
inline constexpr uint16_t kSessionMinor = 0;

inline constexpr size_t kHeaderBytes = 4096;
inline constexpr size_t kHeaderIdentityBytes = 64;
inline constexpr size_t kBlockEntryBytes = 80;
inline constexpr size_t kFooterBytes = 64;

// Limits, so that a damaged file cannot ask for all memory.
inline constexpr uint64_t kMaxBlockBytes = uint64_t{64} << 20;
inline constexpr uint32_t kMaxSessionBlocks = 1u << 20;
inline constexpr uint32_t kMaxSessionTokens = 1u << 24;
inline constexpr uint32_t kMaxSessionNameBytes = 4096;

using FileId = std::array<uint8_t, 16>;
using KeyId = std::array<uint8_t, 8>;

// Flags that a reader must know, or refuse the file.
inline constexpr uint32_t kSealedFlag = 1u << 0;
inline constexpr uint32_t kKnownFlags = kSealedFlag;

struct SessionHeader {
  uint16_t minor = kSessionMinor;
  uint32_t must_understand = 0;  // flags
  FileId file_id = {};
  int64_t created_unix_s = 0;
  uint64_t generation = 0;  // counts how often the session was saved
  KeyId key_id = {};        // zero unless sealed
  uint64_t front_bytes = 0;
  uint32_t front_crc = 0;  // masked

  bool is_sealed() const { return (must_understand & kSealedFlag) != 0; }
};

struct SessionFront {
  Fingerprint fingerprint;
  Digest owner_tag = {};
  uint32_t n_tokens = 0;
  // Tokens from the first on of which nothing was evicted.
  uint32_t complete_tokens = 0;
  GcmTag text_tag = {};       // of the text, if sealed
  std::vector<uint8_t> text;  // a SessionText, perhaps sealed
};

struct SessionText {
  std::string name;  // any bytes
  std::vector<int32_t> tokens;
  std::vector<Digest> chain;  // [tokens / 64]
};

struct BlockLanes {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// What the writer of a block says of it.
struct BlockInfo {
  uint32_t kind = 0;
  uint32_t codec = 0;    // 0: stored as it is
  uint64_t n_bytes = 0;  // before the codec
  PositionRange positions;
  BlockLanes lanes;
};

struct BlockEntry {
  BlockInfo info;
  uint64_t offset = 0;
  uint64_t stored_bytes = 0;
  uint64_t generation = 0;  // the header's
  uint32_t crc = 0;         // of the stored bytes, masked
  GcmTag tag = {};          // if sealed
};

struct SessionFooter {
  uint64_t index_offset = 0;
  uint32_t n_blocks = 0;
  uint32_t index_crc = 0;  // masked
  uint64_t total_bytes = 0;
  FileId file_id = {};
};

// The decoders say what is wrong as "session <name>: ..." and check everything
// that can be told from the bytes given. kCorrupt: damaged, or no session at
// all; kInvalidArgument: sound, but of another version or kind.

std::vector<uint8_t> EncodeHeader(const SessionHeader& header);
Result<SessionHeader> DecodeHeader(std::span<const uint8_t> bytes,
                                   const std::string& name);

// What is associated with a sealed block or text: the header's identity and all
// of the entry or front that is known before it is sealed.
std::vector<uint8_t> AssociatedBytes(const SessionHeader& header,
                                     const BlockEntry& entry);
std::vector<uint8_t> AssociatedBytes(const SessionHeader& header,
                                     const SessionFront& front);

std::vector<uint8_t> EncodeFront(const SessionFront& front);
// Checks against the header's checksum.
Result<SessionFront> DecodeFront(std::span<const uint8_t> bytes,
                                 const SessionHeader& header,
                                 const std::string& name);

std::vector<uint8_t> EncodeText(const SessionText& text);
Result<SessionText> DecodeText(std::span<const uint8_t> bytes,
                               uint32_t n_tokens, const std::string& name);

// Index, padding and footer. Requires footer.index_offset to be set, and sets
// what follows from the entries.
std::vector<uint8_t> EncodeTail(const std::vector<BlockEntry>& entries,
                                SessionFooter footer);
Result<SessionFooter> DecodeFooter(std::span<const uint8_t> bytes,
                                   const SessionHeader& header,
                                   uint64_t file_bytes,
                                   const std::string& name);
Result<std::vector<BlockEntry>> DecodeIndex(std::span<const uint8_t> bytes,
                                            const SessionHeader& header,
                                            const SessionFooter& footer,
                                            uint32_t n_tokens,
                                            const std::string& name);

// Bytes of an encoded SessionText.
constexpr uint64_t TextBytes(uint64_t name_bytes, uint64_t n_tokens) {
  return sizeof(uint32_t) + name_bytes + n_tokens * sizeof(int32_t) +
         n_tokens / kLinkTokens * sizeof(Digest);
}
// Where the payload begins.
constexpr uint64_t PayloadOffset(uint64_t front_bytes) {
  return kHeaderBytes + WholeIoBlocks(front_bytes);
}
// Bytes of index, padding and footer.
constexpr uint64_t TailBytes(uint64_t n_blocks) {
  return WholeIoBlocks(n_blocks * kBlockEntryBytes + kFooterBytes);
}

}  // namespace lkv
