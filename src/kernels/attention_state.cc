#include <cmath>

#include "kernels/kernel_table.h"

namespace lkv {

void MergeAttentionStates(uint32_t group, uint32_t head_dim, const float* run_m,
                          const float* run_l, const float* run_o, float* m,
                          float* l, float* o) {
  for (uint32_t g = 0; g < group; ++g) {
    // An empty run has m = -infinity: exp(-inf - -inf) would be NaN.
    if (run_l[g] == 0) continue;
    float top = std::fmax(m[g], run_m[g]);
    float keep = l[g] == 0 ? 0.0f : std::exp(m[g] - top);
    float take = std::exp(run_m[g] - top);
    m[g] = top;
    l[g] = l[g] * keep + run_l[g] * take;
    float* sum = o + size_t{g} * head_dim;
    const float* add = run_o + size_t{g} * head_dim;
    for (uint32_t d = 0; d < head_dim; ++d) {
      sum[d] = sum[d] * keep + add[d] * take;
    }
  }
}

}  // namespace lkv
