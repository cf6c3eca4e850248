#include "gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/byte_text.h"
#include "base/errno_text.h"

namespace lkv {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer answers at once instead of waiting.
  FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    return NotFound(path + ": cannot be opened (" + ErrnoText(errno) +
                    "); check the path and its permissions");
  }
  struct stat info = {};
  if (fstat(file.fd, &info) != 0) {
    return NotFound(path + ": cannot be examined (" + ErrnoText(errno) +
                    "); check the file system");
  }
  if (S_ISDIR(info.st_mode)) {
    return Corrupt(path + ": is a folder; give the GGUF file inside it");
  }
  if (!S_ISREG(info.st_mode)) {
    return Corrupt(path + ": is not a regular file; give a GGUF model file");
  }
  if (info.st_size == 0) {
    return Corrupt(path + ": is empty; fetch the file again");
  }
  const auto n_bytes = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) {
    return OutOfMemory(path + ": cannot be mapped to " + FormatBytes(n_bytes) +
                       " of addresses (" + ErrnoText(errno) +
                       "); raise the limit of this process (ulimit -v)");
  }
  MappedFile mapped({static_cast<const uint8_t*>(address), n_bytes});
  if (!mapped.guard_) {
    return OutOfMemory(path + ": more than " +
                       std::to_string(TruncationGuard::kMaxGuards) +
                       " files are open; close some models");
  }
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_.reset();
  if (!bytes_.empty()) {
    munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  }
}

void MappedFile::DropPages(std::span<const uint8_t> part) const {
  // madvise wants a page border in front. The neighbours on a shared page are
  // read again when they are needed.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - bytes_.data());
  const size_t begin = offset / page * page;
  madvise(const_cast<uint8_t*>(bytes_.data()) + begin,
          offset + part.size() - begin, MADV_DONTNEED);
}

}  // namespace lkv
