#include "model/cpu_executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/stopwatch.h"
#include "kernels/activation_rows.h"
#include "model/rope.h"

namespace lkv {
namespace {

size_t PaddedRows(size_t n_rows) {
  return CeilDiv(n_rows, kTileRows) * kTileRows;
}

// The widest row that any matrix but `down` reads.
size_t WidestInput(const Architecture& a) {
  return std::max(size_t{a.n_embd}, size_t{a.n_heads} * a.head_dim);
}

// Row tiles of gate and up that give the columns of one tile of `down`.
constexpr size_t kHiddenTiles = kTileColumns / kTileRows;

// Items of a product with these tiles: 2 us each, so that taking one costs
// nothing beside it, and few enough that the shares stay even to the end.
size_t CountProductItems(size_t n_bytes, size_t n_row_tiles) {
  constexpr size_t kItemBytes = size_t{32} << 10;
  constexpr size_t kMaxItems = 256;
  return CountItems(n_bytes, kItemBytes, std::min(kMaxItems, n_row_tiles));
}

size_t CountProductItems(const WeightMatrix& matrix) {
  return CountProductItems(matrix.n_bytes(), matrix.n_row_tiles());
}

// The column tiles of `down`, for each of which gate and up are computed.
size_t CountHiddenTiles(const LayerWeights& layer) {
  return CeilDiv(layer.gate.n_row_tiles(), kHiddenTiles);
}

size_t CountFeedForwardItems(const LayerWeights& layer) {
  return CountProductItems(layer.gate.n_bytes() + layer.up.n_bytes(),
                           CountHiddenTiles(layer));
}

// First the larger ones, a head of keys with its values; then the heads of
// queries.
size_t CountQkvItems(const Architecture& a) { return a.n_kv_heads + a.n_heads; }

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
  template <typename Fill>
  class InputRows;
  // What one member works with alone.
  struct Member {
    ActivationRows row;         // a single one, see InputRows
    AlignedBuffer<float> gate;  // [max_tokens, kTileColumns]
    AlignedBuffer<float> up;    // likewise
  };

  // The parts of a step, top to bottom. Collective: every member of the team
  // calls each with the same arguments; each returns with its results visible
  // to all members.
  void Embed(TeamMember& me, const StepBatch& batch);
  void ProjectQkv(TeamMember& me, uint32_t layer_index, KvCache& cache);
  void AddAttentionOutput(TeamMember& me, const LayerWeights& layer);
  void AddFeedForward(TeamMember& me, uint32_t layer_index);
  void ProjectLogits(TeamMember& me, const StepBatch& batch,
                     std::span<float> logits);

  // Where the weights of a member's share of a part begin. The part before, if
  // it is a product, prefetches them at its end: a decode step is over in the
  // time that memory takes, unless it stands still between parts.
  const uint8_t* QkvBegin(const TeamMember& me,
                          const LayerWeights& layer) const;
  const uint8_t* FeedForwardBegin(const TeamMember& me,
                                  const LayerWeights& layer) const;
  const uint8_t* ProductBegin(const TeamMember& me,
                              const WeightMatrix& matrix) const;

  // y[t, r] for the rows of `tiles`, r counted from their first, and all rows t
  // of the activations. `next` is what the member reads afterwards, nullptr:
  // what lies behind.
  void Multiply(const WeightMatrix& matrix, Range tiles,
                const ActivationRows::View& x, size_t n_rows, float* y,
                size_t y_stride, const uint8_t* next) const;
  // The same for two matrices whose row tiles alternate.
  void MultiplyPair(const WeightMatrix& matrix, const WeightMatrix& partner,
                    Range tiles, const ActivationRows::View& x, float* y,
                    float* y_partner, size_t y_stride,
                    const uint8_t* next) const;
  // x += W a, for the residual stream x; view() gives the rows of a, within
  // items. `next` as above, after this part.
  template <typename ViewOf>
  void AddProduct(TeamMember& me, const WeightMatrix& matrix,
                  const ViewOf& view, const uint8_t* next);
  // One tile of the columns that `down` reads: silu(gate) * up of the normed
  // rows x, quantised at once, while it is in a cache.
  void ComputeHidden(Member& mine, const LayerWeights& layer, size_t tile,
                     const ActivationRows::View& x,
                     const ActivationRows::View& hidden, const uint8_t* next);
  // Bias and per-head norm, and rotation, of one head of all tokens. `head` is
  // that of the first.
  void FinishHead(float* head, const std::vector<float>& bias, size_t head_at,
                  const std::vector<float>& norm) const;
  void Rotate(float* head) const;

