#include "model/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/stopwatch.h"
#include "model/activation_rows.h"
#include "model/rope.h"

namespace lkv {
namespace {

size_t PaddedRows(size_t n_rows) {
  return CeilDiv(n_rows, kTileRows) * kTileRows;
}

// The widest row that any matrix of a layer reads.
size_t WidestInput(const Architecture& a) {
  return std::max(
      {size_t{a.n_embd}, size_t{a.n_heads} * a.head_dim, size_t{a.n_ff}});
}

// Columns of one token's q, k and v side by side.
size_t QkvColumns(const Architecture& a) {
  return size_t{a.n_heads + 2 * a.n_kv_heads} * a.head_dim;
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(Architecture architecture, Weights weights,
              const CpuExecutorOptions& options);

  const Architecture& architecture() const override { return arch_; }
  uint64_t weight_bytes() const override { return weights_.n_bytes; }
  uint32_t max_step_tokens() const override { return max_tokens_; }
  double policy_seconds() const override { return policy_seconds_; }

  Status Step(const StepBatch& batch, KvCache& cache, std::span<float> logits,
              const std::function<bool()>& cancelled) override;

 private:
  // The phases of a step, top to bottom. Collective: every member of the team
  // calls each with the same arguments; each returns with its results visible
  // to all members.
  void Embed(TeamMember& me, const StepBatch& batch);
  void ProjectQkv(TeamMember& me, const LayerWeights& layer);
  void AddAttentionOutput(TeamMember& me, const LayerWeights& layer);
  void AddFeedForward(TeamMember& me, const LayerWeights& layer);
  void ProjectLogits(TeamMember& me, const StepBatch& batch,
                     std::span<float> logits);

  // Fills and quantises rows [0, n_rows) of activations, `fill(i, row)`
  // writing row i, and returns what matmul reads.
  template <typename Fill>
  ActivationRows::View PrepareRows(TeamMember& me, size_t n_rows,
                                   size_t n_columns, const Fill& fill);
  // y[t, r] for the rows r of `tiles`, all rows t of the activations.
  void Multiply(const WeightMatrix& matrix, Share tiles,
                const ActivationRows::View& x, size_t n_rows, float* y,
                size_t y_stride) const;
  // x += W a, for the residual stream x.
  void AddProduct(TeamMember& me, const WeightMatrix& matrix,
                  const ActivationRows::View& a);
  // Bias, per-head norm and rotation of one head of all tokens.
  void FinishHead(float* head, const std::vector<float>& bias, size_t head_at,
                  const std::vector<float>& norm) const;
  void Rotate(float* head, size_t token) const;

  float* Residual(size_t token) { return residual_.data() + token * embd_; }

  const Architecture arch_;
  const Weights weights_;
  const RopeTable rope_;
  const KernelTable& kernels_;
  ThreadTeam& team_;
  const ActivationPrecision precision_;
  const uint32_t max_tokens_;
  const size_t embd_;  // padded row strides
  const size_t ff_;
  const size_t qkv_columns_;
  const size_t n_pairs_;  // rotated pairs of a head

  // Set for one step.
  size_t n_tokens_ = 0;
  QuantizeBits bits_ = QuantizeBits::k8;
  bool cancelled_ = false;
  double policy_seconds_ = 0;

  AlignedBuffer<float> residual_;   // [max_tokens, embd]
  AlignedBuffer<float> product_;    // [max_tokens, embd]
  AlignedBuffer<float> qkv_;        // [max_tokens, qkv_columns]
  AlignedBuffer<float> attention_;  // [max_tokens, n_heads * head_dim]
  AlignedBuffer<float> gate_;       // [max_tokens, ff]
  AlignedBuffer<float> up_;         // [max_tokens, ff]
  AlignedBuffer<float> cosine_;     // [max_tokens, n_pairs]
  AlignedBuffer<float> sine_;       // [max_tokens, n_pairs]
  AlignedBuffer<float> last_tile_;  // [max_tokens, kTileRows]
  ActivationRows shared_rows_;
  std::vector<ActivationRows> own_rows_;  // one row for each member
};

CpuExecutor::CpuExecutor(Architecture architecture, Weights weights,
                         const CpuExecutorOptions& options)
    : arch_(std::move(architecture)),
      weights_(std::move(weights)),
      rope_(arch_.rope),
      kernels_(*options.kernels),
      team_(*options.team),
      precision_(options.activations),
      max_tokens_(options.max_step_tokens),
      embd_(PaddedRows(arch_.n_embd)),
      ff_(PaddedRows(arch_.n_ff)),
      qkv_columns_(QkvColumns(arch_)),
      n_pairs_(arch_.rope.n_rotated / 2),
      residual_(max_tokens_ * embd_),
      product_(max_tokens_ * embd_),
      qkv_(max_tokens_ * qkv_columns_),
      attention_(max_tokens_ * size_t{arch_.n_heads} * arch_.head_dim),
      gate_(max_tokens_ * ff_),
      up_(max_tokens_ * ff_),
      cosine_(max_tokens_ * n_pairs_),
      sine_(max_tokens_ * n_pairs_),
      last_tile_(max_tokens_ * kTileRows),
      shared_rows_(&kernels_, max_tokens_, WidestInput(arch_)) {
  for (uint32_t i = 0; i < team_.n_threads(); ++i) {
    own_rows_.emplace_back(&kernels_, 1, WidestInput(arch_));
  }
}

Status CpuExecutor::Step(const StepBatch& batch, KvCache& cache,
                         std::span<float> logits,
                         const std::function<bool()>& cancelled) {
  CHECK(batch.tokens.size() <= max_tokens_);
  CHECK(batch.positions.size() == batch.tokens.size());
  CHECK(logits.size() == batch.logit_rows.size() * arch_.vocab_size);

  n_tokens_ = batch.tokens.size();
  cancelled_ = false;
  // Decoding is bound by memory: the second half of a 16-bit activation costs
  // no time there, and 8-bit ones flip 3-4 % of a small model's choices.
  const bool decoding = batch.entries.size() == batch.tokens.size();
  bits_ = decoding || precision_ == ActivationPrecision::kHigh
              ? QuantizeBits::k16
              : QuantizeBits::k8;

  const Stopwatch begin_step;
  if (Status s = cache.BeginStep(batch.entries); !s.ok()) return s;
  policy_seconds_ += begin_step.Seconds();

  const size_t q_columns = size_t{arch_.n_heads} * arch_.head_dim;
  const size_t kv_columns = size_t{arch_.n_kv_heads} * arch_.head_dim;
  const TokenRows q{qkv_.data(), qkv_columns_};
  const TokenRows k{qkv_.data() + q_columns, qkv_columns_};
  const TokenRows v{qkv_.data() + q_columns + kv_columns, qkv_columns_};

  team_.Run([&](TeamMember& me) {
    Embed(me, batch);
    for (uint32_t i = 0; i < arch_.n_layers; ++i) {
      const LayerWeights& layer = weights_.layers[i];
      if (me.index() == 0 && cancelled && cancelled()) cancelled_ = true;
      ProjectQkv(me, layer);
      // Written before and read after the barrier that ends ProjectQkv; the
      // next write is behind the barriers of the rest of this layer.
      if (cancelled_) return;
      cache.Append(me, i, k, v);
      cache.Attend(me, i, q, attention_.data(), q_columns);
      AddAttentionOutput(me, layer);
      AddFeedForward(me, layer);
    }
    ProjectLogits(me, batch, logits);

    const Stopwatch end_step;
    cache.EndStep(me);
    if (me.index() == 0) policy_seconds_ += end_step.Seconds();
  });
  return cancelled_ ? Cancelled("step: stopped on request; nothing to do")
                    : Status();
}

void CpuExecutor::Embed(TeamMember& me, const StepBatch& batch) {
  const Share share = me.ShareOf(n_tokens_);
  for (size_t t = share.begin; t < share.end; ++t) {
    ReadRow(weights_.token_embedding, static_cast<uint32_t>(batch.tokens[t]),
            Residual(t));
    rope_.Angles(batch.positions[t], cosine_.data() + t * n_pairs_,
                 sine_.data() + t * n_pairs_);
  }
  me.Barrier();
}

void CpuExecutor::ProjectQkv(TeamMember& me, const LayerWeights& layer) {
  const ActivationRows::View x =
      PrepareRows(me, n_tokens_, arch_.n_embd, [&](size_t t, float* row) {
        kernels_.rms_norm(Residual(t), layer.attention_norm.data(),
                          arch_.n_embd, arch_.norm_epsilon, row);
      });

  // Whole heads are shared out, so that whoever computed a head can also
  // rotate it: one barrier instead of two.
  const size_t head_tiles = arch_.head_dim / kTileRows;
  const Share heads = me.ShareOf(arch_.n_heads + 2 * arch_.n_kv_heads);
  const auto project = [&](const WeightMatrix& matrix, size_t first_head,
                           size_t n_heads, auto&& finish) {
    const size_t begin = std::max(heads.begin, first_head);
    const size_t end = std::min(heads.end, first_head + n_heads);
    if (begin >= end) return;
    float* columns = qkv_.data() + first_head * arch_.head_dim;
    Multiply(
        matrix,
        {(begin - first_head) * head_tiles, (end - first_head) * head_tiles}, x,
        n_tokens_, columns, qkv_columns_);
    for (size_t h = begin - first_head; h < end - first_head; ++h) {
      for (size_t t = 0; t < n_tokens_; ++t) {
        finish(columns + t * qkv_columns_ + h * arch_.head_dim, h, t);
      }
    }
  };
  project(layer.q, 0, arch_.n_heads, [&](float* head, size_t h, size_t t) {
    FinishHead(head, layer.q_bias, h, layer.q_norm);
    Rotate(head, t);
  });
  project(layer.k, arch_.n_heads, arch_.n_kv_heads,
          [&](float* head, size_t h, size_t t) {
            FinishHead(head, layer.k_bias, h, layer.k_norm);
            Rotate(head, t);
          });
  project(layer.v, arch_.n_heads + arch_.n_kv_heads, arch_.n_kv_heads,
          [&](float* head, size_t h, size_t) {
            FinishHead(head, layer.v_bias, h, {});
          });
  me.Barrier();
}

void CpuExecutor::FinishHead(float* head, const std::vector<float>& bias,
                             size_t head_at,
                             const std::vector<float>& norm) const {
  if (!bias.empty()) {
    kernels_.add(head, bias.data() + head_at * arch_.head_dim, arch_.head_dim,
                 head);
  }
  if (!norm.empty()) {
    kernels_.rms_norm(head, norm.data(), arch_.head_dim, arch_.norm_epsilon,
                      head);
  }
}

void CpuExecutor::Rotate(float* head, size_t token) const {
  const auto rope = arch_.rope.order == RopeOrder::kNormal
                        ? kernels_.rope_normal
                        : kernels_.rope_neox;
  rope(head, cosine_.data() + token * n_pairs_, sine_.data() + token * n_pairs_,
       n_pairs_);
}

void CpuExecutor::AddAttentionOutput(TeamMember& me,
                                     const LayerWeights& layer) {
  const size_t n_columns = size_t{arch_.n_heads} * arch_.head_dim;
  const ActivationRows::View a =
      PrepareRows(me, n_tokens_, n_columns, [&](size_t t, float* row) {
        std::memcpy(row, attention_.data() + t * n_columns,
                    n_columns * sizeof(float));
      });
  AddProduct(me, layer.o, a);
}

void CpuExecutor::AddFeedForward(TeamMember& me, const LayerWeights& layer) {
  const ActivationRows::View x =
      PrepareRows(me, n_tokens_, arch_.n_embd, [&](size_t t, float* row) {
        kernels_.rms_norm(Residual(t), layer.ffn_norm.data(), arch_.n_embd,
                          arch_.norm_epsilon, row);
      });

  const Share tiles = me.ShareOf(layer.gate.n_row_tiles());
  Multiply(layer.gate, tiles, x, n_tokens_, gate_.data(), ff_);
  Multiply(layer.up, tiles, x, n_tokens_, up_.data(), ff_);
  const size_t begin = tiles.begin * kTileRows;
  const size_t end = std::min<size_t>(tiles.end * kTileRows, arch_.n_ff);
  for (size_t t = 0; t < n_tokens_ && begin < end; ++t) {
    float* gate = gate_.data() + t * ff_ + begin;
    kernels_.silu_multiply(gate, up_.data() + t * ff_ + begin, end - begin,
                           gate);
  }
  me.Barrier();

  const ActivationRows::View hidden =
      PrepareRows(me, n_tokens_, arch_.n_ff, [&](size_t t, float* row) {
        std::memcpy(row, gate_.data() + t * ff_, arch_.n_ff * sizeof(float));
      });
  AddProduct(me, layer.down, hidden);
}

void CpuExecutor::AddProduct(TeamMember& me, const WeightMatrix& matrix,
                             const ActivationRows::View& a) {
  const Share tiles = me.ShareOf(matrix.n_row_tiles());
  Multiply(matrix, tiles, a, n_tokens_, product_.data(), embd_);
  const size_t begin = tiles.begin * kTileRows;
  const size_t n = (tiles.end - tiles.begin) * kTileRows;
  for (size_t t = 0; t < n_tokens_; ++t) {
    float* x = Residual(t) + begin;
    kernels_.add(x, product_.data() + t * embd_ + begin, n, x);
  }
  me.Barrier();
}

void CpuExecutor::ProjectLogits(TeamMember& me, const StepBatch& batch,
                                std::span<float> logits) {
  const size_t n_rows = batch.logit_rows.size();
  if (n_rows == 0) return;
  const ActivationRows::View x =
      PrepareRows(me, n_rows, arch_.n_embd, [&](size_t i, float* row) {
        kernels_.rms_norm(Residual(batch.logit_rows[i]),
                          weights_.output_norm.data(), arch_.n_embd,
                          arch_.norm_epsilon, row);
      });

  const WeightMatrix& matrix = weights_.output_matrix();
  const size_t vocab = arch_.vocab_size;
  const size_t n_tiles = matrix.n_row_tiles();
  const size_t n_whole_tiles = vocab / kTileRows;
  const Share share = me.ShareOf(n_tiles);
  Multiply(matrix, {share.begin, std::min(share.end, n_whole_tiles)}, x, n_rows,
           logits.data(), vocab);
  if (n_whole_tiles < n_tiles && share.begin < n_tiles &&
      share.end == n_tiles) {
    // Kernels write whole tiles; the last one would run into the next row.
    const size_t first = n_whole_tiles * kTileRows;
    Multiply(matrix, {n_whole_tiles, n_tiles}, x, n_rows,
             last_tile_.data() - first, kTileRows);
    for (size_t i = 0; i < n_rows; ++i) {
      std::copy_n(last_tile_.data() + i * kTileRows, vocab - first,
                  logits.data() + i * vocab + first);
    }
  }
  me.Barrier();
}

template <typename Fill>
ActivationRows::View CpuExecutor::PrepareRows(TeamMember& me, size_t n_rows,
                                              size_t n_columns,
                                              const Fill& fill) {
  // One row is cheaper to prepare by every member for itself than to wait for:
  // 0.2 us against a barrier of 0.3 us, eight times a layer.
  const bool alone = n_rows == 1;
  const ActivationRows::View view(
      alone ? &own_rows_[me.index()] : &shared_rows_, n_columns, bits_);
  const Share rows = alone ? Share{0, 1} : me.ShareOf(n_rows);
  for (size_t i = rows.begin; i < rows.end; ++i) {
    fill(i, view.row(i));
    view.Finish(i);
  }
  if (!alone) me.Barrier();
  return view;
}

void CpuExecutor::Multiply(const WeightMatrix& matrix, Share tiles,
                           const ActivationRows::View& x, size_t n_rows,
                           float* y, size_t y_stride) const {
  if (tiles.begin >= tiles.end) return;
  MatmulArgs args{};
  args.tiles = matrix.tiles.data();
  args.n_column_tiles = matrix.n_column_tiles();
  args.row_tile_begin = tiles.begin;
  args.row_tile_end = tiles.end;
  args.n_tokens = n_rows;
  args.quantized = x.quantized();
  args.x = x.f32();
  args.x_stride = x.stride();
  args.y = y;
  args.y_stride = y_stride;
  kernels_.matmul[static_cast<size_t>(matrix.format)](args);
}

}  // namespace

uint64_t CpuExecutorWorkingBytes(const Architecture& a,
                                 const CpuExecutorOptions& options) {
  const uint64_t row_floats = 2 * PaddedRows(a.n_embd) + QkvColumns(a) +
                              uint64_t{a.n_heads} * a.head_dim +
                              2 * PaddedRows(a.n_ff) + a.rope.n_rotated +
                              kTileRows;
  const uint64_t row_bytes = ActivationRows::RowBytes(WidestInput(a));
  return options.max_step_tokens * (row_floats * sizeof(float) + row_bytes) +
         options.team->n_threads() * row_bytes;
}

std::unique_ptr<Executor> MakeCpuExecutor(Architecture architecture,
                                          Weights weights,
                                          const CpuExecutorOptions& options) {
  CHECK(options.kernels != nullptr && options.team != nullptr);
  return std::make_unique<CpuExecutor>(std::move(architecture),
                                       std::move(weights), options);
}

}  // namespace lkv
