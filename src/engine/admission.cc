#include "engine/admission.h"

#include <algorithm>

#include "base/aligned_buffer.h"
#include "base/byte_text.h"
#include "base/machine.h"

namespace lkv {
namespace {

// "96.5 MiB of weights + 80.0 MiB to work with + 12.0 MiB of KV cache"
std::string PartsText(const MemoryNeed& need) {
  std::string text;
  const auto add = [&](uint64_t n_bytes, const char* of_what) {
    if (n_bytes == 0) return;
    if (!text.empty()) text += " + ";
    text += FormatBytes(n_bytes) + of_what;
  };
  add(need.weight_bytes, " of weights");
  add(need.working_bytes, " to work with");
  add(need.kv_bytes, " of KV cache");
  return text;
}

}  // namespace

Status CheckLength(const Architecture& architecture, uint32_t ctx_tokens,
                   const SequenceOptions& options) {
  const uint64_t n_expected =
      uint64_t{options.prompt_tokens} + options.max_new_tokens;
  const uint64_t n_tokens = std::max<uint64_t>(n_expected, options.max_tokens);
  if (n_tokens <= ctx_tokens) return Status();
  const uint32_t trained = architecture.trained_context_tokens;
  const std::string turns = n_tokens > n_expected ? " with later turns" : "";
  const std::string limit =
      ctx_tokens == trained
          ? " the model was trained for; shorten the prompt, ask for fewer "
            "tokens or allow_beyond_trained"
          : " of ctx_tokens; shorten the prompt, ask for fewer tokens or raise "
            "ctx_tokens";
  return InvalidArgument(
      "context: " + std::to_string(options.prompt_tokens) +
      " prompt tokens and " + std::to_string(options.max_new_tokens) +
      " new ones make " + std::to_string(n_tokens) + turns +
      ", more than the " + std::to_string(ctx_tokens) + limit);
}

std::optional<uint64_t> FindTooManyTokens(const Tokenizer& tokenizer,
                                          std::string_view text,
                                          uint64_t max_tokens) {
  // A token has at least one byte, so most texts need no look.
  if (text.size() <= max_tokens) return std::nullopt;
  const uint64_t n_tokens = tokenizer.FewestTokens(text);
  if (n_tokens <= max_tokens) return std::nullopt;
  return n_tokens;
}

Status CheckTextLength(const Tokenizer& tokenizer, std::string_view text,
                       uint64_t max_tokens) {
  const auto n_tokens = FindTooManyTokens(tokenizer, text, max_tokens);
  if (!n_tokens) return Status();
  return InvalidArgument("context: a text of " + FormatBytes(text.size()) +
                         " has at least " + std::to_string(*n_tokens) +
                         " tokens, more than the " +
                         std::to_string(max_tokens) +
                         " there is room for; shorten it or raise ctx_tokens");
}

MemoryLeft ReadMemoryLeft() {
  return {AvailableMemoryBytes(), AvailableAddressBytes()};
}

Status CheckFits(const std::string& what, const MemoryNeed& need,
                 const MemoryLeft& left) {
  const std::string needs = what + ": needs ";
  const std::string smaller =
      need.kv_bytes > 0 ? "a smaller budget" : "a smaller model";
  if (need.fill_bytes() > left.fill_bytes) {
    return OutOfMemory(needs + FormatBytes(need.fill_bytes()) + " of memory (" +
                       PartsText(need) + "), but only " +
                       FormatBytes(left.fill_bytes) +
                       " are free; free some or choose " + smaller);
  }
  if (need.address_bytes > left.address_bytes) {
    return OutOfMemory(
        needs + FormatBytes(need.address_bytes) + " of addresses, those of " +
        FormatBytes(need.weight_bytes) +
        " of weights among them, but the limits of this process "
        "(ulimit -v, -d) leave " +
        FormatBytes(left.address_bytes) + "; raise them or choose " + smaller);
  }
  return Status();
}

Status RefusedMemory(const std::string& what, const std::bad_alloc& refusal) {
  const auto* failure = dynamic_cast<const AllocationFailure*>(&refusal);
  const std::string size =
      failure == nullptr ? "memory" : FormatBytes(failure->n_bytes()) + " more";
  return OutOfMemory(what + ": the system refuses " + size +
                     "; free memory, raise the limits of this process (ulimit "
                     "-v, -d) or choose a smaller budget or model");
}

}  // namespace lkv