  float* Residual(size_t token) { return residual_.data() + token * embd_; }

  const Architecture arch_;
  const Weights weights_;
  const RopeTable rope_;
  const KernelTable& kernels_;
  ThreadTeam& team_;
  const ActivationPrecision precision_;
  const uint32_t max_tokens_;
  const size_t embd_;  // padded row stride
  const size_t qkv_columns_;
  const size_t n_pairs_;  // rotated pairs of a head

  // Set for one step.
  size_t n_tokens_ = 0;
  QuantizeBits bits_ = QuantizeBits::k8;
  std::atomic<bool> cancelled_ = false;
  double policy_seconds_ = 0;

  AlignedBuffer<float> residual_;   // [max_tokens, embd]
  AlignedBuffer<float> product_;    // [max_tokens, embd]
  AlignedBuffer<float> qkv_;        // [max_tokens, qkv_columns]
  AlignedBuffer<float> attention_;  // [max_tokens, n_heads * head_dim]
  AlignedBuffer<float> cosine_;     // [max_tokens, n_pairs]
  AlignedBuffer<float> sine_;       // [max_tokens, n_pairs]
  AlignedBuffer<float> last_tile_;  // [max_tokens, kTileRows]
  ActivationRows input_rows_;       // max_tokens, see InputRows
  ActivationRows hidden_rows_;      // max_tokens, what `down` reads
  std::vector<Member> members_;
};

// The rows that one product reads, `fill(i, row)` writing row i, quantised.
//
// Several rows are prepared together, in a phase of their own. A single one is
// prepared by every member for itself, in its first item: 0.2 us against a
// phase of 0.3 us, three times a layer.
template <typename Fill>
class CpuExecutor::InputRows {
 public:
  // Collective.
  InputRows(CpuExecutor& executor, TeamMember& me, size_t n_rows,
            size_t n_columns, const Fill& fill)
      : is_ready_(n_rows != 1),
        fill_(fill),
        view_(n_rows == 1 ? &executor.members_[me.index()].row
                          : &executor.input_rows_,
              n_columns, executor.bits_) {
    if (is_ready_) me.ForEach(n_rows, [&](size_t i) { Prepare(i); });
  }

  // Within items only.
  const ActivationRows::View& view() {
    if (!is_ready_) Prepare(0);
    is_ready_ = true;
    return view_;
  }

 private:
  void Prepare(size_t i) {
    fill_(i, view_.row(i));
    view_.Finish(i);
  }

