#include "kernels/kernel_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

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

TEST(KernelInputsTest, ColdGroupsOfAnyBytesGiveOrdinaryNumbers) {
  const KernelTable& set = *SelectKernels("scalar");
  const ColdShape shape = {.head_dim = 32, .group = 2, .n_groups = 3};
  const AlignedBuffer<uint8_t> digest = SmallHalves(shape.digest_bytes());
  const AlignedBuffer<uint8_t> body = SmallHalves(shape.body_bytes());
  ColdInputs inputs(shape);
  const std::vector<const uint8_t*> digests(3, digest.data());
  const ScanColdArgs scan = inputs.ScanArgs(digests.data());
  set.scan_cold(scan);
  EXPECT_TRUE(AllFinite(scan.to.logits, 2 * scan.to.logit_stride));
  EXPECT_EQ(std::count(scan.to.logits,
                       scan.to.logits + 2 * scan.to.logit_stride, 0.0f),
            0)
      << "slots left out";
  const std::vector<ChosenColdPage> pages(12, {.body = body.data(), .page = 6});
  const AttendColdArgs attend = inputs.AttendArgs(pages);
  set.attend_cold(attend);
  EXPECT_TRUE(AllFinite(attend.o, 2 * 32));
  EXPECT_GE(attend.l[1], 1);
}

TEST(KernelInputsTest, AnEncodedGroupCanBeAttendedTo) {
  const KernelTable& set = *SelectKernels("scalar");
  const ColdShape shape = {.head_dim = 32, .group = 1, .n_groups = 1};
  const AlignedBuffer<uint8_t> exact = SmallHalves(shape.f16_bytes());
  ColdInputs inputs(shape);
  const EncodeColdArgs encode = inputs.EncodeArgs(exact.data());
  set.encode_cold(encode);
  const uint8_t* const digest = encode.digest;
  set.scan_cold(inputs.ScanArgs(&digest));
  std::vector<ChosenColdPage> pages;
  for (uint32_t i = 0; i < kColdGroupPages; ++i) {
    pages.push_back({.body = encode.bodies[i], .page = i});
  }
  const AttendColdArgs attend = inputs.AttendArgs(pages);
  set.attend_cold(attend);
  for (uint32_t d = 0; d < 32; ++d) {
    // Averages of values between 0.25 and 0.5.
    EXPECT_GE(attend.o[d] / attend.l[0], 0.25f);
    EXPECT_LE(attend.o[d] / attend.l[0], 0.5f);
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
