// Shared by the tests that take a sequence apart and let it go on: sequences of
// every kind, with a text that leaves something to decide.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/testing_options.h"

namespace lkv {

inline constexpr KvShape kCaseShape{
    .n_layers = 3, .n_kv_heads = 2, .group = 2, .head_dim = 64};

// budget_tokens 0: everything is kept.
inline SequenceOptions Options(PolicyName policy, uint32_t budget_tokens) {
  if (budget_tokens == 0) return Small(policy, {});
  return Small(policy,
               {.kind = Budget::Kind::kTokens, .amount = budget_tokens});
}

inline std::vector<std::vector<uint32_t>> Residents(const KvCache& cache,
                                                    SequenceId id) {
  std::vector<std::vector<uint32_t>> all;
  for (uint32_t layer = 0; layer < kCaseShape.n_layers; ++layer) {
    for (uint32_t head = 0; head < kCaseShape.n_kv_heads; ++head) {
      all.push_back(cache.ResidentPositions(id, layer, head));
    }
  }
  return all;
}

struct Case {
  std::string name;
  SequenceOptions options;
  uint32_t common_tokens;
};

inline std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (uint32_t common : {640u, 633u, 7u, 1u}) {
    const std::string at = "_at_" + std::to_string(common);
    cases.push_back({"full" + at, Options(PolicyName::kFull, 0), common});
    cases.push_back(
        {"lookahead" + at, Options(PolicyName::kLookahead, 300), common});
    Case int8{"lookahead_int8" + at, Options(PolicyName::kLookahead, 300),
              common};
    int8.options.cache.kv_type = KvTypeName::kInt8;
    cases.push_back(int8);
  }
  Case repack{"lookahead_repack", Options(PolicyName::kLookahead, 300), 500};
  repack.options.cache.unit = EvictionUnit::kRepack;
  cases.push_back(repack);
  repack.name = "random_repack_int8";
  repack.options.cache.policy = PolicyName::kRandom;
  repack.options.cache.kv_type = KvTypeName::kInt8;
  cases.push_back(repack);
  Case window{"window", Options(PolicyName::kLookahead, 400), 600};
  window.options.cache.base_window_tokens = 160;
  window.options.cache.lane_spread = LaneSpreadMode::kMass;
  cases.push_back(window);
  Case hybrid{"hybrid_dense_pinned", Options(PolicyName::kLookahead, 800), 600};
  hybrid.options.cache.base_window_tokens = 160;
  hybrid.options.cache.window_strategy = WindowStrategy::kHybrid;
  hybrid.options.cache.dense_layers = 1;
  hybrid.options.pinned = {{50, 90}};
  cases.push_back(hybrid);
  Case threshold{"score_threshold", Options(PolicyName::kLookahead, 300), 500};
  threshold.options.cache.eviction_rule = EvictionRule::kScoreThreshold;
  threshold.options.cache.warmup_tokens = 400;
  cases.push_back(threshold);
  for (uint32_t common : {640u, 633u, 7u}) {
    Case tiers{"tiers_at_" + std::to_string(common),
               Options(PolicyName::kLookahead, 550), common};
    tiers.options.cache.recent_tokens = 128;
    tiers.options.cache.tiers = true;
    cases.push_back(tiers);
  }
  cases.push_back({"lru", Options(PolicyName::kLru, 300), 600});
  cases.push_back({"snapkv", Options(PolicyName::kSnapKv, 300), 600});
  cases.push_back({"expected_attention",
                   Options(PolicyName::kExpectedAttention, 300), 600});
  return cases;
}

}  // namespace lkv