  bool is_ready_;
  const Fill& fill_;
  const ActivationRows::View view_;
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
      qkv_columns_(QkvColumns(arch_)),
      n_pairs_(arch_.rope.n_rotated / 2),
      residual_(max_tokens_ * embd_),
      product_(max_tokens_ * embd_),
      qkv_(max_tokens_ * qkv_columns_),
      attention_(max_tokens_ * size_t{arch_.n_heads} * arch_.head_dim),
      cosine_(max_tokens_ * n_pairs_),
      sine_(max_tokens_ * n_pairs_),
      last_tile_(max_tokens_ * kTileRows),
      input_rows_(&kernels_, max_tokens_, WidestInput(arch_)),
      hidden_rows_(&kernels_, max_tokens_, arch_.n_ff) {
  const size_t hidden_floats = max_tokens_ * size_t{kTileColumns};
  for (uint32_t i = 0; i < team_.n_threads(); ++i) {
    members_.push_back({ActivationRows(&kernels_, 1, WidestInput(arch_)),
                        AlignedBuffer<float>(hidden_floats),
                        AlignedBuffer<float>(hidden_floats)});
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
  const TokenRows q{qkv_.data(), qkv_columns_};

  team_.Run([&](TeamMember& me) {
    Embed(me, batch);
    for (uint32_t i = 0; i < arch_.n_layers; ++i) {
      if (me.index() == 0 && cancelled && cancelled()) cancelled_ = true;
      // Members may see it at different layers: nobody waits for those who
      // leave.
      if (cancelled_) return;
      ProjectQkv(me, i, cache);
      cache.Attend(me, i, q, attention_.data(), q_columns);
      AddAttentionOutput(me, weights_.layers[i]);
      AddFeedForward(me, i);
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
  me.ForEach(n_tokens_, [&](size_t t) {
    ReadRow(weights_.token_embedding, static_cast<uint32_t>(batch.tokens[t]),
            Residual(t));
    rope_.Angles(batch.positions[t], cosine_.data() + t * n_pairs_,
                 sine_.data() + t * n_pairs_);
  });
}

// An item is a whole head, so that whoever computed it can also rotate it and,
// if it is one of keys and values, write it to the cache.
void CpuExecutor::ProjectQkv(TeamMember& me, uint32_t layer_index,
                             KvCache& cache) {
  const LayerWeights& layer = weights_.layers[layer_index];
  const size_t d = arch_.head_dim;
  const auto fill = [&](size_t t, float* row) {
    kernels_.rms_norm(Residual(t), layer.attention_norm.data(), arch_.n_embd,
                      arch_.norm_epsilon, row);
  };
  InputRows x(*this, me, n_tokens_, arch_.n_embd, fill);

  const size_t n_kv_heads = arch_.n_kv_heads;
  float* q = qkv_.data();
  float* k = q + arch_.n_heads * d;
  float* v = k + n_kv_heads * d;
  const auto tiles_of = [&](size_t head) {
    return Range{head * d / kTileRows, (head + 1) * d / kTileRows};
  };
  me.ForEach(CountQkvItems(arch_), [&](size_t item) {
    if (item >= n_kv_heads) {
      const size_t head = item - n_kv_heads;
      Multiply(layer.q, tiles_of(head), x.view(), n_tokens_, q + head * d,
               qkv_columns_, nullptr);
      FinishHead(q + head * d, layer.q_bias, head, layer.q_norm);
      Rotate(q + head * d);
      return;
    }
    MultiplyPair(layer.k, layer.v, tiles_of(item), x.view(), k + item * d,
                 v + item * d, qkv_columns_, nullptr);
    FinishHead(k + item * d, layer.k_bias, item, layer.k_norm);
    Rotate(k + item * d);
    FinishHead(v + item * d, layer.v_bias, item, {});
    cache.Append(layer_index, static_cast<uint32_t>(item),
                 {k + item * d, qkv_columns_}, {v + item * d, qkv_columns_});
  });
}

void CpuExecutor::FinishHead(float* head, const std::vector<float>& bias,
                             size_t head_at,
                             const std::vector<float>& norm) const {
  if (bias.empty() && norm.empty()) return;
  const size_t d = arch_.head_dim;
  for (size_t t = 0; t < n_tokens_; ++t, head += qkv_columns_) {
    if (!bias.empty()) {
      kernels_.add(head, bias.data() + head_at * d, d, head);
    }
    if (!norm.empty()) {
      kernels_.rms_norm(head, norm.data(), d, arch_.norm_epsilon, head);
    }
  }
}

void CpuExecutor::Rotate(float* head) const {
  const auto rope = arch_.rope.order == RopeOrder::kNormal
                        ? kernels_.rope_normal
                        : kernels_.rope_neox;
  for (size_t t = 0; t < n_tokens_; ++t) {
    rope(head + t * qkv_columns_, cosine_.data() + t * n_pairs_,
         sine_.data() + t * n_pairs_, n_pairs_);
  }
}

void CpuExecutor::AddAttentionOutput(TeamMember& me,
                                     const LayerWeights& layer) {
  const size_t n_columns = size_t{arch_.n_heads} * arch_.head_dim;
  const auto fill = [&](size_t t, float* row) {
    std::memcpy(row, attention_.data() + t * n_columns,
                n_columns * sizeof(float));
  };
  InputRows a(*this, me, n_tokens_, n_columns, fill);
  AddProduct(
      me, layer.o, [&] { return a.view(); }, FeedForwardBegin(me, layer));
}

void CpuExecutor::AddFeedForward(TeamMember& me, uint32_t layer_index) {
  const LayerWeights& layer = weights_.layers[layer_index];
  const auto fill_normed = [&](size_t t, float* row) {
    kernels_.rms_norm(Residual(t), layer.ffn_norm.data(), arch_.n_embd,
                      arch_.norm_epsilon, row);
  };
  InputRows x(*this, me, n_tokens_, arch_.n_embd, fill_normed);
  const ActivationRows::View hidden(&hidden_rows_, arch_.n_ff, bits_);
  const size_t n_tiles = CountHiddenTiles(layer);
  const size_t n_items = CountFeedForwardItems(layer);
  const uint8_t* down = ProductBegin(me, layer.down);
  me.ForEach(n_items, [&](size_t item) {
    const Range tiles = RangeOf(n_tiles, item, n_items);
    for (size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const bool goes_on =
          tile + 1 < tiles.end || me.GoesOnAfter(item, n_items);
      ComputeHidden(members_[me.index()], layer, tile, x.view(), hidden,
                    goes_on ? nullptr : down);
    }
  });

  const uint8_t* next = layer_index + 1 < arch_.n_layers
                            ? QkvBegin(me, weights_.layers[layer_index + 1])
                            : ProductBegin(me, weights_.output_matrix());
  AddProduct(
      me, layer.down, [&] { return hidden; }, next);
}

void CpuExecutor::ComputeHidden(Member& mine, const LayerWeights& layer,
                                size_t tile, const ActivationRows::View& x,
                                const ActivationRows::View& hidden,
                                const uint8_t* next) {
  const Range rows = {tile * kHiddenTiles, std::min((tile + 1) * kHiddenTiles,
                                                    layer.gate.n_row_tiles())};
  float* gate = mine.gate.data();
  float* up = mine.up.data();
  const size_t n = n_tokens_ * kTileColumns;
  // What no row tile writes meets weights of 0, but 0 times NaN is NaN.
  if (rows.end - rows.begin < kHiddenTiles) {
    std::fill_n(gate, n, 0.0f);
    std::fill_n(up, n, 0.0f);
  }
  MultiplyPair(layer.gate, layer.up, rows, x, gate, up, kTileColumns, next);
  kernels_.silu_multiply(gate, up, n, gate);
  for (size_t t = 0; t < n_tokens_; ++t) {
    hidden.Put(t, tile * kTileColumns, gate + t * kTileColumns,
               ReadsF32(layer.down.format));
  }
}

template <typename ViewOf>
void CpuExecutor::AddProduct(TeamMember& me, const WeightMatrix& matrix,
                             const ViewOf& view, const uint8_t* next) {
  const size_t n_tiles = matrix.n_row_tiles();
  const size_t n_items = CountProductItems(matrix);
  me.ForEach(n_items, [&](size_t item) {
    const Range tiles = RangeOf(n_tiles, item, n_items);
    const size_t begin = tiles.begin * kTileRows;
    const size_t n = (tiles.end - tiles.begin) * kTileRows;
    Multiply(matrix, tiles, view(), n_tokens_, product_.data() + begin, embd_,
             me.GoesOnAfter(item, n_items) ? nullptr : next);
    for (size_t t = 0; t < n_tokens_; ++t) {
      float* x = Residual(t) + begin;
      kernels_.add(x, product_.data() + t * embd_ + begin, n, x);
    }
  });
}

void CpuExecutor::ProjectLogits(TeamMember& me, const StepBatch& batch,
                                std::span<float> logits) {
  const size_t n_rows = batch.logit_rows.size();
  if (n_rows == 0) return;
  const auto fill = [&](size_t i, float* row) {
    kernels_.rms_norm(Residual(batch.logit_rows[i]),
                      weights_.output_norm.data(), arch_.n_embd,
                      arch_.norm_epsilon, row);
  };
  InputRows x(*this, me, n_rows, arch_.n_embd, fill);

  const WeightMatrix& matrix = weights_.output_matrix();
  const size_t vocab = arch_.vocab_size;
  const size_t n_tiles = matrix.n_row_tiles();
  const size_t n_whole_tiles = vocab / kTileRows;
  const size_t n_items = CountProductItems(matrix);
  me.ForEach(n_items, [&](size_t item) {
    const Range tiles = RangeOf(n_tiles, item, n_items);
    Multiply(matrix, {tiles.begin, std::min(tiles.end, n_whole_tiles)},
             x.view(), n_rows, logits.data() + tiles.begin * kTileRows, vocab,
             nullptr);
    if (tiles.end <= n_whole_tiles) return;
    // Kernels write whole tiles; the last one would run into the next row.
    const size_t first = n_whole_tiles * kTileRows;
    WeightMatrix last = matrix;
    last.n_rows = static_cast<uint32_t>(vocab - first);
    last.tiles = matrix.row_tile(n_whole_tiles);
    Multiply(last, {0, 1}, x.view(), n_rows, last_tile_.data(), kTileRows,
             nullptr);
    for (size_t i = 0; i < n_rows; ++i) {
      std::copy_n(last_tile_.data() + i * kTileRows, vocab - first,
                  logits.data() + i * vocab + first);
    }
  });
}

const uint8_t* CpuExecutor::QkvBegin(const TeamMember& me,
                                     const LayerWeights& layer) const {
  const size_t item = me.ShareOf(CountQkvItems(arch_)).begin;
  const size_t head_tiles = arch_.head_dim / kTileRows;
  return item < arch_.n_kv_heads
             ? layer.k.row_tile(item * head_tiles)
             : layer.q.row_tile((item - arch_.n_kv_heads) * head_tiles);
}

const uint8_t* CpuExecutor::FeedForwardBegin(const TeamMember& me,
                                             const LayerWeights& layer) const {
  const size_t n_items = CountFeedForwardItems(layer);
  const size_t item = me.ShareOf(n_items).begin;
  return layer.gate.row_tile(
      kHiddenTiles * RangeOf(CountHiddenTiles(layer), item, n_items).begin);
}

const uint8_t* CpuExecutor::ProductBegin(const TeamMember& me,
                                         const WeightMatrix& matrix) const {
  const size_t n_items = CountProductItems(matrix);
  const size_t item = me.ShareOf(n_items).begin;
  return matrix.row_tile(RangeOf(matrix.n_row_tiles(), item, n_items).begin);
}

void CpuExecutor::Multiply(const WeightMatrix& matrix, Range tiles,
                           const ActivationRows::View& x, size_t n_rows,
                           float* y, size_t y_stride,
                           const uint8_t* next) const {
  if (tiles.begin >= tiles.end) return;
  MatmulArgs args{};
  CHECK(matrix.is_contiguous() || tiles.end - tiles.begin == 1);
  args.tiles = matrix.row_tile(tiles.begin);
  args.n_column_tiles = matrix.n_column_tiles();
  args.row_tile_begin = 0;
  args.row_tile_end = tiles.end - tiles.begin;
  args.n_tokens = n_rows;
  args.quantized = x.quantized();
  args.x = x.f32();
  args.x_stride = x.stride();
  args.y = y;
  args.y_stride = y_stride;
  args.next = next;
  kernels_.matmul[static_cast<size_t>(matrix.format)](args);
}

void CpuExecutor::MultiplyPair(const WeightMatrix& matrix,
                               const WeightMatrix& partner, Range tiles,
                               const ActivationRows::View& x, float* y,
                               float* y_partner, size_t y_stride,
                               const uint8_t* next) const {
  for (size_t i = tiles.begin; i < tiles.end; ++i) {
    const size_t row = (i - tiles.begin) * kTileRows;
    Multiply(matrix, {i, i + 1}, x, n_tokens_, y + row, y_stride, nullptr);
    Multiply(partner, {i, i + 1}, x, n_tokens_, y_partner + row, y_stride,
             i + 1 == tiles.end ? next : nullptr);
  }
}

}  // namespace

uint64_t CpuExecutorWorkingBytes(const Architecture& a,
                                 const CpuExecutorOptions& options) {
  const uint64_t row_floats = 2 * PaddedRows(a.n_embd) + QkvColumns(a) +
                              uint64_t{a.n_heads} * a.head_dim +
                              a.rope.n_rotated + kTileRows;
  const uint64_t input_bytes = ActivationRows::RowBytes(WidestInput(a));
  const uint64_t row_bytes = row_floats * sizeof(float) + input_bytes +
                             ActivationRows::RowBytes(a.n_ff);
  const uint64_t member_row_bytes = 2 * kTileColumns * sizeof(float);
  return options.max_step_tokens *
             (row_bytes + options.team->n_threads() * member_row_bytes) +
         options.team->n_threads() * input_bytes;
}

std::unique_ptr<Executor> MakeCpuExecutor(Architecture architecture,
                                          Weights weights,
                                          const CpuExecutorOptions& options) {
  CHECK(options.kernels != nullptr && options.team != nullptr);
  return std::make_unique<CpuExecutor>(std::move(architecture),
                                       std::move(weights), options);
}

}  // namespace lkv
