// SessionReader: one session file, of which nothing is believed that a checksum
// does not confirm.
//
// Open checks header, fingerprint, owner and index, in this order; the caller
// compares the tokens; each block is checked when it is loaded. Blocks are read
// straight into the caller's memory, and only those asked for.
//
// Thread-safe after Open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "io/secret_key.h"
#include "lookaheadkv/status.h"
#include "session/session_cipher.h"
#include "session/session_format.h"
#include "session/token_chain.h"

namespace lkv {

// Who wants to read. What is null is not checked: enough to list and to verify.
struct SessionAccess {
  const Fingerprint* fingerprint = nullptr;
  const SessionOwner* owner = nullptr;
  const SecretKey* master_key = nullptr;
};

class SessionReader {
 public:
  // `name` is what messages call it. kCorrupt: damaged or unfinished;
  // kInvalidArgument: sound, but of another version, fingerprint, owner or key;
  // kIo.
  static Result<std::unique_ptr<SessionReader>> Open(
      std::unique_ptr<ReadableFile> file, std::string name,
      const SessionAccess& access);

  const SessionHeader& header() const { return header_; }
  const Fingerprint& fingerprint() const { return front_.fingerprint; }
  const Digest& owner_tag() const { return front_.owner_tag; }
  uint32_t n_tokens() const { return front_.n_tokens; }
  uint32_t complete_tokens() const { return front_.complete_tokens; }
  uint64_t n_bytes() const { return file_->n_bytes(); }
  // Written by a program that knows more than this one, which does no harm.
  bool is_newer() const { return header_.minor > kSessionMinor; }

  // Whether it is sealed and no key was given: then there is no text, and
  // blocks can be verified, but not loaded.
  bool is_locked() const { return header_.is_sealed() && !cipher_; }
  // Empty while locked.
  const SessionText& text() const { return text_; }

  const std::vector<BlockEntry>& blocks() const { return blocks_; }
  // What block `number` takes, rounded up to what the disk reads at once.
  size_t BufferBytes(uint32_t number) const {
    return WholeIoBlocks(blocks_[number].stored_bytes);
  }
  // Loads the stored bytes of a block to the front of `out`. They pass the page
  // cache if `out` is BufferBytes of an IoBuffer (or aligned like one); what is
  // behind them then is undefined, as is all of `out` after a failure. Requires
  // room for stored_bytes and !is_locked(). kCorrupt: the block is damaged.
  Status LoadBlock(uint32_t number, std::span<uint8_t> out) const;
  // Reads all blocks and checks their checksums, 1 MiB at a time.
  Status Verify() const;
  // Any part of the file, as it is.
  Status ReadRaw(uint64_t offset, std::span<uint8_t> out) const {
    return file_->ReadAt(offset, out);
  }

 private:
  SessionReader(std::unique_ptr<ReadableFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  Status ReadHeader();
  Status ReadFront(const SessionAccess& access);
  Status ReadText(const SecretKey* master_key);
  Status ReadTail();
  Status BlockDiffers(uint32_t number) const;

  const std::unique_ptr<ReadableFile> file_;
  const std::string name_;
  SessionHeader header_;
  SessionFront front_;  // without the text
  SessionText text_;
  std::optional<SessionCipher> cipher_;
  std::vector<BlockEntry> blocks_;
};

}  // namespace lkv
