#include "eval/io_speed.h"

#include <gtest/gtest.h>

#include "testing/test_paths.h"

namespace lkv {
namespace {

TEST(IoSpeedTest, EveryMethodIsMeasuredAtEveryDepth) {
  const TempFolder temp;
  const auto rows = MeasureIoSpeed({.folder = temp.File("ours"),
                                    .depths = {1, 8},
                                    .file_bytes = 1 << 20,
                                    .n_reads = 50,
                                    .n_passes = 2},
                                   [] { return false; });
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  // Two methods, or one where io_uring is denied.
  ASSERT_TRUE(rows->size() == 4 || rows->size() == 2);
  EXPECT_EQ(rows->back().method, "threads");
  for (const IoSpeedRow& row : *rows) {
    EXPECT_GT(row.reads_per_second, 0);
    EXPECT_GT(row.latency_p50_us, 0);
    EXPECT_LE(row.latency_p50_us, row.latency_p99_us);
    EXPECT_LE(row.submit_p50_us, row.submit_p99_us);
    EXPECT_LE(row.submit_p50_us, row.latency_p50_us);
    EXPECT_GT(row.cpu_us, 0);
    EXPECT_NE(row.description.find("the page cache"), std::string::npos);
  }
  EXPECT_EQ((*rows)[0].depth, 1u);
  EXPECT_EQ((*rows)[1].depth, 8u);
}

TEST(IoSpeedTest, StopsOnRequestAndNamesAFolderThatCannotBeUsed) {
  const TempFolder temp;
  IoSpeedOptions options = {.folder = temp.File("ours"), .file_bytes = 1 << 20};
  EXPECT_EQ(MeasureIoSpeed(options, [] { return true; }).status().code(),
            StatusCode::kCancelled);
  options.folder = temp.File("missing/ours");
  const Status refusal = MeasureIoSpeed(options, [] { return false; }).status();
  EXPECT_NE(refusal.message().find("missing/ours"), std::string::npos);
}

}  // namespace
}  // namespace lkv
