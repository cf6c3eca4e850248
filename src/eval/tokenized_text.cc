#include "eval/tokenized_text.h"

namespace lkv {

Status CheckHoldsWindow(const TokenizedText& text, uint64_t n_window) {
  if (text.tokens.size() >= n_window) return {};
  return InvalidArgument(
      text.name + ": has " + std::to_string(text.tokens.size()) +
      " tokens, fewer than a window of " + std::to_string(n_window) +
      "; give a longer text or a shorter context");
}

}  // namespace lkv
