// Hit rates of eviction policies, measured in two passes. The policy's own run
// logs which positions were resident at sampled steps (ResidencyLog); a shadow
// run that keeps everything, on the same tokens, then weighs them with the full
// attention of those steps (HitRateMeter). Neither belongs into a timed run.
// Definitions: lookaheadkv/hit_rates.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "eval/forced_run.h"
#include "lookaheadkv/hit_rates.h"
#include "lookaheadkv/status.h"
#include "policy/protection.h"

namespace lkv {

// Which positions each lane held at sampled steps. Thread-compatible. Memory:
// one bit per sample, lane and position.
class ResidencyLog {
 public:
  explicit ResidencyLog(const KvShape& shape) : shape_(shape) {}

  // Logs what the step that fed the newest token read: eviction comes before
  // attention, so what is resident afterwards is what attention saw.
  void Record(const Sequence& sequence);
  // The same from lists, [n_lanes] of ascending positions.
  void Record(uint32_t query_pos,
              std::span<const std::vector<uint32_t>> resident);

  // Index of the sample taken at this position, or -1.
  int FindSample(uint32_t query_pos) const;
  uint32_t n_samples() const {
    return static_cast<uint32_t>(query_pos_.size());
  }
  // Positions up to the newest sample's query, itself included.
  uint32_t n_positions() const {
    return query_pos_.empty() ? 0 : query_pos_.back() + 1;
  }
  // Requires pos <= the sample's query position.
  bool IsResident(int sample, uint32_t lane, uint32_t pos) const {
    const std::vector<uint64_t>& bits =
        bits_[static_cast<size_t>(sample) * shape_.n_lanes() + lane];
    return bits[pos / 64] >> (pos % 64) & 1;
  }

 private:
  KvShape shape_;
  std::vector<uint32_t> query_pos_;          // ascending
  std::vector<std::vector<uint64_t>> bits_;  // [n_samples, n_lanes]
};

// Watches a run that keeps everything and weighs one or more logs. OnAttention
// may run for different lanes at the same time.
class HitRateMeter final : public AttentionObserver {
 public:
  // `logs`, which must be complete, must outlive the meter. `ends`: the tokens
  // that every policy keeps, so that none earns a hit by them.
  HitRateMeter(const KvShape& shape, const ProtectedEnds& ends,
               std::span<const ResidencyLog* const> logs);

  void OnAttention(const AttentionSample& sample) override;
  // Of logs[index].
  HitRates Rates(size_t index) const;

 private:
  struct Sums {  // over the sampled steps of one lane
    double contestable = 0, contestable_hit = 0;
    double all = 0, all_hit = 0;
    double ratios = 0, topk_ratios = 0;
    uint64_t n_ratios = 0;
  };
  struct Lane {
    std::vector<Sums> sums;       // [n_logs]
    std::vector<uint32_t> order;  // contestable positions, by mass
  };

  const KvShape shape_;
  const ProtectedEnds ends_;
  const std::vector<const ResidencyLog*> logs_;
  std::vector<Lane> lanes_;
};

struct HitRateOptions {
  uint32_t sample_every = 8;  // decode steps
  std::function<bool()> cancelled;
};

// Hit rates of several policies on the same text: one run for each, then one
// shadow run with the full cache. All must protect the same sinks and recent
// tokens. A policy run repeats an earlier one exactly when that fed the same
// parts to a sequence started alike, because eviction depends on nothing else.
Result<std::vector<HitRates>> MeasureHitRates(
    Engine& engine, std::span<const ForcedPart> parts,
    std::span<const SequenceOptions> policies, const HitRateOptions& options);

}  // namespace lkv
