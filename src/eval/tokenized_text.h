// A text to measure on, as the model reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lookaheadkv/status.h"

namespace lkv {

struct TokenizedText {
  std::string name;  // in reports: its file
  std::vector<int32_t> tokens;
};

// kInvalidArgument, by name, when the text is shorter than a window.
Status CheckHoldsWindow(const TokenizedText& text, uint64_t n_window);

}  // namespace lkv
