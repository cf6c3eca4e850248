// SessionWriter: writes one session file so that it appears whole or not at
// all.
//
//   Begin    takes the disk space, writes header, fingerprint and text
//   Append   one block after the other, none of which is kept in memory
//   Finish   payload to the disk; index and footer; those to the disk
//   Publish  gives the file its name, and the name to the disk
//
// The file has a name of its own until it is published, and is gone with a
// writer that fails or is destroyed before. After a failed sync the system may
// have forgotten what it could not write, so that is never tried again.
//
// Thread rule: thread-compatible, but Begin and Publish under the folder's
// lock (folder.h). The folder outlives the writer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/folder.h"
#include "io/io_buffer.h"
#include "io/secret_key.h"
#include "lookaheadkv/status.h"
#include "session/session_cipher.h"
#include "session/session_format.h"
#include "session/token_chain.h"

namespace lkv {

struct SessionSpec {
  std::string name;  // for people: any bytes, at most 4096
  SessionOwner owner;
  Fingerprint fingerprint;
  std::vector<int32_t> tokens;
  // Tokens from the first on of which nothing was evicted.
  uint32_t complete_tokens = 0;
};

// What will be appended, at most.
struct PayloadBound {
  uint64_t n_bytes = 0;
  uint32_t n_blocks = 0;
};

enum class Durability {
  kNone,     // nothing waits for the disk; a crash of the machine loses files
             // or damages them, which is noticed
  kSession,  // the session is on the disk when it is published
  kAlways,   // every block is when it was appended
};

struct WriteOptions {
  Durability durability = Durability::kSession;
  FileId file_id = {};  // random
  int64_t created_unix_s = 0;
  uint64_t generation = 1;
  const SecretKey* master_key = nullptr;  // seals, if given
};

// Disk space that such a session takes, at most.
uint64_t SessionBytesMax(const SessionSpec& spec, const PayloadBound& bound);

class SessionWriter {
 public:
  // kInvalidArgument when the spec is beyond a limit of the format; kIo.
  static Result<std::unique_ptr<SessionWriter>> Begin(
      Folder& folder, const SessionSpec& spec, const PayloadBound& bound,
      const WriteOptions& options);
  ~SessionWriter();
  SessionWriter(const SessionWriter&) = delete;
  SessionWriter& operator=(const SessionWriter&) = delete;

  // Nothing may follow a failure. Requires bytes.size() <= kMaxBlockBytes, all
  // within the bound, and
  // info.n_bytes == bytes.size() unless there is a codec.
  Status Append(const BlockInfo& info, std::span<const uint8_t> bytes);
  Status Finish();
  // Requires Finish. The file then has its name even if the folder could not be
  // synced, for it is whole; only a crash may still undo the renaming.
  Status Publish(const std::string& file_name);

  const SessionHeader& header() const { return header_; }
  uint64_t n_bytes() const { return file_bytes_; }  // once finished
  // What the file is called until it is published.
  const std::string& draft_name() const { return draft_name_; }
  bool is_published() const { return is_published_; }
  // A sync failed, of the file or of the folder.
  bool has_failed_sync() const { return has_failed_sync_; }

 private:
  SessionWriter(Folder& folder, const PayloadBound& bound,
                const WriteOptions& options);

  // Makes front and header of the spec.
  std::vector<uint8_t> EncodeBegin(const SessionSpec& spec);
  Status WriteBegin(const SessionSpec& spec, uint64_t reserved_bytes);
  Status AppendBlock(const BlockInfo& info, std::span<const uint8_t> bytes);
  // Appends the bytes of a block, sealed if the file is; completes the entry.
  Status AppendPayload(BlockEntry& entry, std::span<const uint8_t> bytes);
  Status AppendPadding();
  Status WriteEnd();
  Status Sync();
  // Removes the file at once unless `status` is ok.
  Status GiveUpUnlessOk(Status status);

  Folder& folder_;
  const PayloadBound bound_;
  const Durability durability_;
  const std::string draft_name_;
  std::unique_ptr<GrowingFile> file_;
  SessionHeader header_;
  std::optional<SessionCipher> cipher_;
  uint32_t n_tokens_ = 0;
  std::vector<BlockEntry> entries_;
  uint64_t payload_bytes_ = 0;
  uint64_t file_bytes_ = 0;
  IoBuffer sealed_piece_;  // empty unless the file is sealed
  bool is_finished_ = false;
  bool is_published_ = false;
  bool has_failed_sync_ = false;
};

}  // namespace lkv
