#include "cli/budget_notice.h"

#include "base/byte_text.h"
#include "cli/exit_code.h"
#include "options/budget_text.h"

namespace lkv::cli {

void NoticeRaisedBudget(const SequenceOptions& asked, const KvShape& shape,
                        const SequenceStats& got) {
  const Budget& budget = asked.cache.budget;
  if (budget.kind != Budget::Kind::kShare) return;
  const double n_tokens =
      double{1} * asked.prompt_tokens + asked.max_new_tokens;
  const auto share_bytes = static_cast<uint64_t>(
      budget.share * n_tokens *
      static_cast<double>(shape.bytes_per_token(KvTypeOf(asked.cache))));
  if (got.budget_bytes <= share_bytes) return;
  PrintError("budget: " + FormatBudget(budget) + " is " +
             FormatBytes(share_bytes) + ", raised to the " +
             FormatBytes(got.budget_bytes) +
             " that sinks, recent tokens and open pages need");
}

}  // namespace lkv::cli
