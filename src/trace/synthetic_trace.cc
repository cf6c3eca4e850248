#include "trace/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "trace/trace_writer.h"

namespace lkv {
namespace {

constexpr uint32_t kSinks = kTraceSinkTokens;
// Shares of a query's attention; what is left of 1 belongs to the topic.
constexpr float kSinkShare = 0.5f;
constexpr float kRecentShare = 0.2f;
constexpr float kNeedleShare = 0.2f;
constexpr float kRepeatShare = 0.2f;
constexpr float kRecentHalfLife = 16;

// A number in [0, 1) that depends on its arguments only (splitmix64).
float Chance(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t x = seed + a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) * 0x1p-24f;
}

// Of the first n tokens, whose masses sum to 1: nothing for the sinks, and what
// is left made to sum to 1.
std::vector<float> WithoutSinks(const std::vector<float>& mass, uint32_t n) {
  std::vector<float> rest(mass.begin(), mass.begin() + n);
  std::fill_n(rest.begin(), std::min(kSinks, n), 0.0f);
  const float sum = std::accumulate(rest.begin(), rest.end(), 0.0f);
  for (float& one : rest) one /= sum;
  return rest;
}

}  // namespace

SyntheticText::SyntheticText(const SyntheticTraceOptions& options)
    : options_(options) {
  const uint32_t half = options.n_steps / 2;
  for (uint32_t i = 0; i < options.n_needles; ++i) {
    // Evenly, the first half past the sinks to the second.
    const uint32_t place = (2 * i + 1) * half / (2 * options.n_needles);
    needles_.push_back(
        {.pos = std::max(place, kSinks), .first_use = half + place});
  }
}

uint32_t SyntheticText::TopicStart(uint32_t pos) const {
  return options_.topic_tokens == 0 ? 0 : pos - pos % options_.topic_tokens;
}

void SyntheticText::Attend(uint32_t lane, uint32_t step, float* mean) const {
  std::fill_n(mean, step + 1, 0.0f);
  const uint32_t n_sinks = std::min(kSinks, step + 1);
  for (uint32_t i = 0; i < n_sinks; ++i) {
    mean[i] += kSinkShare / static_cast<float>(n_sinks);
  }
  const float decay = std::exp2(-1 / kRecentHalfLife);
  float weight = kRecentShare * (1 - decay);
  for (uint32_t i = step + 1; i > 0; --i, weight *= decay)
    mean[i - 1] += weight;
  float left = 1 - kSinkShare - kRecentShare;
  for (const Needle& needle : needles_) {
    if (step < needle.first_use || step >= needle.first_use + kNeedleQueries) {
      continue;
    }
    mean[needle.pos] += kNeedleShare;
    left -= kNeedleShare;
    break;  // one at a time
  }
  if (options_.block_tokens > 0 && step >= options_.block_tokens) {
    const float share = std::min(kRepeatShare, left);
    mean[step - options_.block_tokens] += share;
    left -= share;
  }
  // Few tokens of a topic get most of what it gets.
  const uint32_t start = TopicStart(step);
  const auto preference = [&](uint32_t pos) {
    const float x = Chance(options_.seed, lane, pos);
    return x * x * x * x;
  };
  float total = 0;
  for (uint32_t pos = start; pos <= step; ++pos) total += preference(pos);
  for (uint32_t pos = start; pos <= step && total > 0; ++pos) {
    mean[pos] += left * preference(pos) / total;
  }
  // Recency was cut at the text's beginning.
  const float sum = std::accumulate(mean, mean + step + 1, 0.0f);
  for (uint32_t pos = 0; pos <= step; ++pos) mean[pos] /= sum;
}

Status WriteSyntheticTrace(const FileSystem& file_system,
                           const std::string& path,
                           const SyntheticTraceOptions& options) {
  const uint32_t n_needle_tokens =
      options.n_needles * SyntheticText::kNeedleQueries;
  if (options.n_steps == 0 || options.n_steps > kMaxTraceSteps ||
      options.n_steps / 2 < n_needle_tokens) {
    return InvalidArgument(
        "synthetic trace: " + std::to_string(options.n_needles) +
        " needles need a text of " + std::to_string(2 * n_needle_tokens) +
        " to " + std::to_string(kMaxTraceSteps) + " tokens; change --steps");
  }
  TraceInfo info;
  info.shape = {.n_layers = options.n_layers,
                .n_kv_heads = options.n_kv_heads,
                .group = 1,
                .head_dim = 64};
  info.layers.resize(options.n_layers);
  std::iota(info.layers.begin(), info.layers.end(), 0u);
  info.model = "synthetic";
  info.text = "synthetic text, seed " + std::to_string(options.seed);
  Result<std::unique_ptr<TraceWriter>> created =
      TraceWriter::Create(file_system, path, info);
  if (!created.ok()) return created.status();
  TraceWriter& writer = **created;
  const SyntheticText text(options);
  std::vector<float> mean(options.n_steps);
  std::vector<float> max(options.n_steps);
  for (uint32_t step = 0; step < options.n_steps; ++step) {
    for (uint32_t lane = 0; lane < info.n_lanes(); ++lane) {
      text.Attend(lane, step, mean.data());
      for (uint32_t i = 0; i <= step; ++i) {
        max[i] = std::min(1.0f, SyntheticText::kMaxOverMean * mean[i]);
      }
      // Sinks have small values, as in models.
      const float value = step < kSinks ? 0.05f : 1;
      writer.AddStep(lane, {.value_norm = value,
                            .value_distance = value,
                            .mass_max = max.data(),
                            .mass_mean = mean.data()});
      if (HasExpectation(step)) {
        writer.AddExpectation(lane, WithoutSinks(mean, step + 1));
      }
    }
    if (Status s = writer.FinishStep(); !s.ok()) return s;
  }
  return writer.Finish();
}

}  // namespace lkv
