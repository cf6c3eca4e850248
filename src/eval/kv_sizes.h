// What the KV cache of a long text takes, by where it lies: arithmetic of the
// same plans that sequences are admitted by. Nothing is filled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct KvSizeRow {
  std::string what;
  CacheOptions cache;
  // Exact pages and their bookkeeping, which every step reads: device memory,
  // where there is a device.
  uint64_t fast_bytes = 0;
  // Coarse copies, of which a step reads a part.
  uint64_t copy_bytes = 0;

  uint64_t total_bytes() const { return fast_bytes + copy_bytes; }
};

// Everything kept (f16, int8), a quarter kept, and tiers at 40 %, for one text
// of n_tokens. kOutOfMemory: no machine has addresses for it.
Result<std::vector<KvSizeRow>> KvSizes(const KvShape& shape, uint32_t n_tokens);

}  // namespace lkv
