#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

constexpr size_t kLengths[] = {1, 7, 8, 15, 16, 17, 31, 64, 100, 576};

struct Quantized {
  std::vector<int8_t> high, low;
  std::vector<float> scale, sums;

  Quantized(const KernelTable& set, const std::vector<float>& x, bool with_low)
      : high(x.size()),
        low(with_low ? x.size() : 0),
        scale(x.size() / 32),
        sums(x.size() / 16) {
    set.quantize_row(x.data(), x.size(), high.data(),
                     with_low ? low.data() : nullptr, scale.data(),
                     sums.data());
  }

  double Value(size_t i) const {
    int quant = low.empty() ? high[i] : 256 * high[i] + low[i];
    return double{scale[i / 32]} * quant;
  }
};

TEST(QuantizeRowTest, IsWithinHalfAStep) {
  Random random(1);
  std::vector<float> x = random.Activations(640);
  for (bool with_low : {false, true}) {
    Quantized got(*SelectKernels("scalar"), x, with_low);
    double n_steps = with_low ? 32639 : 127;
    for (size_t b = 0; b < x.size(); b += 32) {
      double amplitude = 0;
      for (size_t i = b; i < b + 32; ++i) {
        amplitude = std::max(amplitude, std::fabs(double{x[i]}));
      }
      EXPECT_NEAR(got.scale[b / 32] * n_steps, amplitude, 1e-6 * amplitude);
      for (size_t i = b; i < b + 32; ++i) {
        ASSERT_NEAR(got.Value(i), x[i], 0.501 * got.scale[b / 32]) << i;
      }
      for (size_t half = b; half < b + 32; half += 16) {
        double sum = 0;
        for (size_t i = half; i < half + 16; ++i) sum += got.Value(i);
        ASSERT_NEAR(got.sums[half / 16], sum, 1e-6 * 16 * amplitude);
      }
    }
  }
}

TEST(QuantizeRowTest, EverySetGivesTheSameBits) {
  Random random(2);
  std::vector<float> x = random.Activations(1024);
  for (size_t i = 32; i < 64; ++i) x[i] = 0;
  for (size_t i = 64; i < 96; ++i) x[i] *= 1e-37f;  // counts as zero
  for (size_t i = 96; i < 128; ++i) x[i] *= 1e35f;
  for (size_t i = 128; i < 160; ++i) x[i] = i % 2 == 0 ? -3.0f : 3.0f;
  for (bool with_low : {false, true}) {
    Quantized expected(*SelectKernels("scalar"), x, with_low);
    for (size_t i = 32; i < 96; ++i) EXPECT_EQ(expected.Value(i), 0);
    for (const KernelTable* set : AllSets()) {
      Quantized got(*set, x, with_low);
      EXPECT_EQ(got.high, expected.high) << set->name;
      EXPECT_EQ(got.low, expected.low) << set->name;
      EXPECT_EQ(got.scale, expected.scale) << set->name;
      EXPECT_EQ(got.sums, expected.sums) << set->name;
    }
  }
}

TEST(RmsNormTest, EverySetAgreesWithDoublePrecision) {
  Random random(3);
  for (size_t n : kLengths) {
    std::vector<float> x = random.Activations(n);
    std::vector<float> weight = random.Activations(n);
    double squares = 0;
    for (float value : x) squares += double{value} * value;
    double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (const KernelTable* set : AllSets()) {
      std::vector<float> out(n);
      set->rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
      for (size_t i = 0; i < n; ++i) {
        double expected = x[i] * factor * weight[i];
        ASSERT_NEAR(out[i], expected, 2e-6 * std::fabs(expected))
            << set->name << " " << n;
      }
    }
  }
}

TEST(SiluMultiplyTest, EverySetAgreesWithDoublePrecision) {
  Random random(4);
  for (size_t n : kLengths) {
    std::vector<float> gate(n), up = random.Activations(n);
    for (float& x : gate) x = random.Uniform(-60, 60);
    for (const KernelTable* set : AllSets()) {
      std::vector<float> out(n);
      set->silu_multiply(gate.data(), up.data(), n, out.data());
      for (size_t i = 0; i < n; ++i) {
        double g = gate[i];
        double expected = g / (1 + std::exp(-g)) * up[i];
        ASSERT_NEAR(out[i], expected, 1e-6 * std::fabs(expected))
            << set->name << " " << n;
      }
    }
  }
}

