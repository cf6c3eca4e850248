#include "session/session_format.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "io/byte_fields.h"
#include "io/crc32c.h"

namespace lkv {
namespace {

// With a byte beyond ASCII and both line ends, as PNG has them: what was sent
// through something that converts texts is seen at once.
constexpr std::string_view kMagic("\x89LKVS\r\n\x1a", 8);
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kCrcBytes = sizeof(uint32_t);
constexpr uint64_t kCommitMarker = 0x0a54494d4d4f43a7;  // "\xa7COMMIT\n"

Status Damaged(const std::string& name, const std::string& what) {
  return Corrupt("session " + name + ": " + what + "; remove it");
}
Status NotForUs(const std::string& name, const std::string& what) {
  return InvalidArgument("session " + name + ": " + what);
}

uint32_t StoredCrc(std::span<const uint8_t> bytes) {
  return MaskCrc32c(Crc32c(bytes));
}

// Puts the checksum of all before it at the end of a part that ends with it.
void SetCrc(std::vector<uint8_t>& bytes) {
  const size_t at = bytes.size() - kCrcBytes;
  const uint32_t crc = StoredCrc(std::span(bytes).first(at));
  std::memcpy(&bytes[at], &crc, sizeof(crc));
}
bool HasRightCrc(std::span<const uint8_t> bytes) {
  uint32_t crc = 0;
  const size_t at = bytes.size() - kCrcBytes;
  std::memcpy(&crc, &bytes[at], sizeof(crc));
  return crc == StoredCrc(bytes.first(at));
}

std::string Version(uint16_t major, uint16_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

void AppendEntry(std::vector<uint8_t>& bytes, const BlockEntry& entry) {
  AppendField(bytes, entry.info.kind);
  AppendField(bytes, entry.info.codec);
  AppendField(bytes, entry.info.n_bytes);
  AppendField(bytes, entry.info.positions.begin);
  AppendField(bytes, entry.info.positions.end);
  AppendField(bytes, entry.info.lanes.begin);
  AppendField(bytes, entry.info.lanes.end);
  AppendField(bytes, entry.offset);
  AppendField(bytes, entry.stored_bytes);
  AppendField(bytes, entry.generation);
  AppendBytes(bytes, entry.tag);
  AppendField(bytes, entry.crc);
  AppendField(bytes, uint32_t{0});
}

BlockEntry ReadEntry(FieldReader& fields) {
  BlockEntry entry;
  entry.info.kind = fields.Read<uint32_t>();
  entry.info.codec = fields.Read<uint32_t>();
  entry.info.n_bytes = fields.Read<uint64_t>();
  entry.info.positions.begin = fields.Read<uint32_t>();
  entry.info.positions.end = fields.Read<uint32_t>();
  entry.info.lanes.begin = fields.Read<uint32_t>();
  entry.info.lanes.end = fields.Read<uint32_t>();
  entry.offset = fields.Read<uint64_t>();
  entry.stored_bytes = fields.Read<uint64_t>();
  entry.generation = fields.Read<uint64_t>();
  fields.ReadBytes(entry.tag);
  entry.crc = fields.Read<uint32_t>();
  fields.Read<uint32_t>();
  return entry;
}

// Whether the entry is possible where the block before it ended at `begin` and
// the index begins at `end`.
bool IsPossible(const BlockEntry& entry, uint64_t begin, uint64_t end,
                const SessionHeader& header, uint32_t n_tokens) {
  const BlockInfo& info = entry.info;
  return entry.generation == header.generation &&
         entry.stored_bytes <= kMaxBlockBytes &&
         info.n_bytes <= kMaxBlockBytes &&
         (info.codec != 0 || info.n_bytes == entry.stored_bytes) &&
         entry.offset == begin && entry.offset <= end &&
         WholeIoBlocks(entry.stored_bytes) <= end - entry.offset &&
         info.positions.begin <= info.positions.end &&
         info.positions.end <= n_tokens && info.lanes.begin <= info.lanes.end;
}

std::vector<uint8_t> IdentityBytes(const SessionHeader& header) {
  std::vector<uint8_t> bytes = EncodeHeader(header);
  bytes.resize(kHeaderIdentityBytes);
  return bytes;
}

}  // namespace

std::vector<uint8_t> EncodeHeader(const SessionHeader& header) {
  std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
  AppendField(bytes, kSessionMajor);
  AppendField(bytes, header.minor);
  AppendField(bytes, kByteOrder);
  AppendField(bytes, header.must_understand);
  AppendField(bytes, uint32_t{0});  // flags that may be ignored
  AppendBytes(bytes, header.file_id);
  AppendField(bytes, header.created_unix_s);
  AppendField(bytes, header.generation);
  AppendBytes(bytes, header.key_id);
  CHECK(bytes.size() == kHeaderIdentityBytes);
  AppendField(bytes, header.front_bytes);
  AppendField(bytes, header.front_crc);
  bytes.resize(kHeaderBytes);
  SetCrc(bytes);
  return bytes;
}

Result<SessionHeader> DecodeHeader(std::span<const uint8_t> bytes,
                                   const std::string& name) {
  if (bytes.size() != kHeaderBytes ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged(name, "is no session file");
  }
  if (!HasRightCrc(bytes)) {
    return Damaged(name, "the checksum of its header differs");
  }
  FieldReader fields(bytes.subspan(kMagic.size()));
  SessionHeader header;
  const auto major = fields.Read<uint16_t>();
  header.minor = fields.Read<uint16_t>();
  if (major != kSessionMajor) {
    return NotForUs(name, "has format version " + Version(major, header.minor) +
                              "; this program reads version " +
                              std::to_string(kSessionMajor));
  }
  if (fields.Read<uint32_t>() != kByteOrder) {
    return NotForUs(name, "was written in another byte order");
  }
  header.must_understand = fields.Read<uint32_t>();
  fields.Read<uint32_t>();  // flags that may be ignored
  if (const uint32_t unknown = header.must_understand & ~kKnownFlags) {
    return NotForUs(name, "needs features that this program does not know (" +
                              std::to_string(unknown) + ")");
  }
  fields.ReadBytes(header.file_id);
  header.created_unix_s = fields.Read<int64_t>();
  header.generation = fields.Read<uint64_t>();
  fields.ReadBytes(header.key_id);
  header.front_bytes = fields.Read<uint64_t>();
  header.front_crc = fields.Read<uint32_t>();
  return header;
}

std::vector<uint8_t> EncodeFront(const SessionFront& front) {
  std::vector<uint8_t> bytes;
  const auto& axes = front.fingerprint.axes();
  AppendField(bytes, static_cast<uint32_t>(axes.size()));
  for (const auto& [axis, value] : axes) {
    AppendField(bytes, std::string_view(axis));
    AppendField(bytes, std::string_view(value));
  }
  AppendBytes(bytes, front.fingerprint.Hash());
  AppendBytes(bytes, front.owner_tag);
  AppendField(bytes, front.n_tokens);
  AppendField(bytes, front.complete_tokens);
  AppendBytes(bytes, front.text_tag);
  AppendField(bytes, static_cast<uint64_t>(front.text.size()));
  AppendBytes(bytes, front.text);
  return bytes;
}

std::vector<uint8_t> AssociatedBytes(const SessionHeader& header,
                                     const BlockEntry& entry) {
  std::vector<uint8_t> bytes = IdentityBytes(header);
  BlockEntry known = entry;
  known.crc = 0;
  known.tag = {};
  AppendEntry(bytes, known);
  return bytes;
}

std::vector<uint8_t> AssociatedBytes(const SessionHeader& header,
                                     const SessionFront& front) {
  std::vector<uint8_t> bytes = IdentityBytes(header);
  SessionFront known = front;
  known.text_tag = {};
  known.text.clear();
  AppendBytes(bytes, EncodeFront(known));
  return bytes;
}

Result<SessionFront> DecodeFront(std::span<const uint8_t> bytes,
                                 const SessionHeader& header,
                                 const std::string& name) {
  if (StoredCrc(bytes) != header.front_crc) {
    return Damaged(name, "the checksum of its fingerprint and text differs");
  }
  SessionFront front;
  FieldReader fields(bytes);
  const auto n_axes = fields.Read<uint32_t>();
  for (uint32_t i = 0; i < n_axes && fields.ok(); ++i) {
    std::string axis = fields.ReadText();
    front.fingerprint.Set(std::move(axis), fields.ReadText());
  }
  Digest hash = {};
  fields.ReadBytes(hash);
  fields.ReadBytes(front.owner_tag);
  front.n_tokens = fields.Read<uint32_t>();
  front.complete_tokens = fields.Read<uint32_t>();
  fields.ReadBytes(front.text_tag);
  const auto text_bytes = fields.Read<uint64_t>();
  if (!fields.ok() || fields.n_left() != text_bytes ||
      front.n_tokens > kMaxSessionTokens ||
      front.complete_tokens > front.n_tokens) {
    return Damaged(name, "its front is malformed");
  }
  if (front.fingerprint.Hash() != hash) {
    return Damaged(name, "its fingerprint is not what it was signed as");
  }
  front.text.resize(text_bytes);
  fields.ReadBytes(front.text);
  return front;
}

std::vector<uint8_t> EncodeText(const SessionText& text) {
  std::vector<uint8_t> bytes;
  AppendField(bytes, std::string_view(text.name));
  const std::span<const int32_t> tokens = text.tokens;
  AppendBytes(bytes, {reinterpret_cast<const uint8_t*>(tokens.data()),
                      tokens.size_bytes()});
  for (const Digest& digest : text.chain) AppendBytes(bytes, digest);
  return bytes;
}

Result<SessionText> DecodeText(std::span<const uint8_t> bytes,
                               uint32_t n_tokens, const std::string& name) {
  SessionText text;
  FieldReader fields(bytes);
  text.name = fields.ReadText();
  if (!fields.ok() || text.name.size() > kMaxSessionNameBytes ||
      bytes.size() != TextBytes(text.name.size(), n_tokens)) {
    return Damaged(name, "its text is malformed");
  }
  text.tokens.resize(n_tokens);
  const std::span<int32_t> tokens = text.tokens;
  fields.ReadBytes(
      {reinterpret_cast<uint8_t*>(tokens.data()), tokens.size_bytes()});
  text.chain.resize(n_tokens / kLinkTokens);
  for (Digest& digest : text.chain) fields.ReadBytes(digest);
  return text;
}

std::vector<uint8_t> EncodeTail(const std::vector<BlockEntry>& entries,
                                SessionFooter footer) {
  std::vector<uint8_t> bytes;
  for (const BlockEntry& entry : entries) AppendEntry(bytes, entry);
  footer.index_crc = StoredCrc(bytes);
  footer.n_blocks = static_cast<uint32_t>(entries.size());
  footer.total_bytes = footer.index_offset + TailBytes(entries.size());
  bytes.resize(TailBytes(entries.size()) - kFooterBytes);
  std::vector<uint8_t> end;
  AppendField(end, footer.index_offset);
  AppendField(end, footer.n_blocks);
  AppendField(end, footer.index_crc);
  AppendField(end, footer.total_bytes);
  AppendBytes(end, footer.file_id);
  AppendField(end, kCommitMarker);
  end.resize(kFooterBytes);
  SetCrc(end);
  AppendBytes(bytes, end);
  return bytes;
}

Result<SessionFooter> DecodeFooter(std::span<const uint8_t> bytes,
                                   const SessionHeader& header,
                                   uint64_t file_bytes,
                                   const std::string& name) {
  FieldReader fields(bytes);
  SessionFooter footer;
  footer.index_offset = fields.Read<uint64_t>();
  footer.n_blocks = fields.Read<uint32_t>();
  footer.index_crc = fields.Read<uint32_t>();
  footer.total_bytes = fields.Read<uint64_t>();
  fields.ReadBytes(footer.file_id);
  if (fields.Read<uint64_t>() != kCommitMarker || bytes.size() < kFooterBytes) {
    return Damaged(name, "has no end: it was never finished or was cut off");
  }
  if (!HasRightCrc(bytes)) {
    return Damaged(name, "the checksum of its footer differs");
  }
  if (footer.total_bytes != file_bytes || footer.file_id != header.file_id ||
      footer.n_blocks > kMaxSessionBlocks ||
      TailBytes(footer.n_blocks) > file_bytes ||
      footer.index_offset != file_bytes - TailBytes(footer.n_blocks) ||
      footer.index_offset < PayloadOffset(header.front_bytes)) {
    return Damaged(name, "its footer belongs to another file");
  }
  return footer;
}

Result<std::vector<BlockEntry>> DecodeIndex(std::span<const uint8_t> bytes,
                                            const SessionHeader& header,
                                            const SessionFooter& footer,
                                            uint32_t n_tokens,
                                            const std::string& name) {
  CHECK(bytes.size() == footer.n_blocks * kBlockEntryBytes);
  if (StoredCrc(bytes) != footer.index_crc) {
    return Damaged(name, "the checksum of its index differs");
  }
  std::vector<BlockEntry> entries;
  entries.reserve(footer.n_blocks);
  FieldReader fields(bytes);
  uint64_t begin = PayloadOffset(header.front_bytes);
  for (uint32_t i = 0; i < footer.n_blocks; ++i) {
    const BlockEntry entry = ReadEntry(fields);
    if (!IsPossible(entry, begin, footer.index_offset, header, n_tokens)) {
      return Damaged(
          name, "the place of block " + std::to_string(i) + " is not possible");
    }
    begin += WholeIoBlocks(entry.stored_bytes);
    entries.push_back(entry);
  }
  if (begin != footer.index_offset) {
    return Damaged(name, "its blocks do not fill it");
  }
  return entries;
}

}  // namespace lkv
