// Drives a KvCache as a model would, with random rows that depend on the
// sequence's seed, the layer and the position only, so that any chunking and
// any cache sees the same text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "cache/kv_cache.h"

namespace lkv {

// One sequence as the driver feeds it.
struct DrivenSequence {
  SequenceId id{};
  uint32_t seed = 0;
  uint32_t n_tokens = 0;
};

// Appends k, v [n_kv_heads, head_dim] per token, in one phase.
inline void AppendHeads(TeamMember& me, KvCache& cache, uint32_t layer,
                        TokenRows k, TokenRows v) {
  const uint32_t d = cache.shape().head_dim;
  me.ForEach(cache.shape().n_kv_heads, [&](size_t head) {
    cache.Append(layer, static_cast<uint32_t>(head),
                 {k.data + head * d, k.stride}, {v.data + head * d, v.stride});
  });
}

class CacheDriver {
 public:
  CacheDriver(KvCache& cache, uint32_t n_threads)
      : cache_(cache), shape_(cache.shape()), team_(n_threads) {}

  // Larger: attention is more peaked.
  float query_scale = 1.0f;
  // Added to every element of all keys whose dimension is a multiple of 16:
  // models' keys have large means in a few dimensions.
  float key_mean = 0.0f;

  DrivenSequence Add(const SequenceOptions& options, uint32_t seed) {
    Result<SequenceId> id = cache_.AddSequence(options);
    EXPECT_TRUE(id.ok()) << id.status().message();
    return {id.ok() ? id.value() : SequenceId{}, seed, 0};
  }

  // One step; n_new[i] tokens for sequences[i]. Returns the outputs of all
  // layers, [n_layers][n_rows, n_heads * head_dim], or nothing when refused.
  std::vector<std::vector<float>> Step(
      std::span<DrivenSequence* const> sequences,
      std::span<const uint32_t> n_new) {
    std::vector<StepEntry> entries;
    size_t n_rows = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      entries.push_back({sequences[i]->id, n_new[i]});
      n_rows += n_new[i];
    }
    status = cache_.BeginStep(entries);
    if (!status.ok()) return {};
    const size_t kv_row = size_t{shape_.n_kv_heads} * shape_.head_dim;
    const size_t q_row = size_t{shape_.n_heads()} * shape_.head_dim;
    std::vector<std::vector<float>> q(shape_.n_layers);
    std::vector<std::vector<float>> k(shape_.n_layers);
    std::vector<std::vector<float>> v(shape_.n_layers);
    std::vector<std::vector<float>> out(shape_.n_layers);
    for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
      out[layer].resize(n_rows * q_row);
      for (size_t i = 0; i < sequences.size(); ++i) {
        for (uint32_t t = 0; t < n_new[i]; ++t) {
          const uint32_t pos = sequences[i]->n_tokens + t;
          Draw(Row::kQuery, *sequences[i], layer, pos, q_row, query_scale,
               &q[layer]);
          Draw(Row::kKey, *sequences[i], layer, pos, kv_row, 1, &k[layer]);
          for (size_t d = k[layer].size() - kv_row; d < k[layer].size();
               d += 16) {
            k[layer][d] += key_mean;
          }
          Draw(Row::kValue, *sequences[i], layer, pos, kv_row, 1, &v[layer]);
        }
      }
    }
    team_.Run([&](TeamMember& me) {
      for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
        AppendHeads(me, cache_, layer, {k[layer].data(), kv_row},
                    {v[layer].data(), kv_row});
        cache_.Attend(me, layer, {q[layer].data(), q_row}, out[layer].data(),
                      q_row);
      }
      cache_.EndStep(me);
    });
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i]->n_tokens += n_new[i];
    }
    return out;
  }

  std::vector<std::vector<float>> Step(DrivenSequence& sequence,
                                       uint32_t n_new) {
    DrivenSequence* const one = &sequence;
    return Step({&one, 1}, {&n_new, 1});
  }

  // Feeds a prompt in the chunks that the cache asks for. Returns the outputs
  // of the last layer, one row per token.
  std::vector<float> Prefill(DrivenSequence& sequence, uint32_t n_tokens,
                             uint32_t wanted) {
    std::vector<float> rows;
    const uint32_t end = sequence.n_tokens + n_tokens;
    while (sequence.n_tokens < end) {
      const uint32_t n = std::min(cache_.ChunkTokens(sequence.id, wanted),
                                  end - sequence.n_tokens);
      std::vector<std::vector<float>> out = Step(sequence, n);
      if (out.empty()) return {};
      rows.insert(rows.end(), out.back().begin(), out.back().end());
    }
    return rows;
  }

  Status status;  // of the last step

  enum class Row : uint32_t { kQuery, kKey, kValue };
  // Appends n numbers of variance scale^2.
  static void Draw(Row row, const DrivenSequence& sequence, uint32_t layer,
                   uint32_t pos, size_t n, float scale,
                   std::vector<float>* rows) {
    // Uniform with a variance of 1; far cheaper to draw than a normal one.
    uint64_t state =
        ((static_cast<uint64_t>(row) * 1000003ull + sequence.seed) *
             1000003ull +
         layer) *
            1000003ull +
        pos;
    for (size_t i = 0; i < n; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const float uniform = static_cast<float>(state >> 40) * 0x1p-24f;
      rows->push_back(scale * 3.4641016f * (uniform - 0.5f));
    }
  }

 private:
  KvCache& cache_;
  const KvShape shape_;
  ThreadTeam team_;
};

}  // namespace lkv
