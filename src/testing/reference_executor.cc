#include "testing/reference_executor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/stopwatch.h"
#include "base/thread_team.h"
#include "model/rope.h"

namespace lkv {
namespace {

constexpr uint32_t kMaxStepTokens = 512;

using Vector = std::vector<float>;

struct Matrix {
  size_t n_rows = 0;     // outputs
  size_t n_columns = 0;  // inputs
  Vector values;         // [n_rows, n_columns]

  const float* row(size_t r) const { return &values[r * n_columns]; }
};

// One row of activations for each token of the step.
using Rows = Matrix;

Rows NewRows(size_t n_tokens, size_t n_columns) {
  return {n_tokens, n_columns, Vector(n_tokens * n_columns)};
}

struct Layer {
  Vector attention_norm, ffn_norm;
  Vector q_bias, k_bias, v_bias;  // empty unless the model has them
  Vector q_norm, k_norm;
  Matrix q, k, v, o, gate, up, down;
};

// 16 running sums, one for each element of a cache line: the compiler turns
// them into vector registers, and each sum has a sixteenth of the terms, so
// rounding stays near 1e-7 of the sum of magnitudes.
float Dot(const float* a, const float* b, size_t n) {
  constexpr size_t kSums = 16;
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  double total = 0;
  for (float sum : sums) total += sum;
  for (; i < n; ++i) total += double{a[i]} * b[i];
  return static_cast<float>(total);
}

// y[t] = W x[t], plus the bias where there is one.
Rows Multiply(const Matrix& weights, const Rows& x, const Vector& bias = {}) {
  CHECK(x.n_columns == weights.n_columns);
  Rows y = NewRows(x.n_rows, weights.n_rows);
  // 16 tokens (64 KiB at 1,024 columns) stay in cache while all weights pass.
  constexpr size_t kBlock = 16;
  for (size_t begin = 0; begin < x.n_rows; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, x.n_rows);
    for (size_t r = 0; r < weights.n_rows; ++r) {
      for (size_t t = begin; t < end; ++t) {
        y.values[t * y.n_columns + r] =
            Dot(weights.row(r), x.row(t), x.n_columns) +
            (bias.empty() ? 0.0f : bias[r]);
      }
    }
  }
  return y;
}

// x / sqrt(mean(x^2) + epsilon) * weight, of one vector.
void NormalizeRms(const Vector& weight, float epsilon, const float* x,
                  float* out) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += double{x[i]} * x[i];
  const double scale = 1 / std::sqrt(squares / weight.size() + epsilon);
  for (size_t i = 0; i < weight.size(); ++i) {
    out[i] = static_cast<float>(x[i] * scale) * weight[i];
  }
}

Rows NormalizeRows(const Vector& weight, float epsilon, const Rows& x) {
  Rows out = NewRows(x.n_rows, x.n_columns);
  for (size_t t = 0; t < x.n_rows; ++t) {
    NormalizeRms(weight, epsilon, x.row(t), &out.values[t * out.n_columns]);
  }
  return out;
}

