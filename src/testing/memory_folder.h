// A folder in memory that fails on demand and whose disk can lose power.
//
// Every call of the folder and of its files counts, so a test can let the first
// one fail, the second, and so on until its run passes. What was written waits
// in `pending` until it is synced; Crash() keeps of that what the test says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/folder.h"
#include "io/io_buffer.h"

namespace lkv {

class MemoryFolder final : public Folder {
 public:
  // The call that fails, counted from 1, and whether all behind it do, too, as
  // after a crash. An Append that fails has written half of its bytes.
  uint64_t failing_call = 0;
  bool keeps_failing = false;
  mutable uint64_t n_calls = 0;

  uint64_t capacity_bytes = UINT64_MAX;

  size_t n_pending() const { return pending_.size(); }

  // Power is lost: of what was not synced, in the order in which it was done,
  // that stays for whose number survives() is true. Whole calls stay or are
  // lost; a lost write in front of one that stays leaves zeros. Nothing is in
  // use any more. Requires that all files are closed.
  void Crash(const std::function<bool(size_t)>& survives) {
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (!survives(i)) continue;
      const Pending& pending = pending_[i];
      if (pending.file != nullptr) {
        Overwrite(pending.file->durable, pending.offset, pending.bytes);
      }
      if (pending.change) pending.change(durable_names_);
    }
    pending_.clear();
    names_ = durable_names_;
    for (auto& [name, file] : names_) {
      file->bytes = file->durable;
      file->reserved_bytes = 0;
    }
    is_locked_ = false;
  }

  // Contents by name, to look at and to damage.
  std::vector<uint8_t>& Contents(const std::string& name) {
    return names_.at(name)->bytes;
  }
  bool Has(const std::string& name) const { return names_.contains(name); }
  void Put(const std::string& name, std::vector<uint8_t> bytes) {
    const auto file = std::make_shared<File>();
    file->bytes = file->durable = std::move(bytes);
    names_[name] = durable_names_[name] = file;
  }

  const std::string& path() const override { return path_; }
  ReadPath read_path() const override { return ReadPath::kBuffered; }

