#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/errno_text.h"
#include "io/descriptor.h"
#include "io/folder.h"
#include "io/local_file_io.h"
#include "io/local_folder_files.h"

namespace lkv {
namespace {

constexpr int kLockWaitMs = 10'000;
constexpr mode_t kFileMode = S_IRUSR | S_IWUSR;
constexpr mode_t kProtectedMode = S_IRUSR;
constexpr mode_t kFolderMode = S_IRWXU;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

// What stat counts in, whatever the blocks of the file system.
constexpr uint64_t kStatBlockBytes = 512;

// flock that is not interrupted. Returns errno, 0 when it is locked.
int TryFlock(const Descriptor& file, int operation) {
  int result = 0;
  do {
    result = flock(file.get(), operation | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

class LocalFolderLock final : public FolderLock {
 public:
  explicit LocalFolderLock(Descriptor file) : file_(std::move(file)) {}
  // Closing alone would leave it locked while a process that was forked
  // meanwhile has it open, too.
  ~LocalFolderLock() override { flock(file_.get(), LOCK_UN); }

 private:
  const Descriptor file_;
};

class LocalFolder final : public Folder {
 public:
  LocalFolder(std::string path, Descriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  const std::string& path() const override { return path_; }
  ReadPath read_path() const override { return read_path_; }
  Result<std::vector<FolderEntry>> List() const override;
  Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& name) const override;
  Result<std::unique_ptr<GrowingFile>> Create(const std::string& name) override;
  Result<bool> IsInUse(const std::string& name) const override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& name) override;
  Status Protect(const std::string& name, Protection protection) override;
  Status Sync() override;
  Result<uint64_t> FreeBytes() const override;
  Result<std::unique_ptr<FolderLock>> Lock() override;

 private:
  struct Opened {
    Descriptor file;
    struct stat info = {};
  };

  std::string PathOf(const std::string& name) const {
    return path_ + "/" + name;
  }
  // A regular file; `flags` beside those that every file is opened with.
  Result<Opened> OpenRegular(const std::string& name, int flags) const;
  // The same file once more, for reading past the page cache; closed when that
  // does not work here.
  Descriptor OpenDirect(const std::string& name, const struct stat& info) const;
  // The lock file, if this call locked it.
  Result<std::optional<Descriptor>> TryLock();

  const std::string path_;
  const Descriptor folder_;
  mutable std::atomic<ReadPath> read_path_ = ReadPath::kUnknown;
};

Status NotAName(const std::string& path) {
  return InvalidArgument(path + ": is not a name within the folder");
}

Result<LocalFolder::Opened> LocalFolder::OpenRegular(const std::string& name,
                                                     int flags) const {
  if (!IsFileName(name)) return NotAName(PathOf(name));
  Opened opened;
  // O_NONBLOCK: a FIFO answers at once instead of waiting for its other end.
  opened.file = Descriptor(openat(folder_.get(), name.c_str(),
                                  flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                                  kFileMode));
  const int error = errno;
  if (!opened.file.is_open() && error == ELOOP) {
    return Corrupt(PathOf(name) + ": is a symbolic link; remove it");
  }
  if (!opened.file.is_open() && error == EEXIST) {
    return IoError(PathOf(name) + ": is there already");
  }
  if (!opened.file.is_open() && (error == ENOENT || error == EACCES)) {
    return NotFound(PathOf(name) + ": cannot be opened (" + ErrnoText(error) +
                    "); check the folder and its permissions");
  }
  if (!opened.file.is_open()) return FileRefused(PathOf(name), "opened", error);
  if (fstat(opened.file.get(), &opened.info) != 0) {
    return FileRefused(PathOf(name), "examined", errno);
  }
  if (!S_ISREG(opened.info.st_mode)) {
    return Corrupt(PathOf(name) + ": is not a regular file; remove it");
  }
  return opened;
}

Descriptor LocalFolder::OpenDirect(const std::string& name,
                                   const struct stat& info) const {
  if (info.st_size == 0 || read_path_ == ReadPath::kBuffered) {
    return Descriptor();
  }
  Result<Opened> direct = OpenRegular(name, O_RDONLY | O_DIRECT);
  // Another file may have the name by now.
  if (direct.ok() && !IsSameFile(direct->info, info)) return Descriptor();
  if (read_path_ == ReadPath::kUnknown) {
    const bool can_read =
        direct.ok() &&
        CanReadDirect(direct->file, static_cast<uint64_t>(info.st_size));
    read_path_ = can_read ? ReadPath::kDirect : ReadPath::kBuffered;
  }
  if (!direct.ok() || read_path_ != ReadPath::kDirect) return Descriptor();
  return std::move(direct->file);
}

Result<std::vector<FolderEntry>> LocalFolder::List() const {
  Descriptor file(openat(folder_.get(), ".",
                         O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return FileRefused(path_, "listed", errno);
  struct Close {
    void operator()(DIR* stream) const { closedir(stream); }
  };
  const std::unique_ptr<DIR, Close> stream(fdopendir(file.get()));
  if (stream == nullptr) return FileRefused(path_, "listed", errno);
  file.Release();
  std::vector<FolderEntry> entries;
  while (true) {
    errno = 0;
    const dirent* found = readdir(stream.get());
    if (found == nullptr && errno != 0) {
      return FileRefused(path_, "listed", errno);
    }
    if (found == nullptr) break;
    struct stat info = {};
    if (fstatat(folder_.get(), found->d_name, &info, AT_SYMLINK_NOFOLLOW) !=
        0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      return FileRefused(PathOf(found->d_name), "examined", errno);
    }
    if (!S_ISREG(info.st_mode)) continue;
    entries.push_back(
        {.name = found->d_name,
         .n_bytes = static_cast<uint64_t>(info.st_size),
         .used_bytes = static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes,
         .is_protected = (info.st_mode & S_IWUSR) == 0});
  }
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) {
              return a.name < b.name;
            });
  return entries;
}

Result<std::unique_ptr<ReadableFile>> LocalFolder::Open(
    const std::string& name) const {
  Result<Opened> opened = OpenRegular(name, O_RDONLY);
  if (!opened.ok()) return opened.status();
  if (const int error = TryFlock(opened->file, LOCK_SH); error != 0) {
    return FileRefused(PathOf(name), "opened while it is written", error);
  }
  Descriptor direct = OpenDirect(name, opened->info);
  return std::unique_ptr<ReadableFile>(new LocalFolderFile(
      PathOf(name), std::move(opened->file), std::move(direct),
      static_cast<uint64_t>(opened->info.st_size), read_path_));
}

Result<std::unique_ptr<GrowingFile>> LocalFolder::Create(
    const std::string& name) {
  Result<Opened> opened = OpenRegular(name, O_RDWR | O_CREAT | O_EXCL);
  if (!opened.ok()) return opened.status();
  if (const int error = TryFlock(opened->file, LOCK_EX); error != 0) {
    return FileRefused(PathOf(name), "locked", error);
  }
  return std::unique_ptr<GrowingFile>(
      new LocalGrowingFile(PathOf(name), std::move(opened->file)));
}

Result<bool> LocalFolder::IsInUse(const std::string& name) const {
  Result<Opened> opened = OpenRegular(name, O_RDONLY);
  if (!opened.ok()) return opened.status();
  const int error = TryFlock(opened->file, LOCK_EX);
  if (error != 0 && error != EWOULDBLOCK) {
    return FileRefused(PathOf(name), "locked", error);
  }
  return error == EWOULDBLOCK;
}

Status LocalFolder::Rename(const std::string& from, const std::string& to) {
  if (!IsFileName(from) || !IsFileName(to)) return NotAName(PathOf(to));
  if (renameat(folder_.get(), from.c_str(), folder_.get(), to.c_str()) != 0) {
    return FileRefused(PathOf(to), "put in its place", errno);
  }
  return {};
}

Status LocalFolder::Remove(const std::string& name) {
  if (!IsFileName(name)) return NotAName(PathOf(name));
  if (unlinkat(folder_.get(), name.c_str(), 0) == 0) return {};
  if (errno == ENOENT) return NotFound(PathOf(name) + ": no such file");
  return FileRefused(PathOf(name), "removed", errno);
}

Status LocalFolder::Protect(const std::string& name, Protection protection) {
  Result<Opened> opened = OpenRegular(name, O_RDONLY);
  if (!opened.ok()) return opened.status();
  const mode_t mode =
      protection == Protection::kProtected ? kProtectedMode : kFileMode;
  if (fchmod(opened->file.get(), mode) != 0) {
    return FileRefused(PathOf(name), "protected", errno);
  }
  return {};
}

Status LocalFolder::Sync() {
  if (fsync(folder_.get()) != 0) return FileRefused(path_, "made safe", errno);
  return {};
}

Result<uint64_t> LocalFolder::FreeBytes() const {
  struct statvfs info = {};
  if (fstatvfs(folder_.get(), &info) != 0) {
    return FileRefused(path_, "examined", errno);
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<std::optional<Descriptor>> LocalFolder::TryLock() {
  const std::string name(kFolderLockName);
  Result<Opened> opened = OpenRegular(name, O_RDWR | O_CREAT);
  if (!opened.ok()) return opened.status();
  const int error = TryFlock(opened->file, LOCK_EX);
  if (error == EWOULDBLOCK) return std::optional<Descriptor>();
  if (error != 0) return FileRefused(PathOf(name), "locked", error);
  // Somebody may have removed the file between the two calls; a lock on it
  // would then keep nobody out.
  struct stat now = {};
  if (fstatat(folder_.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0 ||
      !IsSameFile(now, opened->info)) {
    return std::optional<Descriptor>();
  }
  return std::optional<Descriptor>(std::move(opened->file));
}

Result<std::unique_ptr<FolderLock>> LocalFolder::Lock() {
  for (int waited_ms = 0; waited_ms < kLockWaitMs; ++waited_ms) {
    Result<std::optional<Descriptor>> lock = TryLock();
    if (!lock.ok()) return lock.status();
    if (lock->has_value()) {
      return std::unique_ptr<FolderLock>(
          new LocalFolderLock(**std::move(lock)));
    }
    const timespec pause = {.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return IoError(path_ +
                 ": another process has had it locked for 10 seconds; "
                 "wait for it or end it");
}

// kOk when the folder is the user's own and closed to others.
Status CheckFolder(const std::string& path, const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return InvalidArgument(path +
                           ": belongs to another user; give a folder of "
                           "your own");
  }
  if ((info.st_mode & kOthers) != 0) {
    return InvalidArgument(path +
                           ": others may enter it; name a folder of your own "
                           "(mode 0700)");
  }
  return {};
}

Status CannotOpenFolder(const std::string& path, int error) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    return InvalidArgument(path +
                           ": is a symbolic link; give the folder that "
                           "it stands for");
  }
  if (error == ENOTDIR) {
    return InvalidArgument(path + ": is not a folder; give another path");
  }
  return NotFound(path + ": cannot be opened (" + ErrnoText(error) +
                  "); check the path and its permissions");
}

}  // namespace

bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() <= NAME_MAX && name != "." &&
         name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<std::unique_ptr<Folder>> OpenLocalFolder(const std::string& path) {
  // A slash at the end would have a symbolic link followed.
  const size_t end = path.find_last_not_of('/');
  const std::string bare = path.substr(0, end == path.npos ? 1 : end + 1);
  if (mkdir(bare.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return NotFound(bare + ": cannot be made (" + ErrnoText(errno) +
                    "); check the folder that it is to stand in");
  }
  Descriptor folder(
      open(bare.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.is_open()) return CannotOpenFolder(bare, errno);
  struct stat info = {};
  if (fstat(folder.get(), &info) != 0) return CannotOpenFolder(bare, errno);
  if (Status s = CheckFolder(bare, info); !s.ok()) return s;
  struct Free {
    void operator()(char* text) const { std::free(text); }
  };
  const std::unique_ptr<char, Free> absolute(realpath(bare.c_str(), nullptr));
  if (absolute == nullptr) return CannotOpenFolder(bare, errno);
  return std::unique_ptr<Folder>(
      new LocalFolder(absolute.get(), std::move(folder)));
}

}  // namespace lkv