void AddTo(Rows* sum, const Rows& x) {
  for (size_t i = 0; i < x.values.size(); ++i) sum->values[i] += x.values[i];
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TokenRows View(const Rows& rows) {
  return {rows.values.data(), rows.n_columns};
}

// Columns of one head.
TokenRows HeadOf(const Rows& rows, size_t head, size_t head_dim) {
  return {rows.values.data() + head * head_dim, rows.n_columns};
}

class ReferenceExecutor final : public Executor {
 public:
  ReferenceExecutor(const GgufFile& file, Architecture architecture);

  const Architecture& architecture() const override { return arch_; }
  uint64_t weight_bytes() const override { return n_bytes_; }
  uint32_t max_step_tokens() const override { return kMaxStepTokens; }
  double policy_seconds() const override { return policy_seconds_; }
  Status Step(const StepBatch& batch, KvCache& cache, std::span<float> logits,
              const std::function<bool()>& cancelled) override;

 private:
  Vector LoadVector(const GgufFile& file, const std::string& name);
  Matrix LoadMatrix(const GgufFile& file, const std::string& name);

  Rows Embed(std::span<const int32_t> tokens) const;
  Rows Attend(const Rows& x, uint32_t layer,
              std::span<const uint32_t> positions, KvCache& cache);
  Rows FeedForward(const Rows& x, const Layer& layer) const;
  // Norm (where the model has one) and rotation of all heads of all tokens.
  void FinishHeads(const Vector& norm, std::span<const uint32_t> positions,
                   Rows* heads) const;

  const Architecture arch_;
  const RopeTable rope_;
  ThreadTeam team_{1};
  Matrix embedding_;
  Vector output_norm_;
  Matrix output_;  // empty when tied
  std::vector<Layer> layers_;
  uint64_t n_bytes_ = 0;
  double policy_seconds_ = 0;
};

// The life of a batch of tokens, from ids to logits.
Status ReferenceExecutor::Step(const StepBatch& batch, KvCache& cache,
                               std::span<float> logits,
                               const std::function<bool()>& cancelled) {
  CHECK(batch.tokens.size() <= kMaxStepTokens);
  CHECK(batch.positions.size() == batch.tokens.size());
  CHECK(logits.size() == batch.logit_rows.size() * arch_.vocab_size);
  const Stopwatch begin_step;
  if (Status s = cache.BeginStep(batch.entries); !s.ok()) return s;
  policy_seconds_ += begin_step.Seconds();

  Rows x = Embed(batch.tokens);  // the residual stream
  for (uint32_t i = 0; i < arch_.n_layers; ++i) {
    if (cancelled && cancelled()) return Cancelled("step: stopped on request");
    const Layer& layer = layers_[i];
    AddTo(&x, Attend(NormalizeRows(layer.attention_norm, arch_.norm_epsilon, x),
                     i, batch.positions, cache));
    AddTo(&x, FeedForward(NormalizeRows(layer.ffn_norm, arch_.norm_epsilon, x),
                          layer));
  }

  const Stopwatch end_step;
  team_.Run([&](TeamMember& me) { cache.EndStep(me); });
  policy_seconds_ += end_step.Seconds();

  Rows wanted = NewRows(batch.logit_rows.size(), arch_.n_embd);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    NormalizeRms(output_norm_, arch_.norm_epsilon, x.row(batch.logit_rows[i]),
                 &wanted.values[i * wanted.n_columns]);
  }
  const Rows y = Multiply(arch_.tied_output ? embedding_ : output_, wanted);
  std::copy(y.values.begin(), y.values.end(), logits.begin());
  return Status();
}

Rows ReferenceExecutor::Embed(std::span<const int32_t> tokens) const {
  Rows x = NewRows(tokens.size(), arch_.n_embd);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const uint32_t token = static_cast<uint32_t>(tokens[t]);
    CHECK(token < arch_.vocab_size);
    std::copy_n(embedding_.row(token), arch_.n_embd,
                &x.values[t * x.n_columns]);
  }
  return x;
}

Rows ReferenceExecutor::Attend(const Rows& x, uint32_t layer_index,
                               std::span<const uint32_t> positions,
                               KvCache& cache) {
  const Layer& layer = layers_[layer_index];
  Rows q = Multiply(layer.q, x, layer.q_bias);
  Rows k = Multiply(layer.k, x, layer.k_bias);
  const Rows v = Multiply(layer.v, x, layer.v_bias);
  FinishHeads(layer.q_norm, positions, &q);
  FinishHeads(layer.k_norm, positions, &k);

  Rows heads = NewRows(x.n_rows, q.n_columns);
  for (uint32_t head = 0; head < arch_.n_kv_heads; ++head) {
    cache.Append(layer_index, head, HeadOf(k, head, arch_.head_dim),
                 HeadOf(v, head, arch_.head_dim));
  }
  team_.Run([&](TeamMember& me) {
    cache.Attend(me, layer_index, View(q), heads.values.data(),
                 heads.n_columns);
  });
  return Multiply(layer.o, heads);
}

