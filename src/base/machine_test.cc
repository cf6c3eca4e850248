#include "base/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

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

  // As the kernel prints them; soft limits.
  void WriteLimits(const std::string& address_space, const std::string& data) {
    Write("/proc/self/limits",
          "Limit                     Soft Limit   Hard Limit   Units\n"
          "Max data size             " +
              data +
              "   unlimited    bytes\n"
              "Max address space         " +
              address_space + "   unlimited    bytes\n");
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

TEST_F(MachineTest, AnAffinityMaskOfOneCoreIsOneCore) {
  uint32_t n_cores = 0;
  // A thread of its own: the mask belongs to it.
  std::thread([&] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int core = 0;
    while (!CPU_ISSET(core, &mask)) ++core;
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    n_cores = UsableCores(root_);
  }).join();
  EXPECT_EQ(n_cores, 1u);
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

TEST_F(MachineTest, AddressesAreWhatTheProcessLimitsLeave) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(AvailableAddressBytes(root_), kNoLimit);
  Write("/proc/self/status",
        "VmPeak:  9 kB\nVmSize:  30720 kB\nVmData: 5120 kB\n");
  WriteLimits("unlimited", "unlimited");
  EXPECT_EQ(AvailableAddressBytes(root_), kNoLimit);
  WriteLimits("104857600", "unlimited");
  EXPECT_EQ(AvailableAddressBytes(root_), 70 * kMiB);
  WriteLimits("104857600", "26214400");
  EXPECT_EQ(AvailableAddressBytes(root_), 20 * kMiB);
  WriteLimits("unlimited", "1048576");  // lowered below what is in use
  EXPECT_EQ(AvailableAddressBytes(root_), 0u);
}

// What other processes do must not move it.
TEST_F(MachineTest, TotalMemoryIsTheTightestLimitWhateverIsUsed) {
  EXPECT_EQ(TotalMemoryBytes(root_), std::numeric_limits<uint64_t>::max());
  Write("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 2048 kB\n");
  EXPECT_EQ(TotalMemoryBytes(root_), 1024 * kMiB);
  Write("/proc/self/cgroup", "4:memory:/job\n0::/outer/inner\n");
  Write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("/sys/fs/cgroup/outer/memory.max", "209715200\n");
  Write("/sys/fs/cgroup/outer/memory.current", "188743680\n");
  EXPECT_EQ(TotalMemoryBytes(root_), 200 * kMiB);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "157286400\n");
  EXPECT_EQ(TotalMemoryBytes(root_), 150 * kMiB);
  WriteLimits("104857600", "unlimited");
  EXPECT_EQ(TotalMemoryBytes(root_), 100 * kMiB);
}

}  // namespace
}  // namespace lkv
