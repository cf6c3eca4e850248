// Row functions of the vector sets. Include after avx2_simd.h or
// avx512_simd.h. Rows of any length: what does not fill a vector is done one
// value at a time with the same operations.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd_exp.h"

namespace lkv {
namespace {

// Rows smaller than this count as zero; 32639 / kSmallestAmplitude is finite.
constexpr float kSmallestAmplitude = 1e-30f;

// Results are the same bits in every set.
inline void QuantizeRow(const float* x, size_t n_columns, int8_t* high,
                        int8_t* low, float* scale, float* sums) {
  // 127 * 256 + 127: the largest value whose high half, rounded, is 127.
  const float largest = low == nullptr ? 127.0f : 32639.0f;
  for (size_t c = 0; c < n_columns; c += 32) {
    Simd::F32 amplitudes = Simd::Zero();
    for (size_t i = c; i < c + 32; i += Simd::kLanes) {
      amplitudes = Simd::Max(amplitudes, Simd::Abs(Simd::Load(x + i)));
    }
    const float amplitude = Simd::MaxOf(amplitudes);
    const bool is_zero = amplitude < kSmallestAmplitude;
    const float step = is_zero ? 0.0f : amplitude / largest;
    const Simd::F32 inverse = Simd::Set(is_zero ? 0.0f : largest / amplitude);
    scale[c / 32] = step;
    for (size_t half = c; half < c + 32; half += 16) {
      int32_t sum = 0;
      for (size_t i = half; i < half + 16; i += Simd::kLanes) {
        const auto quants = Simd::Round(Simd::Mul(Simd::Load(x + i), inverse));
        sum += Simd::SumOfIntegers(quants);
        if (low == nullptr) {
          Simd::StoreBytes(high + i, quants);
        } else {
          const auto upper = Simd::UpperHalf(quants);
          Simd::StoreBytes(high + i, upper);
          Simd::StoreBytes(low + i, Simd::LowerHalf(quants, upper));
        }
      }
      sums[half / 16] = step * static_cast<float>(sum);
    }
  }
}

inline void RmsNorm(const float* x, const float* weight, size_t n, float eps,
                    float* out) {
  Simd::F32 squares = Simd::Zero();
  size_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::F32 v = Simd::Load(x + i);
    squares = Simd::MulAdd(v, v, squares);
  }
  float sum = Simd::SumOf(squares);
  for (; i < n; ++i) sum += x[i] * x[i];
  const float factor =
      1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
  const Simd::F32 factors = Simd::Set(factor);
  for (i = 0; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::F32 v = Simd::Mul(Simd::Load(x + i), factors);
    Simd::Store(out + i, Simd::Mul(v, Simd::Load(weight + i)));
  }
  for (; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

inline Simd::F32 SiluMultiplied(Simd::F32 gate, Simd::F32 up) {
  const Simd::F32 one = Simd::Set(1.0f);
  Simd::F32 e = Exp(Simd::Sub(Simd::Zero(), gate));
  return Simd::Mul(Simd::Div(gate, Simd::Add(one, e)), up);
}

inline void SiluMultiply(const float* gate, const float* up, size_t n,
                         float* out) {
  size_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::Store(out + i,
                SiluMultiplied(Simd::Load(gate + i), Simd::Load(up + i)));
  }
  for (; i < n; ++i) {
    float lanes[Simd::kLanes];
    Simd::Store(lanes, SiluMultiplied(Simd::Set(gate[i]), Simd::Set(up[i])));
    out[i] = lanes[0];
  }
}

inline void Add(const float* a, const float* b, size_t n, float* out) {
  size_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::Store(out + i, Simd::Add(Simd::Load(a + i), Simd::Load(b + i)));
  }
  for (; i < n; ++i) out[i] = a[i] + b[i];
}

inline void Rotate(float* a, float* b, float cosine, float sine) {
  const float rotated = *a * cosine - *b * sine;
  *b = *b * cosine + *a * sine;
  *a = rotated;
}

inline void RopeNormal(float* x, const float* cosine, const float* sine,
                       size_t n_pairs) {
  size_t i = 0;
  for (; i + Simd::kLanes / 2 <= n_pairs; i += Simd::kLanes / 2) {
    Simd::F32 pairs = Simd::Load(x + 2 * i);
    Simd::F32 turned =
        Simd::Mul(Simd::SwapPairs(pairs), Simd::LoadTwice(sine + i));
    Simd::Store(x + 2 * i,
                Simd::MulSubAdd(pairs, Simd::LoadTwice(cosine + i), turned));
  }
  for (; i < n_pairs; ++i) {
    Rotate(&x[2 * i], &x[2 * i + 1], cosine[i], sine[i]);
  }
}

inline void RopeNeox(float* x, const float* cosine, const float* sine,
                     size_t n_pairs) {
  size_t i = 0;
  for (; i + Simd::kLanes <= n_pairs; i += Simd::kLanes) {
    Simd::F32 a = Simd::Load(x + i);
    Simd::F32 b = Simd::Load(x + i + n_pairs);
    Simd::F32 c = Simd::Load(cosine + i);
    Simd::F32 s = Simd::Load(sine + i);
    Simd::Store(x + i, Simd::NegMulAdd(b, s, Simd::Mul(a, c)));
    Simd::Store(x + i + n_pairs, Simd::MulAdd(a, s, Simd::Mul(b, c)));
  }
  for (; i < n_pairs; ++i) {
    Rotate(&x[i], &x[i + n_pairs], cosine[i], sine[i]);
  }
}

inline void EmaF16(uint16_t* ema, const float* x, size_t n, float keep) {
  const float take = (1.0f - keep) * kMassScale;
  const Simd::F32 keeps = Simd::Set(keep);
  const Simd::F32 takes = Simd::Set(take);
  size_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::F32 old = Simd::Mul(Simd::LoadF16(ema + i), keeps);
    Simd::StoreF16(ema + i, Simd::MulAdd(Simd::Load(x + i), takes, old));
  }
  if (i == n) return;
  // The rest in a padded copy.
  uint16_t old[Simd::kLanes] = {};
  float added[Simd::kLanes] = {};
  for (size_t j = i; j < n; ++j) {
    old[j - i] = ema[j];
    added[j - i] = x[j];
  }
  Simd::StoreF16(old, Simd::MulAdd(Simd::Load(added), takes,
                                   Simd::Mul(Simd::LoadF16(old), keeps)));
  for (size_t j = i; j < n; ++j) ema[j] = old[j - i];
}

