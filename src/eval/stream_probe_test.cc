#include "eval/stream_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

namespace lkv {
namespace {

// Bytes of this process that are in memory now.
size_t ResidentBytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  EXPECT_NE(f, nullptr);
  unsigned long total = 0;
  unsigned long resident = 0;
  EXPECT_EQ(std::fscanf(f, "%lu %lu", &total, &resident), 2);
  std::fclose(f);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(StreamProbeTest, ReadsMemoryThatIsThere) {
  const size_t before = ResidentBytes();
  ThreadTeam team(1);
  StreamProbe probe(team);
  EXPECT_GT(ResidentBytes(), before + (size_t{250} << 20));
  EXPECT_GT(probe.MeasureGigabytesPerSecond(), 0);
}

}  // namespace
}  // namespace lkv
