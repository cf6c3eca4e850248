#include "engine/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "base/byte_text.h"

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

// What one group leaves, or kUnlimited.
uint64_t GroupMemoryLeft(const std::string& folder, const char* limit_file,
                         const char* usage_file, const char* droppable_key) {
  auto limit = ReadNumber(folder + "/" + limit_file);
  auto usage = ReadNumber(folder + "/" + usage_file);
  if (!limit || !usage) return kUnlimited;
  uint64_t droppable =
      ReadKey(folder + "/memory.stat", droppable_key).value_or(0);
  uint64_t held = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, held);
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

uint64_t AvailableMemoryBytes(const std::string& root) {
  uint64_t n_bytes = kUnlimited;
  if (auto kib = ReadKey(root + "/proc/meminfo", "MemAvailable:")) {
    n_bytes = *kib * 1024;
  }
  for (const std::string& folder : GroupFolders(root, "")) {
    n_bytes =
        std::min(n_bytes, GroupMemoryLeft(folder, "memory.max",
                                          "memory.current", "inactive_file"));
  }
  for (const std::string& folder : GroupFolders(root, "memory")) {
    n_bytes = std::min(n_bytes, GroupMemoryLeft(folder, "memory.limit_in_bytes",
                                                "memory.usage_in_bytes",
                                                "total_inactive_file"));
  }
  return n_bytes;
}

Status CheckFits(const std::string& what, uint64_t needed_bytes,
                 uint64_t available_bytes) {
  if (needed_bytes <= available_bytes) return Status();
  return OutOfMemory(what + ": needs " + FormatBytes(needed_bytes) +
                     " of memory before any text, " +
                     FormatBytes(available_bytes) +
                     " available; free some or choose a smaller model");
}

}  // namespace lkv