// kLanes rows from row i on. Inputs are read again for every hidden unit: they
// are in the first-level cache, and registers are few.
inline Simd::F32 TwoLayerAt(const TwoLayerArgs& args, size_t i) {
  Simd::F32 y = Simd::Set(args.bias);
  for (uint32_t j = 0; j < args.n_inputs; ++j) {
    y = Simd::MulAdd(Simd::Set(args.direct[j]),
                     Simd::Load(args.x + j * args.x_stride + i), y);
  }
  const float* inner = args.inner;
  for (uint32_t h = 0; h < args.n_hidden; ++h) {
    Simd::F32 hidden = Simd::Set(args.hidden_bias[h]);
    for (uint32_t j = 0; j < args.n_inputs; ++j) {
      hidden = Simd::MulAdd(Simd::Set(*inner++),
                            Simd::Load(args.x + j * args.x_stride + i), hidden);
    }
    y = Simd::MulAdd(Simd::Set(args.outer[h]), Simd::Max(hidden, Simd::Zero()),
                     y);
  }
  return y;
}

inline void TwoLayer(const TwoLayerArgs& args) {
  size_t i = 0;
  for (; i + Simd::kLanes <= args.n_rows; i += Simd::kLanes) {
    Simd::Store(args.y + i, TwoLayerAt(args, i));
  }
  // The rest one by one, in a padded copy.
  for (; i < args.n_rows; ++i) {
    constexpr uint32_t kMostInputs = 32;
    float x[kMostInputs * Simd::kLanes] = {};
    TwoLayerArgs one = args;
    one.x = x;
    one.x_stride = Simd::kLanes;
    for (uint32_t j = 0; j < args.n_inputs; ++j) {
      x[j * Simd::kLanes] = args.x[j * args.x_stride + i];
    }
    float y[Simd::kLanes];
    Simd::Store(y, TwoLayerAt(one, 0));
    args.y[i] = y[0];
  }
}

// Fills the row functions of a table.
inline void AddRowKernels(KernelTable* table) {
  table->quantize_row = QuantizeRow;
  table->rms_norm = RmsNorm;
  table->silu_multiply = SiluMultiply;
  table->add = Add;
  table->rope_normal = RopeNormal;
  table->rope_neox = RopeNeox;
  table->ema_f16 = EmaF16;
  table->two_layer = TwoLayer;
}

}  // namespace
}  // namespace lkv
