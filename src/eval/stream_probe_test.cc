#include "eval/stream_probe.h"

#include <gtest/gtest.h>

#include "testing/resident_bytes.h"

namespace lkv {
namespace {

TEST(StreamProbeTest, ReadsMemoryThatIsThere) {
  const size_t before = ResidentBytes();
  ThreadTeam team(1);
  StreamProbe probe(team);
  EXPECT_GT(ResidentBytes(), before + (size_t{250} << 20));
  EXPECT_GT(probe.MeasureGigabytesPerSecond(), 0);
}

}  // namespace
}  // namespace lkv