TEST(SiluMultiplyTest, FarOutItIsZeroOrTheGate) {
  std::vector<float> gate = {-1e30f, -1000, -89, 89, 1000, 1e30f};
  std::vector<float> up(gate.size(), 1.0f);
  for (const KernelTable* set : AllSets()) {
    std::vector<float> out(gate.size());
    set->silu_multiply(gate.data(), up.data(), gate.size(), out.data());
    for (size_t i = 1; i < 3; ++i) EXPECT_NEAR(out[i], 0, 1e-30) << set->name;
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(out[i], gate[i]) << set->name;
  }
}

TEST(AddTest, AddsEveryElement) {
  Random random(5);
  for (size_t n : kLengths) {
    std::vector<float> a = random.Activations(n), b = random.Activations(n);
    for (const KernelTable* set : AllSets()) {
      std::vector<float> out(n);
      set->add(a.data(), b.data(), n, out.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], a[i] + b[i]);
    }
  }
}

TEST(AddTest, MayAddInPlace) {
  Random random(6);
  std::vector<float> a = random.Activations(100), b = random.Activations(100);
  for (const KernelTable* set : AllSets()) {
    std::vector<float> sum = a;
    set->add(sum.data(), b.data(), 100, sum.data());
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(sum[i], a[i] + b[i]);
  }
}

TEST(RopeTest, BothOrdersRotateTheirPairs) {
  Random random(7);
  for (size_t n_pairs : {1, 3, 8, 10, 16, 20, 32, 40, 64, 128}) {
    std::vector<float> x = random.Activations(2 * n_pairs);
    std::vector<float> cosine(n_pairs), sine(n_pairs);
    for (size_t i = 0; i < n_pairs; ++i) {
      float angle = random.Uniform(-4, 4);
      cosine[i] = std::cos(angle);
      sine[i] = std::sin(angle);
    }
    for (const KernelTable* set : AllSets()) {
      for (bool neox : {false, true}) {
        std::vector<float> got = x;
        auto rope = neox ? set->rope_neox : set->rope_normal;
        rope(got.data(), cosine.data(), sine.data(), n_pairs);
        for (size_t i = 0; i < n_pairs; ++i) {
          size_t a = neox ? i : 2 * i;
          size_t b = neox ? i + n_pairs : 2 * i + 1;
          double c = cosine[i];
          double s = sine[i];
          ASSERT_NEAR(got[a], x[a] * c - x[b] * s, 2e-6) << set->name;
          ASSERT_NEAR(got[b], x[b] * c + x[a] * s, 2e-6) << set->name;
        }
      }
    }
  }
}

TEST(EmaF16Test, MovesTheAverageByItsShare) {
  Random random(8);
  for (size_t n : kLengths) {
    std::vector<uint16_t> before(n);
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) {
      before[i] = F32ToF16(random.Uniform(0, 0.01f) * kMassScale);
      x[i] = random.Uniform(0, 0.01f);
    }
    for (const KernelTable* set : AllSets()) {
      std::vector<uint16_t> ema = before;
      set->ema_f16(ema.data(), x.data(), n, 0.9f);
      for (size_t i = 0; i < n; ++i) {
        double expected = 0.9 * F16ToF32(before[i]) / kMassScale + 0.1 * x[i];
        // One f16 step of 2^-11 at most.
        ASSERT_NEAR(F16ToF32(ema[i]) / kMassScale, expected, 6e-4 * expected)
            << set->name;
      }
    }
  }
}