void ReferenceExecutor::FinishHeads(const Vector& norm,
                                    std::span<const uint32_t> positions,
                                    Rows* heads) const {
  Vector cosine(rope_.n_pairs());
  Vector sine(rope_.n_pairs());
  for (size_t t = 0; t < heads->n_rows; ++t) {
    rope_.Angles(positions[t], cosine.data(), sine.data());
    float* const row = &heads->values[t * heads->n_columns];
    for (size_t at = 0; at < heads->n_columns; at += arch_.head_dim) {
      float* const head = row + at;
      if (!norm.empty()) NormalizeRms(norm, arch_.norm_epsilon, head, head);
      RotateHead(arch_.rope.order, cosine.data(), sine.data(), rope_.n_pairs(),
                 head);
    }
  }
}

Rows ReferenceExecutor::FeedForward(const Rows& x, const Layer& layer) const {
  Rows hidden = Multiply(layer.gate, x);
  const Rows up = Multiply(layer.up, x);
  for (size_t i = 0; i < hidden.values.size(); ++i) {
    float& gate = hidden.values[i];
    gate = gate * Sigmoid(gate) * up.values[i];  // SwiGLU
  }
  return Multiply(layer.down, hidden);
}

ReferenceExecutor::ReferenceExecutor(const GgufFile& file,
                                     Architecture architecture)
    : arch_(std::move(architecture)), rope_(arch_.rope) {
  embedding_ = LoadMatrix(file, "token_embd.weight");
  output_norm_ = LoadVector(file, "output_norm.weight");
  if (!arch_.tied_output) output_ = LoadMatrix(file, "output.weight");
  for (uint32_t i = 0; i < arch_.n_layers; ++i) {
    auto vector = [&](const char* part) {
      return LoadVector(file, LayerTensorName(i, part));
    };
    auto matrix = [&](const char* part) {
      return LoadMatrix(file, LayerTensorName(i, part));
    };
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = vector("attn_norm.weight");
    layer.q = matrix("attn_q.weight");
    layer.k = matrix("attn_k.weight");
    layer.v = matrix("attn_v.weight");
    layer.o = matrix("attn_output.weight");
    if (arch_.qkv_bias) {
      layer.q_bias = vector("attn_q.bias");
      layer.k_bias = vector("attn_k.bias");
      layer.v_bias = vector("attn_v.bias");
    }
    if (arch_.qk_norm) {
      layer.q_norm = vector("attn_q_norm.weight");
      layer.k_norm = vector("attn_k_norm.weight");
    }
    layer.ffn_norm = vector("ffn_norm.weight");
    layer.gate = matrix("ffn_gate.weight");
    layer.up = matrix("ffn_up.weight");
    layer.down = matrix("ffn_down.weight");
  }
}

Matrix ReferenceExecutor::LoadMatrix(const GgufFile& file,
                                     const std::string& name) {
  const GgufTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr);  // ReadArchitecture found it
  Matrix out;
  out.n_columns = tensor->shape[0];
  out.n_rows = tensor->shape.size() > 1 ? tensor->shape[1] : 1;
  out.values.resize(out.n_rows * out.n_columns);
  Dequantize(tensor->raw_type, tensor->data, out.values.size(),
             out.values.data());
  file.DropPages(*tensor);
  n_bytes_ += out.values.size() * sizeof(float);
  return out;
}

Vector ReferenceExecutor::LoadVector(const GgufFile& file,
                                     const std::string& name) {
  return LoadMatrix(file, name).values;
}

}  // namespace

Result<std::unique_ptr<Executor>> MakeReferenceExecutor(const GgufFile& file) {
  Result<Architecture> architecture = ReadArchitecture(file);
  if (!architecture.ok()) return architecture.status();
  std::unique_ptr<Executor> executor = std::make_unique<ReferenceExecutor>(
      file, std::move(architecture).value());
  return executor;
}

}  // namespace lkv
