#include "eval/hit_rate.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "policy/heavy_hitters.h"

namespace lkv {

void ResidencyLog::Record(const Sequence& sequence) {
  std::vector<std::vector<uint32_t>> resident;
  resident.reserve(shape_.n_lanes());
  for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (uint32_t head = 0; head < shape_.n_kv_heads; ++head) {
      resident.push_back(sequence.ResidentPositions(layer, head));
    }
  }
  Record(sequence.n_tokens() - 1, resident);
}

void ResidencyLog::Record(uint32_t query_pos,
                          std::span<const std::vector<uint32_t>> resident) {
  CHECK(resident.size() == shape_.n_lanes());
  CHECK(query_pos_.empty() || query_pos_.back() < query_pos);
  query_pos_.push_back(query_pos);
  for (const std::vector<uint32_t>& positions : resident) {
    std::vector<uint64_t>& bits =
        bits_.emplace_back(query_pos / 64 + 1, uint64_t{0});
    for (uint32_t pos : positions) bits[pos / 64] |= uint64_t{1} << (pos % 64);
  }
}

int ResidencyLog::FindSample(uint32_t query_pos) const {
  auto it = std::lower_bound(query_pos_.begin(), query_pos_.end(), query_pos);
  if (it == query_pos_.end() || *it != query_pos) return -1;
  return static_cast<int>(it - query_pos_.begin());
}

HitRateMeter::HitRateMeter(const KvShape& shape, const ProtectedEnds& ends,
                           std::span<const ResidencyLog* const> logs)
    : shape_(shape),
      ends_(ends),
      logs_(logs.begin(), logs.end()),
      lanes_(shape.n_lanes()) {
  uint32_t n_positions = 0;
  for (const ResidencyLog* log : logs_) {
    n_positions = std::max(n_positions, log->n_positions());
  }
  for (Lane& lane : lanes_) {
    lane.sums.resize(logs_.size());
    lane.order.reserve(n_positions);
  }
}

void HitRateMeter::OnAttention(const AttentionSample& sample) {
  const uint32_t lane_id = shape_.LaneOf(sample.layer, sample.kv_head);
  Lane& lane = lanes_[lane_id];
  const float* mass = sample.mass_mean;
  // The run keeps everything, so slot i holds position i.
  const uint32_t n = sample.query_pos + 1;
  const auto [begin, end] = ContestableSlots(ends_, n);
  bool sorted = false;
  for (size_t i = 0; i < logs_.size(); ++i) {
    const ResidencyLog& log = *logs_[i];
    const int at = log.FindSample(sample.query_pos);
    if (at < 0) continue;
    CHECK(sample.n_slots == n);

    Sums& sums = lane.sums[i];
    double contestable = 0, hit = 0;
    uint32_t n_resident = 0;
    for (uint32_t pos = 0; pos < n; ++pos) {
      const bool resident = log.IsResident(at, lane_id, pos);
      sums.all += mass[pos];
      if (resident) sums.all_hit += mass[pos];
      if (pos < begin || pos >= end) continue;
      contestable += mass[pos];
      if (resident) {
        hit += mass[pos];
        ++n_resident;
      }
    }
    if (contestable <= 0) continue;
    sums.contestable += contestable;
    sums.contestable_hit += hit;
    sums.ratios += hit / contestable;
    ++sums.n_ratios;

    if (!sorted) {  // once per (step, lane), whatever the number of logs
      sorted = true;
      lane.order.resize(end - begin);
      for (uint32_t j = 0; j < end - begin; ++j) lane.order[j] = begin + j;
      std::sort(lane.order.begin(), lane.order.end(),
                [mass](uint32_t a, uint32_t b) {
                  return mass[a] != mass[b] ? mass[a] > mass[b] : a < b;
                });
    }
    const size_t n_max = std::max<uint32_t>(n_resident, 1);
    double covered = 0;
    size_t n_set = 0, n_hit = 0;
    while (n_set < std::min(n_max, lane.order.size()) &&
           covered < kUsedMassShare * contestable) {
      const uint32_t pos = lane.order[n_set++];
      covered += mass[pos];
      if (log.IsResident(at, lane_id, pos)) ++n_hit;
    }
    sums.topk_ratios += static_cast<double>(n_hit) / static_cast<double>(n_set);
  }
}

HitRates HitRateMeter::Rates(size_t index) const {
  Sums total;
  for (const Lane& lane : lanes_) {  // in order: the same sum every time
    const Sums& sums = lane.sums[index];
    total.contestable += sums.contestable;
    total.contestable_hit += sums.contestable_hit;
    total.all += sums.all;
    total.all_hit += sums.all_hit;
    total.ratios += sums.ratios;
    total.topk_ratios += sums.topk_ratios;
    total.n_ratios += sums.n_ratios;
  }
  HitRates rates;
  rates.sampled_steps = logs_[index]->n_samples();
  if (total.contestable > 0) {
    const double n = static_cast<double>(total.n_ratios);
    rates.mass = total.contestable_hit / total.contestable;
    rates.mass_unweighted = total.ratios / n;
    rates.topk = total.topk_ratios / n;
  }
  if (total.all > 0) rates.raw = total.all_hit / total.all;
  return rates;
}

Result<std::vector<HitRates>> MeasureHitRates(
    Engine& engine, std::span<const ForcedPart> parts,
    std::span<const SequenceOptions> policies, const HitRateOptions& options) {
  CHECK(options.sample_every > 0 && !policies.empty());
  const KvShape shape = engine.architecture().kv_shape();
  const ProtectedEnds ends = ProtectedEndsOf(policies[0].cache);
  std::vector<ResidencyLog> logs(policies.size(), ResidencyLog(shape));
  for (size_t i = 0; i < policies.size(); ++i) {
    CHECK(policies[i].cache.sink_tokens == ends.sink_tokens &&
          policies[i].cache.recent_tokens == ends.recent_tokens);
    size_t n_decoded = 0;
    auto log = [&](const Sequence& sequence) {
      const size_t n_steps = sequence.times().step_us.size();
      if (n_steps == n_decoded) return;  // a prefill
      n_decoded = n_steps;
      if ((n_steps - 1) % options.sample_every == 0) logs[i].Record(sequence);
    };
    Result<std::unique_ptr<Sequence>> run = StartAndRunForced(
        engine, parts, policies[i], log, {}, options.cancelled);
    if (!run.ok()) return run.status();
  }

  std::vector<const ResidencyLog*> log_pointers;
  for (const ResidencyLog& log : logs) log_pointers.push_back(&log);
  HitRateMeter meter(shape, ends, log_pointers);
  CacheOptions full;
  full.policy = PolicyName::kFull;
  full.kv_type = policies[0].cache.kv_type;
  engine.SetObserver(&meter);
  Result<std::unique_ptr<Sequence>> shadow = StartAndRunForced(
      engine, parts, OptionsFor(parts, full), {}, {}, options.cancelled);
  engine.SetObserver(nullptr);
  if (!shadow.ok()) return shadow.status();

  std::vector<HitRates> rates;
  for (size_t i = 0; i < policies.size(); ++i) rates.push_back(meter.Rates(i));
  return rates;
}

}  // namespace lkv
