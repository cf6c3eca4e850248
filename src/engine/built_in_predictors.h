// The predictor files that are part of the program.
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

struct BuiltInPredictor {
  const char* name;  // of its file
  std::span<const uint8_t> bytes;
};

std::span<const BuiltInPredictor> BuiltInPredictors();

}  // namespace lkv
