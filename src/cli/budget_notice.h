// A word about a budget that was raised: a share may come out below what a
// sequence cannot do without.
#pragma once

#include "base/types.h"
#include "cache/kv_cache.h"

namespace lkv::cli {

// Prints one line on stderr when the admitted sequence got more than the share
// it was asked to keep to.
void NoticeRaisedBudget(const SequenceOptions& asked, const KvShape& shape,
                        const SequenceStats& got);

}  // namespace lkv::cli
