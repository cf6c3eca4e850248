#include "cache/dense_kv_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "cache/observed_queries.h"

namespace lkv {
namespace {

// Sixteen independent sums, so that a compiler may use vector registers
// without being allowed to reorder the addition of floats.
float Dot(const float* a, const float* b, uint32_t n) {
  constexpr uint32_t kSums = 16;
  float sums[kSums] = {};
  uint32_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (uint32_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  float total = 0;
  for (; i < n; ++i) total += a[i] * b[i];
  for (float sum : sums) total += sum;
  return total;
}

}  // namespace

DenseKvCache::DenseKvCache(const KvShape& shape) : shape_(shape) {
  CHECK(shape.n_lanes() > 0 && shape.group > 0 && shape.head_dim > 0);
}

Result<SequenceId> DenseKvCache::AddSequence(const SequenceOptions&) {
  const SequenceId id{next_id_++};
  Sequence& sequence = sequences_[id];
  sequence.keys.resize(shape_.n_lanes());
  sequence.values.resize(shape_.n_lanes());
  return id;
}

Result<SequenceId> DenseKvCache::ForkSequence(SequenceId parent) {
  const SequenceId id{next_id_++};
  sequences_.emplace(id, Find(parent));
  return id;
}

Status DenseKvCache::AnnounceTurn(SequenceId id, uint32_t, uint32_t) {
  CHECK(sequences_.contains(id));
  return {};
}

Status DenseKvCache::ShrinkBudget(SequenceId, const Budget&, uint32_t) {
  return {};
}

void DenseKvCache::RemoveSequence(SequenceId id) {
  CHECK(sequences_.erase(id) == 1);
}

const DenseKvCache::Sequence& DenseKvCache::Find(SequenceId id) const {
  auto it = sequences_.find(id);
  CHECK(it != sequences_.end());
  return it->second;
}

SequenceStats DenseKvCache::Stats(SequenceId id) const {
  const Sequence& sequence = Find(id);
  const size_t f32_bytes_per_token =
      shape_.bytes_per_token(KvType::kF16) / sizeof(uint16_t) * sizeof(float);
  SequenceStats stats;
  stats.n_tokens = sequence.n_tokens;
  stats.resident_bytes = sequence.n_tokens * f32_bytes_per_token;
  stats.resident_bytes_max = stats.resident_bytes;
  stats.budget_bytes = stats.resident_bytes;
  stats.fill_bytes = stats.resident_bytes;
  stats.full_bytes = sequence.n_tokens * shape_.bytes_per_token(KvType::kF16);
  stats.read_bytes_last_step = stats.resident_bytes;
  stats.window_tokens = sequence.n_tokens;
  return stats;
}

std::vector<uint32_t> DenseKvCache::ResidentPositions(SequenceId id, uint32_t,
                                                      uint32_t) const {
  std::vector<uint32_t> positions(Find(id).n_tokens);
  for (uint32_t i = 0; i < positions.size(); ++i) positions[i] = i;
  return positions;
}

uint32_t DenseKvCache::ChunkTokens(SequenceId id, uint32_t wanted) const {
  if (wanted == 0) return 0;
  return wanted - Find(id).n_tokens % wanted;
}

void DenseKvCache::SetObserver(AttentionObserver* observer) {
  observer_ = observer;
}

Status DenseKvCache::BeginStep(std::span<const StepEntry> entries) {
  step_.clear();
  size_t row = 0;
  for (const StepEntry& entry : entries) {
    auto it = sequences_.find(entry.sequence);
    CHECK(it != sequences_.end());
    Sequence& sequence = it->second;
    step_.push_back({entry.sequence, &sequence, entry.n_tokens, row});
    row += entry.n_tokens;
    const size_t n_floats =
        size_t{sequence.n_tokens + entry.n_tokens} * shape_.head_dim;
    for (auto* lanes : {&sequence.keys, &sequence.values}) {
      for (std::vector<float>& lane : *lanes) lane.resize(n_floats);
    }
  }
  return {};
}

void DenseKvCache::Append(uint32_t layer, uint32_t kv_head, TokenRows k,
                          TokenRows v) {
  const uint32_t d = shape_.head_dim;
  const uint32_t lane = shape_.LaneOf(layer, kv_head);
  for (const Entry& entry : step_) {
    for (uint32_t t = 0; t < entry.n_tokens; ++t) {
      const size_t row = entry.first_row + t;
      const size_t to = size_t{entry.sequence->n_tokens + t} * d;
      std::copy_n(k.data + row * k.stride, d, &entry.sequence->keys[lane][to]);
      std::copy_n(v.data + row * v.stride, d,
                  &entry.sequence->values[lane][to]);
    }
  }
}

void DenseKvCache::Attend(TeamMember& me, uint32_t layer, TokenRows q,
                          float* out, size_t out_stride) {
  Scratch scratch;
  const uint32_t heads = shape_.n_kv_heads;
  const size_t group_floats = size_t{shape_.group} * shape_.head_dim;
  me.ForEach(step_.size() * heads, [&](size_t item) {
    const Entry& entry = step_[item / heads];
    const uint32_t kv_head = static_cast<uint32_t>(item % heads);
    const uint32_t end_pos = entry.sequence->n_tokens + entry.n_tokens;
    for (uint32_t t = 0; t < entry.n_tokens; ++t) {
      const uint32_t pos = entry.sequence->n_tokens + t;
      const size_t row = entry.first_row + t;
      AttendOne(entry, layer, kv_head, pos,
                q.data + row * q.stride + kv_head * group_floats,
                out + row * out_stride + kv_head * group_floats, &scratch);
      if (observer_ != nullptr &&
          (observer_->WatchesAll() || IsObserved(pos, end_pos))) {
        Report(entry, layer, kv_head, pos, &scratch);
      }
    }
  });
}

// Attention of one query token, all query heads of one KV head; leaves the
// weights in scratch.
void DenseKvCache::AttendOne(const Entry& entry, uint32_t layer,
                             uint32_t kv_head, uint32_t query_pos,
                             const float* q, float* out,
                             Scratch* scratch) const {
  const uint32_t d = shape_.head_dim;
  const uint32_t n = query_pos + 1;
  const uint32_t lane = shape_.LaneOf(layer, kv_head);
  const float* keys = entry.sequence->keys[lane].data();
  const float* values = entry.sequence->values[lane].data();
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  scratch->weights.resize(size_t{shape_.group} * n);

  for (uint32_t g = 0; g < shape_.group; ++g) {
    double* weights = &scratch->weights[size_t{g} * n];
    double largest = -std::numeric_limits<double>::infinity();
    for (uint32_t i = 0; i < n; ++i) {
      weights[i] = scale * Dot(q + g * d, keys + size_t{i} * d, d);
      largest = std::max(largest, weights[i]);
    }
    double total = 0;
    for (uint32_t i = 0; i < n; ++i) {
      weights[i] = std::exp(weights[i] - largest);
      total += weights[i];
    }
    scratch->sum.assign(d, 0.0);
    for (uint32_t i = 0; i < n; ++i) {
      weights[i] /= total;
      const float* value = values + size_t{i} * d;
      for (uint32_t c = 0; c < d; ++c) {
        scratch->sum[c] += weights[i] * value[c];
      }
    }
    for (uint32_t c = 0; c < d; ++c) {
      out[g * d + c] = static_cast<float>(scratch->sum[c]);
    }
  }
}

void DenseKvCache::Report(const Entry& entry, uint32_t layer, uint32_t kv_head,
                          uint32_t query_pos, Scratch* scratch) const {
  const uint32_t n = query_pos + 1;
  scratch->mass_max.assign(n, 0.0f);
  scratch->mass_mean.assign(n, 0.0f);
  for (uint32_t i = 0; i < n; ++i) {
    double sum = 0;
    double largest = 0;
    for (uint32_t g = 0; g < shape_.group; ++g) {
      const double weight = scratch->weights[size_t{g} * n + i];
      sum += weight;
      largest = std::max(largest, weight);
    }
    scratch->mass_max[i] = static_cast<float>(largest);
    scratch->mass_mean[i] = static_cast<float>(sum / shape_.group);
  }
  observer_->OnAttention({.sequence = entry.id,
                          .layer = layer,
                          .kv_head = kv_head,
                          .query_pos = query_pos,
                          .n_slots = n,
                          .mass_max = scratch->mass_max.data(),
                          .mass_mean = scratch->mass_mean.data()});
}

void DenseKvCache::EndStep(TeamMember& me) {
  me.ForEach(1, [&](size_t) {
    for (const Entry& entry : step_) {
      entry.sequence->n_tokens += entry.n_tokens;
    }
  });
}

}  // namespace lkv
