#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace lkv {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The first word of a file as a number; empty for "max", "-1" or no file.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in.peek() == '-' || !(in >> value)) return std::nullopt;
  return value;
}

// The number behind `key` in a file of "key value" lines.
std::optional<uint64_t> ReadKey(const std::string& path,
                                const std::string& key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// Directories of the control groups that limit this process for a controller
// ("" in version 2), from its own group up to the root: a limit binds whatever
// is below it.
std::vector<std::string> GroupFolders(const std::string& root,
                                      const std::string& controller) {
  std::string mount = root + "/sys/fs/cgroup";
  if (!controller.empty()) mount += "/" + controller;
  std::vector<std::string> folders;
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {  // "<id>:<controllers>:<path>"
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string names(1, ',');
    names.append(line, first + 1, second - first - 1).append(1, ',');
    bool ours = controller.empty()
                    ? names == ",,"
                    : names.find("," + controller + ",") != std::string::npos;
    if (!ours) continue;
    std::string path = line.substr(second + 1);
    while (!path.empty() && path != "/") {
      folders.push_back(mount + path);
      path.resize(path.find_last_of('/'));
    }
  }
  folders.push_back(mount);
  return folders;
}

// The files in which a version of control groups speaks of memory.
struct MemoryFiles {
  const char* controller;
  const char* limit;
  const char* usage;
  const char* droppable_key;  // in memory.stat
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"", "memory.max", "memory.current", "inactive_file"},
    {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

// What one group leaves, or kUnlimited.
uint64_t GroupMemoryLeft(const std::string& folder, const MemoryFiles& files) {
  auto limit = ReadNumber(folder + "/" + files.limit);
  auto usage = ReadNumber(folder + "/" + files.usage);
  if (!limit || !usage) return kUnlimited;
  uint64_t droppable =
      ReadKey(folder + "/memory.stat", files.droppable_key).value_or(0);
  uint64_t held = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, held);
}

// A limit that the process runs under and what counts against it.
struct ProcessLimit {
  const char* limit;  // in /proc/self/limits
  const char* usage;  // in /proc/self/status, in KiB
};
constexpr ProcessLimit kProcessLimits[] = {
    {"Max address space", "VmSize:"},  // ulimit -v
    {"Max data size", "VmData:"},      // ulimit -d
};

// The soft limit of that name in bytes, or kUnlimited.
uint64_t ReadProcessLimit(const std::string& root, std::string_view name) {
  std::ifstream in(root + "/proc/self/limits");
  std::string line;
  while (std::getline(in, line)) {  // "<name>   <soft> <hard> <unit>"
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    uint64_t n_bytes = 0;
    if (words >> n_bytes) return n_bytes;  // else "unlimited"
  }
  return kUnlimited;
}

}  // namespace

uint32_t UsableCores(const std::string& root) {
  cpu_set_t mask;
  uint64_t n_cores = 1;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
    n_cores = CPU_COUNT(&mask);
  // A quota of 1.5 cores is one core: a second thread of a team would be
  // stopped in the middle of every period, and the team with it.
  auto cut = [&](uint64_t quota_us, uint64_t period_us) {
    if (period_us > 0) n_cores = std::min(n_cores, quota_us / period_us);
  };
  for (const std::string& folder : GroupFolders(root, "")) {
    std::ifstream in(folder + "/cpu.max");
    uint64_t quota_us = 0, period_us = 0;
    if (in >> quota_us >> period_us) cut(quota_us, period_us);
  }
  for (const std::string& folder : GroupFolders(root, "cpu")) {
    auto quota_us = ReadNumber(folder + "/cpu.cfs_quota_us");
    auto period_us = ReadNumber(folder + "/cpu.cfs_period_us");
    if (quota_us && period_us) cut(*quota_us, *period_us);
  }
  return static_cast<uint32_t>(std::max<uint64_t>(n_cores, 1));
}

uint64_t TotalMemoryBytes(const std::string& root) {
  uint64_t n_bytes = kUnlimited;
  if (auto kib = ReadKey(root + "/proc/meminfo", "MemTotal:")) {
    n_bytes = *kib * 1024;
  }
  for (const MemoryFiles& files : kMemoryFiles) {
    for (const std::string& folder : GroupFolders(root, files.controller)) {
      auto limit = ReadNumber(folder + "/" + files.limit);
      n_bytes = std::min(n_bytes, limit.value_or(kUnlimited));
    }
  }
  for (const ProcessLimit& limit : kProcessLimits) {
    n_bytes = std::min(n_bytes, ReadProcessLimit(root, limit.limit));
  }
  return n_bytes;
}

uint64_t AvailableMemoryBytes(const std::string& root) {
  uint64_t n_bytes = kUnlimited;
  if (auto kib = ReadKey(root + "/proc/meminfo", "MemAvailable:")) {
    n_bytes = *kib * 1024;
  }
  for (const MemoryFiles& files : kMemoryFiles) {
    for (const std::string& folder : GroupFolders(root, files.controller)) {
      n_bytes = std::min(n_bytes, GroupMemoryLeft(folder, files));
    }
  }
  return n_bytes;
}

uint64_t AvailableAddressBytes(const std::string& root) {
  uint64_t n_bytes = kUnlimited;
  for (const ProcessLimit& limit : kProcessLimits) {
    const uint64_t allowed = ReadProcessLimit(root, limit.limit);
    if (allowed == kUnlimited) continue;
    const uint64_t used_kib =
        ReadKey(root + "/proc/self/status", limit.usage).value_or(0);
    n_bytes = std::min(n_bytes, allowed - std::min(allowed, used_kib * 1024));
  }
  return n_bytes;
}

}  // namespace lkv
