#include "policy/eviction_policy.h"

#include "base/check.h"
#include "policy/attention_policies.h"
#include "policy/expected_attention_policy.h"
#include "policy/lookahead_policy.h"
#include "policy/place_policies.h"
#include "policy/protection.h"
#include "policy/snapkv_policy.h"
#include "policy/use_policies.h"

namespace lkv {

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(
    const CacheOptions& options, const PolicyCapacity& capacity,
    const KernelTable& kernels, const PredictorView& predictor) {
  const ProtectedEnds ends = ProtectedEndsOf(options);
  switch (options.policy) {
    case PolicyName::kFull:
      return nullptr;
    case PolicyName::kLookahead:
      return std::make_unique<LookaheadPolicy>(options, capacity, kernels,
                                               predictor);
    case PolicyName::kEma:
      return std::make_unique<LookaheadPolicy>(options, capacity, kernels,
                                               PredictorView());
    case PolicyName::kLru:
      return std::make_unique<LruPolicy>(ends, capacity);
    case PolicyName::kLfu:
      return std::make_unique<LfuPolicy>(ends, capacity);
    case PolicyName::kFifo:
      return std::make_unique<ArrivalPolicy>("fifo", capacity);
    case PolicyName::kStreaming:
      return std::make_unique<ArrivalPolicy>("streaming", capacity);
    case PolicyName::kH2o:
      return std::make_unique<H2oPolicy>(capacity);
    case PolicyName::kObserved:
      return std::make_unique<ObservedPolicy>(capacity);
    case PolicyName::kTova:
      return std::make_unique<TovaPolicy>(capacity);
    case PolicyName::kSnapKv:
      return std::make_unique<SnapKvPolicy>(ends, capacity);
    case PolicyName::kExpectedAttention:
      return std::make_unique<ExpectedAttentionPolicy>(capacity);
    case PolicyName::kRepeat:
      CHECK(false);  // whoever has the prompt read twice makes it
    case PolicyName::kRandom:
      return std::make_unique<RandomPolicy>(options.seed, capacity);
  }
  return nullptr;
}

}  // namespace lkv
