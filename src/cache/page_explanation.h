// PageExplanation: why a resident page is kept, for people. Plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace lkv {

enum class PageProtection {
  kNone,        // stands for eviction
  kSink,        // holds the first tokens of the text
  kRecent,      // holds the newest tokens, or is not full yet
  kPinned,      // holds the system prompt or template text
  kDenseLayer,  // its layer never evicts
};

struct PageExplanation {
  std::vector<uint32_t> positions;  // of its tokens, ascending
  PageProtection protection = PageProtection::kNone;
  float attention = 0;  // predicted attention per the policy; 0 without one
  float score = 0;      // higher = keep; 0 without a policy
};

}  // namespace lkv
