#include "kernels/kernel_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lkv {
namespace {

bool AllFinite(const float* values, size_t n) {
  return std::all_of(values, values + n,
                     [](float x) { return std::isfinite(x); });
}

AlignedBuffer<uint8_t> SmallHalves(size_t n_bytes) {
  AlignedBuffer<uint8_t> bytes(n_bytes);
  FillWithSmallHalves(bytes.span());
  return bytes;
}

// Subnormal numbers, infinities and NaN would make a kernel slower or take
// other branches.
TEST(KernelInputsTest, ProductsOfEveryFormatAreOrdinaryNumbers) {
  const KernelTable& set = *SelectKernels("scalar");
  for (size_t format = 0; format < kWeightFormats; ++format) {
    for (QuantizeBits bits : {QuantizeBits::k8, QuantizeBits::k16}) {
      const MatmulShape shape = {.format = static_cast<WeightFormat>(format),
                                 .bits = bits,
                                 .n_row_tiles = 3,
                                 .n_columns = 64,
                                 .n_tokens = 2};
      SCOPED_TRACE(NameOf(shape.format));
      const AlignedBuffer<uint8_t> tiles = SmallHalves(shape.matrix_bytes());
      MatmulInputs inputs(set, shape);
      const MatmulArgs args = inputs.Args(tiles.data());
      EXPECT_EQ(args.quantized.low != nullptr, bits == QuantizeBits::k16);
      set.matmul[format](args);
      const size_t n = args.n_tokens * args.y_stride;
      EXPECT_TRUE(AllFinite(args.y, n));
      EXPECT_EQ(std::count(args.y, args.y + n, 0.0f), 0) << "rows left out";
    }
  }
}

TEST(KernelInputsTest, TheMassOfALaneOfAnyLengthIsOne) {
  const KernelTable& set = *SelectKernels("scalar");
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    for (uint32_t n_slots : {1u, 16u, kAttendChunkSlots + 7}) {
      const LaneShape shape = {
          .type = type, .head_dim = 32, .group = 2, .n_slots = n_slots};
      SCOPED_TRACE(n_slots);
      const AlignedBuffer<uint8_t> pool =
          SmallHalves(shape.n_pages() * shape.page_bytes());
      const std::vector<const uint8_t*> pages = shape.ListPages(pool.data());
      DecodeInputs inputs(shape);
      set.attend_decode[static_cast<size_t>(type)](
          inputs.Args(pages.data(), KeepMass::kYes));
      const ReduceMassArgs args = inputs.MassArgs();
      set.reduce_mass(args);
      EXPECT_NEAR(
          std::accumulate(args.mass_mean, args.mass_mean + n_slots, 0.0), 1,
          1e-5);
    }
  }
}

TEST(KernelInputsTest, EveryQueryOfAPrefillHasAnOutput) {
  const KernelTable& set = *SelectKernels("scalar");
  const LaneShape shape = {
      .type = KvType::kF16, .head_dim = 32, .group = 2, .n_slots = 40};
  const AlignedBuffer<uint8_t> pool =
      SmallHalves(shape.n_pages() * shape.page_bytes());
  const std::vector<const uint8_t*> pages = shape.ListPages(pool.data());
  PrefillInputs inputs(shape, 5, {1, 4});
  const AttendPrefillArgs args = inputs.Args(pages.data());
  set.attend_prefill[0](args);
  const size_t n = 5 * args.out_stride;
  EXPECT_TRUE(AllFinite(args.out, n));
  // Averages of values between 0.25 and 0.5.
  EXPECT_GE(*std::min_element(args.out, args.out + n), 0.25f);
  EXPECT_LE(*std::max_element(args.out, args.out + n), 0.5f);
}

}  // namespace
}  // namespace lkv
