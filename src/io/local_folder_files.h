// The files of a local folder (folder.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/descriptor.h"
#include "io/folder.h"
#include "io/io_buffer.h"

namespace lkv {

class LocalFolderFile final : public ReadableFile {
 public:
  // `direct`: the same file with O_DIRECT, or none. Should it refuse to read,
  // all go the other way from then on, and `read_path` says so.
  LocalFolderFile(std::string path, Descriptor file, Descriptor direct,
                  uint64_t n_bytes, std::atomic<ReadPath>& read_path)
      : path_(std::move(path)),
        file_(std::move(file)),
        direct_(std::move(direct)),
        n_bytes_(n_bytes),
        read_path_(read_path) {}

  uint64_t n_bytes() const override { return n_bytes_; }
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override;

 private:
  // Each reads as many whole blocks as it can: what is in the page cache, or
  // what is not. Returns the bytes read.
  size_t ReadCached(uint64_t offset, std::span<uint8_t> out) const;
  size_t ReadDirect(uint64_t offset, std::span<uint8_t> out) const;

  const std::string path_;
  const Descriptor file_;
  const Descriptor direct_;
  const uint64_t n_bytes_;
  std::atomic<ReadPath>& read_path_;
};

// Whether O_DIRECT works on `direct`: reads its first block.
bool CanReadDirect(const Descriptor& direct, uint64_t file_bytes);

// Small pieces are gathered: the disk gets whole blocks, 1 MiB at a time.
class LocalGrowingFile final : public GrowingFile {
 public:
  LocalGrowingFile(std::string path, Descriptor file);

  uint64_t n_bytes() const override { return written_bytes_ + n_gathered_; }
  Status Reserve(uint64_t n_bytes) override;
  Status Append(std::span<const uint8_t> bytes) override;
  Status Trim() override;
  Status Sync() override;

 private:
  Status Write(std::span<const uint8_t> bytes);
  Status WriteGathered();

  const std::string path_;
  const Descriptor file_;
  IoBuffer gathered_;
  size_t n_gathered_ = 0;
  uint64_t written_bytes_ = 0;
};

}  // namespace lkv
