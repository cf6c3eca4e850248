#include "eval/kv_sizes.h"

#include <utility>

#include "cache/paged_kv_cache.h"
#include "kernels/kernel_table.h"
#include "store/cold_pages.h"

namespace lkv {
namespace {

CacheOptions WithBudget(double share, KvTypeName type, bool tiers) {
  CacheOptions cache;
  cache.kv_type = type;
  cache.tiers = tiers;
  if (share < 1) {
    cache.budget = {.kind = Budget::Kind::kShare, .share = share};
  } else {
    cache.policy = PolicyName::kFull;
  }
  return cache;
}

}  // namespace

Result<std::vector<KvSizeRow>> KvSizes(const KvShape& shape,
                                       uint32_t n_tokens) {
  std::vector<KvSizeRow> rows = {
      {.what = "everything, f16",
       .cache = WithBudget(1, KvTypeName::kF16, false)},
      {.what = "everything, int8",
       .cache = WithBudget(1, KvTypeName::kInt8, false)},
      {.what = "25%, the rest is gone",
       .cache = WithBudget(0.25, KvTypeName::kF16, false)},
      {.what = "40% with tiers",
       .cache = WithBudget(0.4, KvTypeName::kF16, true)}};
  PagedKvCache cache(shape,
                     {.kernels = SelectKernels(nullptr), .rotation = {}});
  for (KvSizeRow& row : rows) {
    SequenceOptions options;
    options.cache = row.cache;
    options.prompt_tokens = n_tokens;
    const auto id = cache.AddSequence(options);
    if (!id.ok()) return id.status();
    const uint64_t fill_bytes = cache.Stats(*id).fill_bytes;
    cache.RemoveSequence(*id);
    if (row.cache.tiers) {
      row.copy_bytes = uint64_t{shape.n_lanes()} *
                       (n_tokens / kColdGroupSlots) *
                       ColdPages::GroupBytes(shape.head_dim);
    }
    row.fast_bytes = fill_bytes - row.copy_bytes;
  }
  return rows;
}

}  // namespace lkv