  Result<std::vector<FolderEntry>> List() const override {
    if (Fails()) return Failure("list");
    std::vector<FolderEntry> entries;
    for (const auto& [name, file] : names_) {
      entries.push_back({.name = name,
                         .n_bytes = file->bytes.size(),
                         .used_bytes = file->used_bytes(),
                         .is_protected = file->is_protected});
    }
    return entries;
  }
  Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& name) const override {
    if (Fails()) return Failure(name);
    if (!IsFileName(name)) return InvalidArgument(name + ": no name");
    const auto it = names_.find(name);
    if (it == names_.end()) return NotFound(name + ": no such file");
    if (it->second->is_written) return Failure(name);
    return std::unique_ptr<ReadableFile>(new Reading(*this, it->second));
  }
  Result<std::unique_ptr<GrowingFile>> Create(
      const std::string& name) override {
    if (Fails()) return Failure(name);
    if (!IsFileName(name)) return InvalidArgument(name + ": no name");
    if (names_.contains(name)) return Failure(name + " (taken)");
    const auto file = std::make_shared<File>();
    Change([=](Names& names) { names[name] = file; });
    return std::unique_ptr<GrowingFile>(new Growing(*this, file));
  }
  Result<bool> IsInUse(const std::string& name) const override {
    if (Fails()) return Failure(name);
    const auto it = names_.find(name);
    if (it == names_.end()) return NotFound(name + ": no such file");
    return it->second->is_written || it->second->n_readers > 0;
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (Fails() || !names_.contains(from)) return Failure(to);
    const FilePtr file = names_.at(from);
    Change([=](Names& names) {
      names.erase(from);
      names[to] = file;
    });
    return {};
  }
  Status Remove(const std::string& name) override {
    if (Fails()) return Failure(name);
    if (!names_.contains(name)) return NotFound(name + ": no such file");
    Change([=](Names& names) { names.erase(name); });
    return {};
  }
  Status Protect(const std::string& name, Protection protection) override {
    if (Fails()) return Failure(name);
    if (!names_.contains(name)) return NotFound(name + ": no such file");
    names_.at(name)->is_protected = protection == Protection::kProtected;
    return {};
  }
  Status Sync() override {
    if (Fails()) return Failure("sync");
    durable_names_ = names_;
    std::erase_if(pending_, [](const Pending& p) { return p.change; });
    return {};
  }
  Result<uint64_t> FreeBytes() const override {
    if (Fails()) return Failure("free bytes");
    return capacity_bytes - std::min(capacity_bytes, UsedBytes());
  }
  Result<std::unique_ptr<FolderLock>> Lock() override {
    if (Fails() || is_locked_) return Failure("lock");
    is_locked_ = true;
    return std::unique_ptr<FolderLock>(new Locked(*this));
  }

 private:
  struct File {
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> durable;  // what a crash leaves
    uint64_t reserved_bytes = 0;
    bool is_protected = false;
    bool is_written = false;
    int n_readers = 0;

    uint64_t used_bytes() const {
      return WholeIoBlocks(std::max<uint64_t>(bytes.size(), reserved_bytes));
    }
  };
  // Owned by the names, by what waits for a sync and by who has it open.
  using FilePtr = std::shared_ptr<File>;
  using Names = std::map<std::string, FilePtr>;

  // A write to a file, or a change of names.
  struct Pending {
    FilePtr file;
    size_t offset = 0;
    std::vector<uint8_t> bytes;
    std::function<void(Names&)> change;
  };

  class Locked final : public FolderLock {
   public:
    explicit Locked(MemoryFolder& folder) : folder_(folder) {}
    ~Locked() override { folder_.is_locked_ = false; }

   private:
    MemoryFolder& folder_;
  };

  class Reading final : public ReadableFile {
   public:
    Reading(const MemoryFolder& folder, FilePtr file)
        : folder_(folder), file_(std::move(file)) {
      ++file_->n_readers;
    }
    ~Reading() override { --file_->n_readers; }
    uint64_t n_bytes() const override { return file_->bytes.size(); }
    Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
      if (folder_.Fails()) return Failure("read");
      const std::vector<uint8_t>& bytes = file_->bytes;
      if (offset > bytes.size() || out.size() > bytes.size() - offset) {
        return Corrupt("a file ends early");
      }
      if (!out.empty()) std::memcpy(out.data(), &bytes[offset], out.size());
      return {};
    }

   private:
    const MemoryFolder& folder_;
    const FilePtr file_;
  };

  class Growing final : public GrowingFile {
   public:
    Growing(MemoryFolder& folder, FilePtr file)
        : folder_(folder), file_(std::move(file)) {
      file_->is_written = true;
    }
    ~Growing() override { file_->is_written = false; }
    uint64_t n_bytes() const override { return file_->bytes.size(); }
    Status Reserve(uint64_t n_bytes) override {
      if (folder_.Fails()) return Failure("reserve");
      const uint64_t before = file_->used_bytes();
      const uint64_t more = WholeIoBlocks(n_bytes) - before;
      if (folder_.UsedBytes() + more > folder_.capacity_bytes) {
        return Failure("reserve (full)");
      }
      file_->reserved_bytes = n_bytes;
      return {};
    }
    Status Append(std::span<const uint8_t> bytes) override {
      const bool fails = folder_.Fails();
      const std::span<const uint8_t> kept =
          fails ? bytes.first(bytes.size() / 2) : bytes;
      const size_t offset = file_->bytes.size();
      Overwrite(file_->bytes, offset, kept);
      folder_.pending_.push_back(
          {file_, offset, {kept.begin(), kept.end()}, nullptr});
      const bool is_full = folder_.UsedBytes() > folder_.capacity_bytes;
      return fails || is_full ? Failure("append") : Status();
    }
    Status Trim() override {
      if (folder_.Fails()) return Failure("trim");
      file_->reserved_bytes = 0;
      return {};
    }
    Status Sync() override {
      if (folder_.Fails()) return Failure("sync");
      file_->durable = file_->bytes;
      std::erase_if(folder_.pending_,
                    [&](const Pending& p) { return p.file == file_; });
      return {};
    }

   private:
    MemoryFolder& folder_;
    const FilePtr file_;
  };

  static Status Failure(const std::string& what) {
    return IoError(what + ": refused");
  }
  static void Overwrite(std::vector<uint8_t>& bytes, size_t offset,
                        std::span<const uint8_t> with) {
    if (bytes.size() < offset + with.size()) {
      bytes.resize(offset + with.size());
    }
    std::copy(with.begin(), with.end(),
              bytes.begin() + static_cast<ptrdiff_t>(offset));
  }

  bool Fails() const {
    const uint64_t call = ++n_calls;
    return failing_call != 0 &&
           (call == failing_call || (keeps_failing && call > failing_call));
  }
  void Change(std::function<void(Names&)> change) {
    change(names_);
    pending_.push_back({nullptr, 0, {}, std::move(change)});
  }
  uint64_t UsedBytes() const {
    uint64_t n_bytes = 0;
    for (const auto& [name, file] : names_) n_bytes += file->used_bytes();
    return n_bytes;
  }

  const std::string path_;
  Names names_;
  Names durable_names_;
  std::vector<Pending> pending_;
  bool is_locked_ = false;
};

}  // namespace lkv
