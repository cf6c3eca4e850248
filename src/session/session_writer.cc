#include "session/session_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/printable_text.h"
#include "io/crc32c.h"
#include "session/store_files.h"

namespace lkv {
namespace {

// Sealed bytes pass through a buffer of this size.
constexpr size_t kPieceBytes = size_t{1} << 20;

SessionFront FrontOf(const SessionSpec& spec, std::vector<uint8_t> text) {
  SessionFront front;
  front.fingerprint = spec.fingerprint;
  front.owner_tag = spec.owner.tag;
  front.n_tokens = static_cast<uint32_t>(spec.tokens.size());
  front.complete_tokens = spec.complete_tokens;
  front.text = std::move(text);
  return front;
}

Status CheckLimits(const SessionSpec& spec, const PayloadBound& bound) {
  if (spec.name.size() > kMaxSessionNameBytes) {
    return InvalidArgument("session " + Quoted(spec.name) +
                           ": the name has more than 4096 bytes; shorten it");
  }
  if (spec.tokens.size() > kMaxSessionTokens ||
      bound.n_blocks > kMaxSessionBlocks) {
    return InvalidArgument("session " + Quoted(spec.name) +
                           ": more than a session file can hold");
  }
  CHECK(spec.complete_tokens <= spec.tokens.size());
  return {};
}

}  // namespace

uint64_t SessionBytesMax(const SessionSpec& spec, const PayloadBound& bound) {
  const uint64_t front_bytes = EncodeFront(FrontOf(spec, {})).size() +
                               TextBytes(spec.name.size(), spec.tokens.size());
  // Each block may leave most of its last 4 KiB empty.
  return PayloadOffset(front_bytes) + bound.n_bytes +
         uint64_t{bound.n_blocks} * (kIoBlockBytes - 1) +
         TailBytes(bound.n_blocks);
}

SessionWriter::SessionWriter(Folder& folder, const PayloadBound& bound,
                             const WriteOptions& options)
    : folder_(folder),
      bound_(bound),
      durability_(options.durability),
      draft_name_(HexText(options.file_id) + std::string(kDraftSuffix)) {
  header_.file_id = options.file_id;
  header_.created_unix_s = options.created_unix_s;
  header_.generation = options.generation;
  if (options.master_key == nullptr) return;
  header_.must_understand |= kSealedFlag;
  header_.key_id = KeyIdOf(*options.master_key);
  cipher_.emplace(*options.master_key, header_);
  sealed_piece_ = IoBuffer(kPieceBytes);
}

SessionWriter::~SessionWriter() {
  if (is_published_ || file_ == nullptr) return;
  file_.reset();
  // What cannot be removed is an orphan, which SessionStore::Collect finds.
  static_cast<void>(folder_.Remove(draft_name_));
}

Result<std::unique_ptr<SessionWriter>> SessionWriter::Begin(
    Folder& folder, const SessionSpec& spec, const PayloadBound& bound,
    const WriteOptions& options) {
  if (Status s = CheckLimits(spec, bound); !s.ok()) return s;
  std::unique_ptr<SessionWriter> writer(
      new SessionWriter(folder, bound, options));
  Result<std::unique_ptr<GrowingFile>> file =
      folder.Create(writer->draft_name_);
  if (!file.ok()) return file.status();
  writer->file_ = *std::move(file);
  writer->n_tokens_ = static_cast<uint32_t>(spec.tokens.size());
  Status status = writer->WriteBegin(spec, SessionBytesMax(spec, bound));
  if (!status.ok()) return status;
  return writer;
}

std::vector<uint8_t> SessionWriter::EncodeBegin(const SessionSpec& spec) {
  SessionFront front = FrontOf(
      spec, EncodeText({spec.name, spec.tokens,
                        TokenChain(spec.owner.chain_seed, spec.tokens)}));
  if (cipher_) {
    AesGcm sealing = cipher_->ForText(AesGcm::Direction::kSeal, front);
    sealing.Add(front.text, front.text.data());
    front.text_tag = sealing.FinishSeal();
  }
  const std::vector<uint8_t> front_bytes = EncodeFront(front);
  header_.front_bytes = front_bytes.size();
  header_.front_crc = MaskCrc32c(Crc32c(front_bytes));
  std::vector<uint8_t> bytes = EncodeHeader(header_);
  bytes.insert(bytes.end(), front_bytes.begin(), front_bytes.end());
  return bytes;
}

Status SessionWriter::WriteBegin(const SessionSpec& spec,
                                 uint64_t reserved_bytes) {
  if (Status s = file_->Reserve(reserved_bytes); !s.ok()) return s;
  if (Status s = file_->Append(EncodeBegin(spec)); !s.ok()) return s;
  return AppendPadding();
}

Status SessionWriter::AppendPadding() {
  static constexpr std::array<uint8_t, kIoBlockBytes> kZeros = {};
  const uint64_t n_bytes = file_->n_bytes();
  return file_->Append(
      std::span(kZeros).first(WholeIoBlocks(n_bytes) - n_bytes));
}

Status SessionWriter::AppendPayload(BlockEntry& entry,
                                    std::span<const uint8_t> bytes) {
  if (!cipher_) {
    entry.crc = MaskCrc32c(Crc32c(bytes));
    return file_->Append(bytes);
  }
  AesGcm sealing = cipher_->ForBlock(
      AesGcm::Direction::kSeal, static_cast<uint32_t>(entries_.size()), entry);
  uint32_t crc = 0;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kPieceBytes);
    const std::span<uint8_t> piece = sealed_piece_.span().first(n);
    sealing.Add(bytes.first(n), piece.data());
    crc = Crc32c(piece, crc);
    if (Status s = file_->Append(piece); !s.ok()) return s;
    bytes = bytes.subspan(n);
  }
  entry.crc = MaskCrc32c(crc);
  entry.tag = sealing.FinishSeal();
  return {};
}

