// What stands between a request and the work: its length against the context,
// and the memory it will take against what the machine leaves.
//
// Pure but for ReadMemoryLeft's look at the machine (100 us).
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "cache/kv_cache.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"
#include "text/tokenizer.h"

namespace lkv {

// kInvalidArgument unless the longest text of the sequence fits ctx_tokens.
Status CheckLength(const Architecture& architecture, uint32_t ctx_tokens,
                   const SequenceOptions& options);

// The fewest tokens that a text can have, where these are more than max_tokens.
// Costs nothing for a text of at most max_tokens bytes, else FewestTokens.
std::optional<uint64_t> FindTooManyTokens(const Tokenizer& tokenizer,
                                          std::string_view text,
                                          uint64_t max_tokens);

// kInvalidArgument when a text has more than max_tokens for certain: said in
// 20 ms, where tokenising 10 MiB takes seconds.
Status CheckTextLength(const Tokenizer& tokenizer, std::string_view text,
                       uint64_t max_tokens);

// Bytes yet to be filled.
struct MemoryNeed {
  uint64_t weight_bytes = 0;
  uint64_t working_bytes = 0;  // vocabulary, activations, scratch
  uint64_t kv_bytes = 0;
  // Addresses still to be mapped, filled or not.
  uint64_t address_bytes = 0;

  uint64_t fill_bytes() const {
    return weight_bytes + working_bytes + kv_bytes;
  }
};

// Bytes that the machine and the limits of this process leave.
struct MemoryLeft {
  uint64_t fill_bytes = 0;
  uint64_t address_bytes = 0;
};
MemoryLeft ReadMemoryLeft();

// kOutOfMemory, naming the sizes and the remedy, unless the need is covered.
// `what` names the model or the sequence.
Status CheckFits(const std::string& what, const MemoryNeed& need,
                 const MemoryLeft& left);

// What the last resort says: the system refused memory in spite of the check.
Status RefusedMemory(const std::string& what, const std::bad_alloc& refusal);

// fn(), which returns a Status or a Result; kOutOfMemory where it runs out of
// memory. The border that no exception of ours crosses.
template <typename Fn>
auto CatchRefusedMemory(const std::string& what, Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc& refusal) {
    return RefusedMemory(what, refusal);
  }
}

}  // namespace lkv
