#include "eval/kernel_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lkv {
namespace {

std::vector<KernelSpeedRow> Measure(const std::string& filter,
                                    uint32_t n_passes = 1) {
  ThreadTeam team(2);
  const KernelSpeedOptions options = {.filter = filter,
                                      .n_passes = n_passes,
                                      .working_set_bytes = size_t{12} << 20};
  return MeasureKernelSpeed(*SelectKernels(nullptr), team, options, {},
                            [] { return false; });
}

TEST(KernelSpeedTest, MemoryBoundKernelsStandBesideAStreamingRead) {
  const std::vector<KernelSpeedRow> rows = Measure("decode/", 3);
  ASSERT_FALSE(rows.empty());
  for (const KernelSpeedRow& row : rows) {
    SCOPED_TRACE(row.kernel);
    EXPECT_GT(row.gb_s, 0);
    EXPECT_GT(row.ratio_min, 0);
    EXPECT_LE(row.ratio_min, row.ratio_to_stream);
    EXPECT_LE(row.ratio_to_stream, row.ratio_max);
    EXPECT_EQ(row.gflop_s, 0);
    EXPECT_EQ(row.n_threads, 2u);
    EXPECT_EQ(row.isa, SelectKernels(nullptr)->name);
  }
}

TEST(KernelSpeedTest, EveryKindOfKernelIsMeasuredOnSeveralShapes) {
  const std::vector<KernelSpeedRow> rows = Measure("");
  const auto count = [&](const std::string& part) {
    return std::count_if(rows.begin(), rows.end(), [&](const auto& row) {
      return row.kernel.find(part) != std::string::npos;
    });
  };
  EXPECT_EQ(count("matvec/"), 2 * 8);  // two widths; formats by activations
  EXPECT_EQ(count("matmul/"), 2 * 8);
  EXPECT_EQ(count("decode/"), 3 * 3 * 4);  // three shapes of heads, three types
  EXPECT_EQ(count("/extents"), 3 * 3);
  EXPECT_EQ(count("/shuffled"), 3 * 3);
  EXPECT_EQ(count("/masses"), 3 * 3);
  EXPECT_EQ(count("prefill/") - count("/bf16products"), 3 * 3);
  const KernelTable& kernels = *SelectKernels(nullptr);
  const bool has_bf16 =
      kernels.attend_prefill_bf16[0] != kernels.attend_prefill[0];
  EXPECT_EQ(count("/bf16products"), has_bf16 ? 3 * 3 : 0);
  EXPECT_EQ(count("scan_cold/"), 3);
  EXPECT_EQ(count("attend_cold/"), 3);
  EXPECT_EQ(count("encode_cold/"), 2);
  EXPECT_EQ(rows.size(), 2u * 16 + 3 * 3 * (has_bf16 ? 6 : 5) + 3 + 3 + 2);
  for (const KernelSpeedRow& row : rows) {
    EXPECT_NE(row.gb_s > 0, row.gflop_s > 0) << row.kernel;
    EXPECT_GT(row.n, 0u);
  }
}

TEST(KernelSpeedTest, FilterLeavesOutTheRest) {
  const std::vector<KernelSpeedRow> rows = Measure("tile4/x16");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].kernel, "matvec/tile4/x16");
  EXPECT_EQ(rows[0].n, 576u);
  EXPECT_EQ(rows[3].kernel, "matmul/tile4/x16");
  EXPECT_EQ(rows[3].n, 4096u);
  EXPECT_TRUE(Measure("no such kernel").empty());
}

TEST(KernelSpeedTest, CancelledReturnsWhatThereIs) {
  uint32_t n_rows = 0;
  ThreadTeam team(1);
  const auto rows = MeasureKernelSpeed(
      *SelectKernels(nullptr), team,
      {.filter = "matvec",
       .n_passes = 1,
       .working_set_bytes = size_t{12} << 20},
      [&](const KernelSpeedRow&) { ++n_rows; }, [&] { return n_rows == 2; });
  EXPECT_EQ(rows.size(), 2u);
}

}  // namespace
}  // namespace lkv