TEST(TwoLayerTest, ComputesTheNetworkForEveryRow) {
  constexpr uint32_t kInputs = 3;
  constexpr uint32_t kHidden = 5;
  Random random(9);
  const auto draw = [&](size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = random.Uniform(-2, 2);
    return values;
  };
  const auto inner = draw(kHidden * kInputs);
  const auto hidden_bias = draw(kHidden);
  const auto outer = draw(kHidden);
  const auto direct = draw(kInputs);
  for (size_t n : kLengths) {
    const size_t stride = n + 3;
    const auto x = draw(kInputs * stride);
    for (const KernelTable* set : AllSets()) {
      std::vector<float> y(n + 1, 77.0f);
      set->two_layer({.x = x.data(),
                      .x_stride = stride,
                      .n_rows = n,
                      .n_inputs = kInputs,
                      .n_hidden = kHidden,
                      .inner = inner.data(),
                      .hidden_bias = hidden_bias.data(),
                      .outer = outer.data(),
                      .direct = direct.data(),
                      .bias = 0.25f,
                      .y = y.data()});
      for (size_t i = 0; i < n; ++i) {
        double expected = 0.25;
        for (size_t j = 0; j < kInputs; ++j) {
          expected += double{direct[j]} * x[j * stride + i];
        }
        for (size_t h = 0; h < kHidden; ++h) {
          double hidden = hidden_bias[h];
          for (size_t j = 0; j < kInputs; ++j) {
            hidden += double{inner[h * kInputs + j]} * x[j * stride + i];
          }
          expected += outer[h] * std::max(hidden, 0.0);
        }
        // Some 30 roundings of values below 100.
        ASSERT_NEAR(y[i], expected, 1e-4) << set->name;
      }
      EXPECT_EQ(y[n], 77.0f) << set->name << " writes past its rows";
    }
  }
}

TEST(EmaF16Test, KeepsMassesOfOneInAMillion) {
  for (const KernelTable* set : AllSets()) {
    std::vector<uint16_t> ema(16, 0);
    std::vector<float> x(16, 1e-6f);
    for (int step = 0; step < 200; ++step) {
      set->ema_f16(ema.data(), x.data(), 16, 0.9f);
    }
    for (uint16_t half : ema) {
      EXPECT_NEAR(F16ToF32(half) / kMassScale, 1e-6, 1e-8) << set->name;
    }
  }
}

// The vector sets' own exp, seen through the probabilities of logits that are
// exactly one key's first dimension times q.
TEST(ExpTest, IsWithin2e7OfExpOverItsRange) {
  Random random(9);
  std::vector<float> logits = {-std::numeric_limits<float>::infinity(), -1000,
                               -88, -87.5f, 0};
  for (uint16_t half = 0x8001; half < 0xd580; half += 3) {  // to -88
    logits.push_back(F16ToF32(half));
  }
  for (float q0 : {1.0f, 0.3719f}) {
    for (const KernelTable* set : AllSets()) {
      for (size_t first = 0; first < logits.size(); first += 255) {
        uint32_t n = static_cast<uint32_t>(
            std::min<size_t>(256, logits.size() - first + 1));
        TestLane lane(KvType::kF16, 16, n, &random);
        std::fill(lane.pool.begin(), lane.pool.end(), 0);
        // Slot 0 has the largest logit of its chunk, 0.
        for (uint32_t i = 1; i < n; ++i) {
          lane.KeyHalf(i, 0) = F32ToF16(logits[first + i - 1]);
        }
        std::vector<float> q(16), o(16), p((n + 15) / 16 * 16);
        q[0] = q0;
        float m, l, p_max;
        set->attend_decode[0]({.run = lane.Run(n),
                               .group = 1,
                               .q = q.data(),
                               .m = &m,
                               .l = &l,
                               .o = o.data(),
                               .p = p.data(),
                               .p_stride = p.size(),
                               .p_max = &p_max,
                               .p_max_stride = 1});
        ASSERT_EQ(m, 0.0f);
        for (uint32_t i = 1; i < n; ++i) {
          float x = F16ToF32(lane.KeyHalf(i, 0)) * q0;
          double expected = std::exp(double{x});
          // Below -87.3 the result is a number too small to matter, or 0.
          double tolerance = x < -87.3f ? 1.3e-38 : 2e-7 * expected;
          ASSERT_NEAR(p[i], expected, tolerance) << set->name << " " << x;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lkv
