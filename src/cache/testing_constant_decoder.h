// Shared by the tests of what decode steps take: steps that take nothing of
// their own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "cache/paged_kv_cache.h"
#include "testing/cache_driver.h"

namespace lkv {

// Decode steps of up to four sequences whose rows are all the same: they
// allocate nothing themselves.
class ConstantDecoder {
 public:
  ConstantDecoder(PagedKvCache& cache, uint32_t n_threads)
      : cache_(cache),
        team_(n_threads),
        row_(cache.shape().n_heads() * cache.shape().head_dim),
        rows_(kMostSequences * row_, 0.5f),
        out_(kMostSequences * row_) {}

  bool Step(std::span<const StepEntry> entries) {
    if (!cache_.BeginStep(entries).ok()) return false;
    team_.Run([&](TeamMember& me) {
      for (uint32_t layer = 0; layer < cache_.shape().n_layers; ++layer) {
        AppendHeads(me, cache_, layer, {rows_.data(), row_},
                    {rows_.data(), row_});
        cache_.Attend(me, layer, {rows_.data(), row_}, out_.data(), row_);
      }
      cache_.EndStep(me);
    });
    return true;
  }

 private:
  static constexpr size_t kMostSequences = 4;

  PagedKvCache& cache_;
  ThreadTeam team_;
  const size_t row_;
  std::vector<float> rows_;
  std::vector<float> out_;
};

}  // namespace lkv
