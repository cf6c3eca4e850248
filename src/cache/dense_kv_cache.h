// DenseKvCache: the oracle. Keeps every key and value as f32 and computes
// attention in plain loops with double sums, so that everything else can be
// compared with it.
//
// Budgets, policies and windows are ignored: nothing ever leaves. Memory grows
// with the text (at twice the bytes of an f16 cache); unlike a product cache a
// step may allocate.
//
// Thread rule: as KvCache. Work is shared by (sequence, KV head), so results
// do not depend on the size of the team. Cost of a step: O(n) per query head.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cache/kv_cache.h"

namespace lkv {

class DenseKvCache final : public KvCache {
 public:
  explicit DenseKvCache(const KvShape& shape);

  const KvShape& shape() const override { return shape_; }
  Result<SequenceId> AddSequence(const SequenceOptions& options) override;
  Result<SequenceId> ForkSequence(SequenceId parent) override;
  Status AnnounceTurn(SequenceId id, uint32_t prompt_tokens,
                      uint32_t max_new_tokens) override;
  Status ShrinkBudget(SequenceId id, const Budget& budget,
                      uint32_t room_tokens) override;
  void RemoveSequence(SequenceId id) override;
  SequenceStats Stats(SequenceId id) const override;
  std::vector<uint32_t> ResidentPositions(SequenceId id, uint32_t layer,
                                          uint32_t kv_head) const override;
  uint32_t ChunkTokens(SequenceId id, uint32_t wanted) const override;
  void SetObserver(AttentionObserver* observer) override;

  Status BeginStep(std::span<const StepEntry> entries) override;
  void Append(uint32_t layer, uint32_t kv_head, TokenRows k,
              TokenRows v) override;
  void Attend(TeamMember& me, uint32_t layer, TokenRows q, float* out,
              size_t out_stride) override;
  void EndStep(TeamMember& me) override;

 private:
  struct Sequence {
    uint32_t n_tokens = 0;
    // Per lane [n_tokens, head_dim].
    std::vector<std::vector<float>> keys;
    std::vector<std::vector<float>> values;
  };
  // One sequence in the step under way.
  struct Entry {
    SequenceId id;
    Sequence* sequence;
    uint32_t n_tokens;
    size_t first_row;
  };
  // What one member needs while it works on one query token.
  struct Scratch {
    std::vector<double> weights;  // [group, n_visible]
    std::vector<double> sum;      // [head_dim]
    std::vector<float> mass_max;  // [n_visible]
    std::vector<float> mass_mean;
  };

  const Sequence& Find(SequenceId id) const;
  void AttendOne(const Entry& entry, uint32_t layer, uint32_t kv_head,
                 uint32_t query_pos, const float* q, float* out,
                 Scratch* scratch) const;
  void Report(const Entry& entry, uint32_t layer, uint32_t kv_head,
              uint32_t query_pos, Scratch* scratch) const;

  const KvShape shape_;
  std::map<SequenceId, Sequence> sequences_;
  uint32_t next_id_ = 0;
  std::vector<Entry> step_;
  AttentionObserver* observer_ = nullptr;
};

}  // namespace lkv
