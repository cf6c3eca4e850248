// Writes small GGUF files of our own: some metadata and f32 tensors, by ggml's
// own code.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lkv {

struct GgufContent {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;  // innermost first, product > 0
    std::vector<float> values;    // as many
  };
  std::vector<std::pair<std::string, std::string>> strings;
  std::vector<std::pair<std::string, uint32_t>> numbers;
  std::vector<std::pair<std::string, float>> reals;
  std::vector<Tensor> tensors;
};

// The bytes of the file. Names are unique.
std::vector<uint8_t> EncodeGguf(const GgufContent& content);

}  // namespace lkv
