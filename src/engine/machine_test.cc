#include "engine/machine.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace lkv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A tree of files that stands in for /proc and /sys.
class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    std::string pattern = testing::TempDir() + "machine_test_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, MemoryIsWhatTheKernelCallsAvailable) {
  Write("/proc/meminfo",
        "MemTotal: 4096 kB\nMemFree: 10 kB\nMemAvailable: 2048 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 2 * kMiB);
}

TEST_F(MachineTest, MemoryIsCutToTheTightestGroup) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("/sys/fs/cgroup/outer/inner/memory.current", "1048576\n");
  Write("/sys/fs/cgroup/outer/memory.max", "104857600\n");     // 100 MiB
  Write("/sys/fs/cgroup/outer/memory.current", "94371840\n");  // 90 MiB
  Write("/sys/fs/cgroup/outer/memory.stat",
        "active_file 7\ninactive_file 20971520\n");  // 20 MiB
  EXPECT_EQ(AvailableMemoryBytes(root_), 30 * kMiB);
}

TEST_F(MachineTest, MemoryOfVersionOneGroupsCounts) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "67108864\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "16777216\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 48 * kMiB);
}

TEST_F(MachineTest, MemoryUsedBeyondTheLimitLeavesNothing) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1048576\n");
  Write("/sys/fs/cgroup/memory.current", "2097152\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0u);
}

TEST_F(MachineTest, UnknownMemoryIsNoLimit) {
  EXPECT_EQ(AvailableMemoryBytes(root_), std::numeric_limits<uint64_t>::max());
}

TEST_F(MachineTest, CoresAreCutToTheQuotaRoundedDown) {
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/cpu.max", "190000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1u);
}

TEST_F(MachineTest, LessThanACoreIsStillOne) {
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1u);
}

TEST_F(MachineTest, VersionOneQuotaCuts) {
  Write("/proc/self/cgroup", "2:cpu,cpuacct:/job\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 1u);
}

TEST_F(MachineTest, NoQuotaLeavesTheAffinityMask) {
  Write("/proc/self/cgroup", "0::/job\n");
  const uint32_t unlimited = UsableCores(root_);
  EXPECT_GE(unlimited, 1u);
  Write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), unlimited);
}

TEST(CheckFitsTest, RefusalNamesBothNumbers) {
  EXPECT_TRUE(CheckFits("m.gguf", 5 * kMiB, 5 * kMiB).ok());
  const Status refused = CheckFits("m.gguf", 5 * kMiB + 1, 5 * kMiB);
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory);
  const std::string message(CheckFits("m.gguf", 7 * kMiB, 5 * kMiB).message());
  EXPECT_NE(message.find("m.gguf"), std::string::npos);
  EXPECT_NE(message.find("7.0 MiB"), std::string::npos);
  EXPECT_NE(message.find("5.0 MiB"), std::string::npos);
}

}  // namespace
}  // namespace lkv
