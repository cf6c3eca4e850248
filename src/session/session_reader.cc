#include "session/session_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "io/crc32c.h"
#include "io/io_buffer.h"

namespace lkv {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

Result<std::unique_ptr<SessionReader>> SessionReader::Open(
    std::unique_ptr<ReadableFile> file, std::string name,
    const SessionAccess& access) {
  std::unique_ptr<SessionReader> reader(
      new SessionReader(std::move(file), std::move(name)));
  if (Status s = reader->ReadHeader(); !s.ok()) return s;
  if (Status s = reader->ReadFront(access); !s.ok()) return s;
  if (Status s = reader->ReadTail(); !s.ok()) return s;
  if (Status s = reader->ReadText(access.master_key); !s.ok()) return s;
  return reader;
}

Status SessionReader::ReadHeader() {
  if (n_bytes() < kHeaderBytes) {
    return Corrupt("session " + name_ + ": has " + std::to_string(n_bytes()) +
                   " bytes and thus no header; remove it");
  }
  std::vector<uint8_t> bytes(kHeaderBytes);
  if (Status s = file_->ReadAt(0, bytes); !s.ok()) return s;
  Result<SessionHeader> header = DecodeHeader(bytes, name_);
  if (!header.ok()) return header.status();
  header_ = *header;
  if (header_.front_bytes > n_bytes() - kHeaderBytes) {
    return Corrupt("session " + name_ + ": was cut off; remove it");
  }
  return {};
}

Status SessionReader::ReadFront(const SessionAccess& access) {
  std::vector<uint8_t> bytes(header_.front_bytes);
  if (Status s = file_->ReadAt(kHeaderBytes, bytes); !s.ok()) return s;
  Result<SessionFront> front = DecodeFront(bytes, header_, name_);
  if (!front.ok()) return front.status();
  front_ = *std::move(front);
  if (access.fingerprint != nullptr) {
    const auto difference =
        front_.fingerprint.DifferenceFrom(*access.fingerprint);
    if (difference) {
      return InvalidArgument("session " + name_ +
                             ": was made otherwise: " + difference->Text());
    }
  }
  if (access.owner != nullptr && front_.owner_tag != access.owner->tag) {
    return InvalidArgument("session " + name_ + ": belongs to another owner");
  }
  return {};
}

Status SessionReader::ReadTail() {
  if (n_bytes() < PayloadOffset(header_.front_bytes) + kFooterBytes) {
    return Corrupt("session " + name_ +
                   ": has no end: it was never finished or was cut off; "
                   "remove it");
  }
  std::vector<uint8_t> bytes(kFooterBytes);
  if (Status s = file_->ReadAt(n_bytes() - kFooterBytes, bytes); !s.ok()) {
    return s;
  }
  const Result<SessionFooter> footer =
      DecodeFooter(bytes, header_, n_bytes(), name_);
  if (!footer.ok()) return footer.status();
  bytes.resize(footer->n_blocks * kBlockEntryBytes);
  if (Status s = file_->ReadAt(footer->index_offset, bytes); !s.ok()) return s;
  Result<std::vector<BlockEntry>> blocks =
      DecodeIndex(bytes, header_, *footer, front_.n_tokens, name_);
  if (!blocks.ok()) return blocks.status();
  blocks_ = *std::move(blocks);
  return {};
}

Status SessionReader::ReadText(const SecretKey* master_key) {
  std::vector<uint8_t> bytes = std::move(front_.text);
  if (header_.is_sealed()) {
    if (master_key == nullptr) return {};
    if (KeyIdOf(*master_key) != header_.key_id) {
      return InvalidArgument("session " + name_ +
                             ": is sealed with another key; give that one");
    }
    cipher_.emplace(*master_key, header_);
    AesGcm opening = cipher_->ForText(AesGcm::Direction::kOpen, front_);
    opening.Add(bytes, bytes.data());
    if (!opening.FinishOpen(front_.text_tag)) {
      return Corrupt("session " + name_ + ": its text was forged; remove it");
    }
  }
  Result<SessionText> text = DecodeText(bytes, front_.n_tokens, name_);
  if (!text.ok()) return text.status();
  text_ = *std::move(text);
  return {};
}

Status SessionReader::BlockDiffers(uint32_t number) const {
  return Corrupt("session " + name_ + ", block " + std::to_string(number) +
                 ": the checksum differs; remove the session");
}

Status SessionReader::LoadBlock(uint32_t number, std::span<uint8_t> out) const {
  CHECK(!is_locked() && number < blocks_.size());
  const BlockEntry& entry = blocks_[number];
  CHECK(out.size() >= entry.stored_bytes);
  const std::span<uint8_t> stored = out.first(entry.stored_bytes);
  const size_t n_read =
      out.size() >= BufferBytes(number) ? BufferBytes(number) : stored.size();
  if (Status s = file_->ReadAt(entry.offset, out.first(n_read)); !s.ok()) {
    return s;
  }
  if (MaskCrc32c(Crc32c(stored)) != entry.crc) return BlockDiffers(number);
  if (!cipher_) return {};
  AesGcm opening = cipher_->ForBlock(AesGcm::Direction::kOpen, number, entry);
  opening.Add(stored, stored.data());
  if (opening.FinishOpen(entry.tag)) return {};
  return Corrupt("session " + name_ + ", block " + std::to_string(number) +
                 ": was forged; remove the session");
}

Status SessionReader::Verify() const {
  IoBuffer piece(kPieceBytes);
  for (uint32_t number = 0; number < blocks_.size(); ++number) {
    const BlockEntry& entry = blocks_[number];
    uint32_t crc = 0;
    for (uint64_t done = 0; done < entry.stored_bytes; done += kPieceBytes) {
      const size_t n =
          std::min<uint64_t>(entry.stored_bytes - done, kPieceBytes);
      const std::span<uint8_t> out = piece.span().first(WholeIoBlocks(n));
      if (Status s = file_->ReadAt(entry.offset + done, out); !s.ok()) return s;
      crc = Crc32c(out.first(n), crc);
    }
    if (MaskCrc32c(crc) != entry.crc) return BlockDiffers(number);
  }
  return {};
}

}  // namespace lkv
