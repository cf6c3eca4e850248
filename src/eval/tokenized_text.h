// A text to measure on, as the model reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lkv {

struct TokenizedText {
  std::string name;  // in reports: its file
  std::vector<int32_t> tokens;
};

}  // namespace lkv
