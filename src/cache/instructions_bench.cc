// Counts the instructions of decode steps from when the budget is full to 2,000
// tokens later, of the whole cache and policy: a step must not cost more the
// longer the text. The heads are small, so that the policy is a large part.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_team.h"
#include "cache/paged_kv_cache.h"
#include "kernels/kernel_table.h"
#include "testing/cache_driver.h"
#include "testing/counted_call.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 1, .n_kv_heads = 2, .group = 2, .head_dim = 16};
constexpr uint32_t kBudgetTokens = 256;
constexpr uint32_t kPromptTokens = 2 * kBudgetTokens;
constexpr uint32_t kDecodeTokens = 2000;
// Pages fill up every 16 tokens and heavy work is spread over more.
constexpr uint32_t kStepsPerCount = 400;

// One sequence of random rows, without CacheDriver's own work in the steps.
class Decoding {
 public:
  Decoding(const KernelTable& set, PolicyName policy)
      : cache_(kShape, {.kernels = &set, .max_threads = 1}), team_(1) {
    SequenceOptions options;
    options.cache.policy = policy;
    options.cache.budget = {.kind = Budget::Kind::kTokens,
                            .amount = kBudgetTokens};
    options.cache.recent_tokens = 32;
    // What it forecasts takes no instruction more or less.
    options.predictor = std::make_shared<HistoryNetwork>(kShape.n_lanes());
    options.prompt_tokens = kPromptTokens;
    options.max_new_tokens = kDecodeTokens;
    Result<SequenceId> id = cache_.AddSequence(options);
    CHECK(id.ok());
    sequence_.id = id.value();
    for (uint32_t n_read = 0; n_read < kPromptTokens;) {
      const uint32_t n = cache_.ChunkTokens(sequence_.id, kPromptTokens);
      DrawRows(n_read, n);
      RunSteps(1, n);
      n_read += n;
    }
  }

  void DrawRows(uint32_t first_pos, uint32_t n_tokens) {
    q_.clear();
    k_.clear();
    v_.clear();
    for (uint32_t pos = first_pos; pos < first_pos + n_tokens; ++pos) {
      using Row = CacheDriver::Row;
      CacheDriver::Draw(Row::kQuery, sequence_, 0, pos, kQueryRow, 1, &q_);
      CacheDriver::Draw(Row::kKey, sequence_, 0, pos, kKvRow, 1, &k_);
      CacheDriver::Draw(Row::kValue, sequence_, 0, pos, kKvRow, 1, &v_);
    }
    out_.resize(q_.size());
  }

  // Feeds the drawn rows.
  void RunSteps(uint32_t n_steps, uint32_t tokens_per_step) {
    for (uint32_t step = 0; step < n_steps; ++step) {
      const StepEntry entry{sequence_.id, tokens_per_step};
      CHECK(cache_.BeginStep({&entry, 1}).ok());
      const size_t row = size_t{step} * tokens_per_step;
      team_.Run([&](TeamMember& me) {
        AppendHeads(me, cache_, 0, {&k_[row * kKvRow], kKvRow},
                    {&v_[row * kKvRow], kKvRow});
        cache_.Attend(me, 0, {&q_[row * kQueryRow], kQueryRow},
                      &out_[row * kQueryRow], kQueryRow);
        cache_.EndStep(me);
      });
    }
  }

 private:
  static constexpr size_t kKvRow = size_t{kShape.n_kv_heads} * kShape.head_dim;
  static constexpr size_t kQueryRow = kShape.group * kKvRow;

  PagedKvCache cache_;
  ThreadTeam team_;
  DrivenSequence sequence_;
  std::vector<float> q_, k_, v_, out_;
};

void CountPolicy(const KernelTable& set, const std::string& name,
                 PolicyName policy) {
  Decoding decoding(set, policy);
  for (uint32_t n = 0; n < kDecodeTokens; n += kStepsPerCount) {
    decoding.DrawRows(kPromptTokens + n, kStepsPerCount);
    CountInstructions(set.name + ("/decode_steps/" + name) + "@" +
                          std::to_string(kPromptTokens + n),
                      [&] { decoding.RunSteps(kStepsPerCount, 1); });
  }
}

}  // namespace
}  // namespace lkv

int main() {
  lkv::PrintCompiler();
  // The scalar set would leave the policy a hundredth of a step.
  if (const lkv::KernelTable* set = lkv::SelectKernels("avx2")) {
    lkv::CountPolicy(*set, "lookahead", lkv::PolicyName::kLookahead);
    lkv::CountPolicy(*set, "lru", lkv::PolicyName::kLru);
  }
  return 0;
}
