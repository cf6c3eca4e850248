// Traces with known truth: attention made by rules instead of a model, so that
// one can check what a policy keeps and when a detector fires.
//
// Every query pays half of its attention to the sinks, some to the newest
// tokens (half-life 16), and the rest to what the text is about:
//   topics   tokens of the topic that is under way; a new one begins every
//            topic_tokens, and attention to the old one ends with it
//   needles  single tokens of the first half of the text that 32 queries ask
//            for in its second half, and nobody before
//   repeats  the token one block ago, for a text that repeats its first block
// What a query pays is also what the next ones are expected to.
// Tokens differ in weight by chance, lanes in which tokens they prefer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct SyntheticTraceOptions {
  uint32_t n_steps = 2048;
  uint32_t n_layers = 4;
  uint32_t n_kv_heads = 3;
  uint32_t topic_tokens = 512;  // 0: one topic
  uint32_t n_needles = 4;
  uint32_t block_tokens = 0;  // 0: no repeats
  uint64_t seed = 1;
};

// What is true of such a text.
class SyntheticText {
 public:
  struct Needle {
    uint32_t pos = 0;
    uint32_t first_use = 0;  // the query that asks first, of kNeedleQueries
  };
  static constexpr uint32_t kNeedleQueries = 32;

  explicit SyntheticText(const SyntheticTraceOptions& options);

  const std::vector<Needle>& needles() const { return needles_; }

  // The group means [step + 1] of one query of one lane; they sum to 1. (The
  // group maxima are kMaxOverMean times as large, at most 1.)
  void Attend(uint32_t lane, uint32_t step, float* mean) const;
  static constexpr float kMaxOverMean = 1.5f;

 private:
  uint32_t TopicStart(uint32_t pos) const;

  const SyntheticTraceOptions options_;
  std::vector<Needle> needles_;
};

// kInvalidArgument: sizes of 0, or a text too short for its needles.
Status WriteSyntheticTrace(const FileSystem& file_system,
                           const std::string& path,
                           const SyntheticTraceOptions& options);

}  // namespace lkv
