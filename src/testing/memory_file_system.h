// A file system in memory that refuses on demand.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/file_system.h"

namespace lkv {

class MemoryFileSystem final : public FileSystem {
 public:
  // Bytes that may still be appended: the disk is full after that.
  uint64_t free_bytes = UINT64_MAX;
  bool refuses_commit = false;

  // Contents by path. For tests to look at and to damage.
  mutable std::map<std::string, std::vector<uint8_t>> files;

  Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) const override {
    const auto it = files.find(path);
    if (it == files.end()) return NotFound(path + ": no such file");
    return std::unique_ptr<ReadableFile>(new Readable(path, it->second));
  }
  Result<std::unique_ptr<NewFile>> Create(
      const std::string& path) const override {
    return std::unique_ptr<NewFile>(new New(*this, path));
  }

 private:
  class Readable final : public ReadableFile {
   public:
    Readable(std::string path, std::vector<uint8_t> bytes)
        : path_(std::move(path)), bytes_(std::move(bytes)) {}
    uint64_t n_bytes() const override { return bytes_.size(); }
    Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
      if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
        return Corrupt(path_ + ": ends before");
      }
      if (!out.empty()) std::memcpy(out.data(), &bytes_[offset], out.size());
      return {};
    }

   private:
    const std::string path_;
    const std::vector<uint8_t> bytes_;
  };

  class New final : public NewFile {
   public:
    New(const MemoryFileSystem& owner, std::string path)
        : owner_(owner), path_(std::move(path)) {}
    uint64_t n_bytes() const override { return bytes_.size(); }
    Status Append(std::span<const uint8_t> bytes) override {
      if (bytes_.size() + bytes.size() > owner_.free_bytes) {
        return IoError(path_ + ": the disk is full");
      }
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
      return {};
    }
    Status Commit() override {
      if (owner_.refuses_commit) return IoError(path_ + ": the disk is gone");
      owner_.files[path_] = bytes_;
      return {};
    }

   private:
    const MemoryFileSystem& owner_;
    const std::string path_;
    std::vector<uint8_t> bytes_;
  };
};

}  // namespace lkv
