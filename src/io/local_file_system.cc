#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/errno_text.h"
#include "io/descriptor.h"
#include "io/file_system.h"
#include "io/local_file_io.h"

namespace lkv {
namespace {

class LocalReadableFile final : public ReadableFile {
 public:
  LocalReadableFile(std::string path, Descriptor file, uint64_t n_bytes)
      : path_(std::move(path)), file_(std::move(file)), n_bytes_(n_bytes) {}

  uint64_t n_bytes() const override { return n_bytes_; }

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    return ReadWhole(file_, path_, offset, out);
  }

 private:
  const std::string path_;
  const Descriptor file_;
  const uint64_t n_bytes_;
};

// Written under another name in the same folder, so that the rename at Commit
// stays within one file system.
class LocalNewFile final : public NewFile {
 public:
  LocalNewFile(std::string path, std::string draft, Descriptor file)
      : path_(std::move(path)),
        draft_(std::move(draft)),
        file_(std::move(file)) {}
  ~LocalNewFile() override {
    if (!is_committed_) unlink(draft_.c_str());
  }

  uint64_t n_bytes() const override { return n_bytes_; }

  Status Append(std::span<const uint8_t> bytes) override {
    CHECK(!is_committed_);
    return WriteWhole(file_, path_, &n_bytes_, bytes);
  }

  Status Commit() override {
    CHECK(!is_committed_);
    if (fsync(file_.get()) != 0) return FileRefused(path_, "written", errno);
    if (rename(draft_.c_str(), path_.c_str()) != 0) {
      return FileRefused(path_, "put in its place", errno);
    }
    is_committed_ = true;
    // The name is on the disk once its folder is.
    const size_t slash = path_.rfind('/');
    const std::string folder =
        slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const Descriptor directory(
        open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() < 0 || fsync(directory.get()) != 0) {
      return FileRefused(path_, "made safe", errno);
    }
    return {};
  }

 private:
  const std::string path_;
  const std::string draft_;
  const Descriptor file_;
  uint64_t n_bytes_ = 0;
  bool is_committed_ = false;
};

class Local final : public FileSystem {
 public:
  Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) const override {
    // O_NONBLOCK: a FIFO without a writer answers at once instead of waiting.
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info = {};
    if (file.get() < 0 || fstat(file.get(), &info) != 0) {
      return NotFound(path + ": cannot be opened (" + ErrnoText(errno) +
                      "); check the path and its permissions");
    }
    if (!S_ISREG(info.st_mode)) {
      return Corrupt(path + ": is not a regular file; give another path");
    }
    return std::unique_ptr<ReadableFile>(new LocalReadableFile(
        path, std::move(file), static_cast<uint64_t>(info.st_size)));
  }

  Result<std::unique_ptr<NewFile>> Create(
      const std::string& path) const override {
    struct stat info = {};
    // A rename would replace a device or a pipe with a file.
    if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      return Corrupt(path + ": is not a regular file; give another path");
    }
    std::string draft = path + ".XXXXXX";
    Descriptor file(mkostemp(draft.data(), O_CLOEXEC));
    if (file.get() < 0) {
      return NotFound(path + ": cannot be created (" + ErrnoText(errno) +
                      "); check the folder and its permissions");
    }
    // mkostemp makes files for the owner alone: what people would see of the
    // texts in them is theirs to share.
    return std::unique_ptr<NewFile>(
        new LocalNewFile(path, std::move(draft), std::move(file)));
  }
};

}  // namespace

const FileSystem& LocalFileSystem() {
  static const Local local;
  return local;
}

}  // namespace lkv