Status SessionWriter::AppendBlock(const BlockInfo& info,
                                  std::span<const uint8_t> bytes) {
  BlockEntry entry;
  entry.info = info;
  entry.offset = file_->n_bytes();
  entry.stored_bytes = bytes.size();
  entry.generation = header_.generation;
  if (Status s = AppendPayload(entry, bytes); !s.ok()) return s;
  entries_.push_back(entry);
  if (Status s = AppendPadding(); !s.ok()) return s;
  return durability_ == Durability::kAlways ? Sync() : Status();
}

Status SessionWriter::Append(const BlockInfo& info,
                             std::span<const uint8_t> bytes) {
  CHECK(file_ != nullptr && !is_finished_);
  payload_bytes_ += bytes.size();
  CHECK(payload_bytes_ <= bound_.n_bytes);
  CHECK(entries_.size() < bound_.n_blocks);
  CHECK(bytes.size() <= kMaxBlockBytes && info.n_bytes <= kMaxBlockBytes);
  CHECK(info.codec != 0 || info.n_bytes == bytes.size());
  CHECK(info.positions.begin <= info.positions.end);
  CHECK(info.positions.end <= n_tokens_);
  CHECK(info.lanes.begin <= info.lanes.end);
  return GiveUpUnlessOk(AppendBlock(info, bytes));
}

Status SessionWriter::WriteEnd() {
  if (Status s = Sync(); !s.ok()) return s;
  SessionFooter footer;
  footer.index_offset = file_->n_bytes();
  footer.file_id = header_.file_id;
  if (Status s = file_->Append(EncodeTail(entries_, footer)); !s.ok()) return s;
  if (Status s = file_->Trim(); !s.ok()) return s;
  file_bytes_ = file_->n_bytes();
  return Sync();
}

Status SessionWriter::Finish() {
  CHECK(file_ != nullptr && !is_finished_);
  Status status = GiveUpUnlessOk(WriteEnd());
  is_finished_ = status.ok();
  return status;
}

Status SessionWriter::Publish(const std::string& file_name) {
  CHECK(is_finished_ && !is_published_);
  if (Status s = folder_.Rename(draft_name_, file_name); !s.ok()) {
    return GiveUpUnlessOk(s);
  }
  is_published_ = true;
  file_.reset();  // readers may open it from here on
  if (durability_ == Durability::kNone) return {};
  Status synced = folder_.Sync();
  has_failed_sync_ = !synced.ok();
  return synced;
}

Status SessionWriter::Sync() {
  if (durability_ == Durability::kNone) return {};
  Status synced = file_->Sync();
  has_failed_sync_ = has_failed_sync_ || !synced.ok();
  return synced;
}

Status SessionWriter::GiveUpUnlessOk(Status status) {
  if (status.ok()) return status;
  is_finished_ = false;
  file_.reset();
  static_cast<void>(folder_.Remove(draft_name_));
  return status;
}

}  // namespace lkv
