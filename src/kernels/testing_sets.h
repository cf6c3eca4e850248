// Shared by the tests of this folder: the sets to test and random data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

namespace lkv {

// Every set that this machine runs, the scalar one included.
inline std::vector<const KernelTable*> AllSets() {
  std::vector<const KernelTable*> sets;
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    sets.push_back(SelectKernels(*name));
  }
  return sets;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  uint32_t Below(uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(engine_);
  }
  // Values as activations have them: most small, a few large.
  float Activation() {
    float x = Uniform(-1, 1);
    return Below(20) == 0 ? 8 * x : x;
  }
  std::vector<float> Activations(size_t n) {
    std::vector<float> x(n);
    for (float& value : x) value = Activation();
    return x;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace lkv
