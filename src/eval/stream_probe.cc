#include "eval/stream_probe.h"

#include "base/stopwatch.h"

namespace lkv {
namespace {

constexpr size_t kProbeBytes = size_t{256} << 20;
constexpr size_t kItems = 64;  // 4 MiB: 200 us each
constexpr size_t kLineWords = kBufferAlignment / sizeof(uint64_t);

}  // namespace

StreamProbe::StreamProbe(uint32_t n_threads)
    : team_(n_threads),
      buffer_(kProbeBytes / sizeof(uint64_t)),
      sums_(kItems * kLineWords) {}

double StreamProbe::MeasureGigabytesPerSecond() {
  const size_t n_lines = buffer_.size() / kLineWords;
  const Stopwatch read;
  // One sum per word of a line: independent, so that the additions never wait
  // for each other and the reads set the pace.
  team_.ForEach(kItems, [&](size_t item) {
    const Share share = ShareOf(n_lines, item, kItems);
    uint64_t sums[kLineWords] = {};
    for (size_t line = share.begin; line < share.end; ++line) {
      const uint64_t* words = buffer_.data() + line * kLineWords;
      for (size_t i = 0; i < kLineWords; ++i) sums[i] += words[i];
    }
    for (size_t i = 0; i < kLineWords; ++i) {
      sums_[item * kLineWords + i] = sums[i];
    }
  });
  return static_cast<double>(kProbeBytes) / read.Seconds() * 1e-9;
}

}  // namespace lkv
