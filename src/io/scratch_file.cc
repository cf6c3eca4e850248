#include "io/scratch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "io/local_file_io.h"
#include "io/secret_key.h"
#include "io/sha256.h"

namespace lkv {
namespace {

constexpr std::string_view kSuffix = ".scratch";
constexpr size_t kNameBytes = 16;

// Under the folder's lock: a file that somebody makes at this moment is in use
// from its first moment on.
Status RemoveLeftOvers(Folder& folder) {
  const Result<std::vector<FolderEntry>> entries = folder.List();
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    if (!IsScratchName(entry.name)) continue;
    const Result<bool> in_use = folder.IsInUse(entry.name);
    if (in_use.ok() && *in_use) continue;
    // Whoever used it has removed it himself meanwhile.
    if (in_use.status().code() == StatusCode::kNotFound) continue;
    if (!in_use.ok()) return in_use.status();
    const Status s = folder.Remove(entry.name);
    if (!s.ok() && s.code() != StatusCode::kNotFound) return s;
  }
  return {};
}

}  // namespace

bool IsScratchName(std::string_view name) {
  return name.size() == 2 * kNameBytes + kSuffix.size() &&
         name.ends_with(kSuffix) &&
         std::all_of(name.begin(), name.begin() + 2 * kNameBytes, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<std::unique_ptr<ScratchFile>> ScratchFile::Create(Folder& folder) {
  const Result<std::unique_ptr<FolderLock>> lock = folder.Lock();
  if (!lock.ok()) return lock.status();
  if (Status s = RemoveLeftOvers(folder); !s.ok()) return s;
  std::array<uint8_t, kNameBytes> name;
  FillRandom(name);
  std::string path = folder.path() + "/" + HexText(name);
  path += kSuffix;
  Descriptor file(open(path.c_str(),
                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       S_IRUSR | S_IWUSR));
  if (!file.is_open()) return FileRefused(path, "made", errno);
  std::unique_ptr<ScratchFile> made(
      new ScratchFile(std::move(path), std::move(file)));
  if (flock(made->descriptor(), LOCK_EX | LOCK_NB) != 0) {
    return FileRefused(made->path(), "locked", errno);
  }
  return made;
}

ScratchFile::~ScratchFile() { unlink(path_.c_str()); }

int ScratchFile::Set(Cache cache) {
  const int flags = fcntl(file_.get(), F_GETFL);
  if (flags < 0) return errno;
  const int wanted =
      cache == Cache::kPass ? flags | O_DIRECT : flags & ~O_DIRECT;
  return fcntl(file_.get(), F_SETFL, wanted) == 0 ? 0 : errno;
}

Result<uint64_t> ScratchFile::FreeBytes() const {
  struct statvfs info = {};
  if (fstatvfs(file_.get(), &info) != 0) {
    return FileRefused(path_, "examined", errno);
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace lkv
