// The reference set: row functions in plain loops, and the table.
#include <cmath>

#include "kernels/kernel_sets.h"

namespace lkv {
namespace {

// Rows smaller than this count as zero; 32639 / kSmallestAmplitude is finite.
constexpr float kSmallestAmplitude = 1e-30f;

void QuantizeRow(const float* x, size_t n_columns, int8_t* high, int8_t* low,
                 float* scale, float* sums) {
  // 127 * 256 + 127: the largest value whose high half, rounded, is 127.
  const float largest = low == nullptr ? 127.0f : 32639.0f;
  for (size_t c = 0; c < n_columns; c += 32) {
    float amplitude = 0;
    for (size_t i = c; i < c + 32; ++i) {
      amplitude = std::fmax(amplitude, std::fabs(x[i]));
    }
    bool is_zero = amplitude < kSmallestAmplitude;
    float step = is_zero ? 0.0f : amplitude / largest;
    float inverse = is_zero ? 0.0f : largest / amplitude;
    scale[c / 32] = step;
    int32_t sum[2] = {0, 0};
    for (size_t i = c; i < c + 32; ++i) {
      int32_t quant = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
      sum[(i - c) / 16] += quant;
      if (low == nullptr) {
        high[i] = static_cast<int8_t>(quant);
      } else {
        int32_t upper = (quant + 128) >> 8;
        high[i] = static_cast<int8_t>(upper);
        low[i] = static_cast<int8_t>(quant - 256 * upper);
      }
    }
    sums[c / 16] = step * static_cast<float>(sum[0]);
    sums[c / 16 + 1] = step * static_cast<float>(sum[1]);
  }
}

void RmsNorm(const float* x, const float* weight, size_t n, float eps,
             float* out) {
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  float factor = static_cast<float>(
      1.0 / std::sqrt(squares / static_cast<double>(n) + double{eps}));
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void SiluMultiply(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void Add(const float* a, const float* b, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void Rotate(float* a, float* b, float cosine, float sine) {
  float rotated = *a * cosine - *b * sine;
  *b = *b * cosine + *a * sine;
  *a = rotated;
}

void RopeNormal(float* x, const float* cosine, const float* sine,
                size_t n_pairs) {
  for (size_t i = 0; i < n_pairs; ++i) {
    Rotate(&x[2 * i], &x[2 * i + 1], cosine[i], sine[i]);
  }
}

void RopeNeox(float* x, const float* cosine, const float* sine,
              size_t n_pairs) {
  for (size_t i = 0; i < n_pairs; ++i) {
    Rotate(&x[i], &x[i + n_pairs], cosine[i], sine[i]);
  }
}

void EmaF16(uint16_t* ema, const float* x, size_t n, float keep) {
  float take = (1.0f - keep) * kMassScale;
  for (size_t i = 0; i < n; ++i) {
    ema[i] = F32ToF16(keep * F16ToF32(ema[i]) + take * x[i]);
  }
}

void TwoLayer(const TwoLayerArgs& args) {
  for (size_t i = 0; i < args.n_rows; ++i) {
    const float* x = args.x + i;
    float y = args.bias;
    for (uint32_t j = 0; j < args.n_inputs; ++j) {
      y += args.direct[j] * x[j * args.x_stride];
    }
    for (uint32_t h = 0; h < args.n_hidden; ++h) {
      float hidden = args.hidden_bias[h];
      for (uint32_t j = 0; j < args.n_inputs; ++j) {
        hidden += args.inner[h * args.n_inputs + j] * x[j * args.x_stride];
      }
      y += args.outer[h] * std::max(hidden, 0.0f);
    }
    args.y[i] = y;
  }
}

}  // namespace

void FillScalarKernels(KernelTable* table) {
  table->name = "scalar";
  table->quantize_row = QuantizeRow;
  AddScalarMatmul(table);
  AddScalarAttention(table);
  AddScalarCold(table);
  table->rms_norm = RmsNorm;
  table->silu_multiply = SiluMultiply;
  table->add = Add;
  table->rope_normal = RopeNormal;
  table->rope_neox = RopeNeox;
  table->ema_f16 = EmaF16;
  table->two_layer = TwoLayer;
}

}  // namespace lkv
