#include "session/session_transfer.h"

#include <algorithm>
#include <utility>

#include "base/printable_text.h"
#include "io/io_buffer.h"

namespace lkv {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

Status CopyFile(const SessionReader& reader, NewFile& copy) {
  IoBuffer piece(kPieceBytes);
  while (copy.n_bytes() < reader.n_bytes()) {
    const size_t n =
        std::min<uint64_t>(reader.n_bytes() - copy.n_bytes(), kPieceBytes);
    const std::span<uint8_t> bytes = piece.span().first(n);
    if (Status s = reader.ReadRaw(copy.n_bytes(), bytes); !s.ok()) return s;
    if (Status s = copy.Append(bytes); !s.ok()) return s;
  }
  return copy.Commit();
}

Result<std::unique_ptr<SessionReader>> OpenFileAt(const FileSystem& files,
                                                  const std::string& path,
                                                  const SecretKey* master_key) {
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  return SessionReader::Open(*std::move(file), Quoted(path),
                             {.master_key = master_key});
}

Status CopyBlocks(const SessionReader& reader, SessionSave& save) {
  IoBuffer buffer;
  for (uint32_t number = 0; number < reader.blocks().size(); ++number) {
    if (buffer.size() < reader.BufferBytes(number)) {
      buffer = IoBuffer(reader.BufferBytes(number));
    }
    if (Status s = reader.LoadBlock(number, buffer.span()); !s.ok()) return s;
    const BlockEntry& entry = reader.blocks()[number];
    Status s = save.Append(entry.info, buffer.span().first(entry.stored_bytes));
    if (!s.ok()) return s;
  }
  return {};
}

}  // namespace

Status ExportSession(SessionStore& store, const std::string& id,
                     const FileSystem& files, const std::string& path) {
  const auto reader = store.OpenSession(id, {});
  if (!reader.ok()) return reader.status();
  if (Status s = (*reader)->Verify(); !s.ok()) return s;
  auto copy = files.Create(path);
  if (!copy.ok()) return copy.status();
  if (Status s = CopyFile(**reader, **copy); !s.ok()) return s;
  const auto written = OpenFileAt(files, path, nullptr);
  return written.ok() ? (*written)->Verify() : written.status();
}

Result<std::string> ImportSession(SessionStore& store, const FileSystem& files,
                                  const std::string& path,
                                  const SessionOwner& owner,
                                  const SecretKey* master_key) {
  const auto reader = OpenFileAt(files, path, master_key);
  if (!reader.ok()) return reader.status();
  if ((*reader)->is_locked()) {
    return InvalidArgument(Quoted(path) + ": is sealed; give its key");
  }
  PayloadBound bound;
  for (const BlockEntry& entry : (*reader)->blocks()) {
    bound.n_bytes += entry.stored_bytes;
    ++bound.n_blocks;
  }
  const SessionText& text = (*reader)->text();
  auto save = store.BeginSave({.name = text.name,
                               .owner = owner,
                               .fingerprint = (*reader)->fingerprint(),
                               .tokens = text.tokens,
                               .complete_tokens = (*reader)->complete_tokens()},
                              bound);
  if (!save.ok()) return save.status();
  if (Status s = CopyBlocks(**reader, *save); !s.ok()) return s;
  return store.FinishSave(*std::move(save));
}

}  // namespace lkv
