#include "eval/stream_probe.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/stopwatch.h"
#include "base/types.h"

namespace lkv {
namespace {

constexpr size_t kProbeBytes = size_t{256} << 20;
constexpr size_t kItemBytes = size_t{1} << 20;  // 50 us each
constexpr size_t kLineBytes = 64;
constexpr size_t kLineWords = kLineBytes / sizeof(uint64_t);

}  // namespace

void StreamRead(ThreadTeam& team, const uint8_t* data, size_t n_bytes) {
  const size_t n_lines = n_bytes / kLineBytes;
  const size_t n_items = CountItems(n_bytes, kItemBytes, n_lines);
  team.ForEach(n_items, [&](size_t item) {
    const Range lines = RangeOf(n_lines, item, n_items);
    const auto* words = reinterpret_cast<const uint64_t*>(data);
    // One sum per word of a line: independent, so that the additions never
    // wait for each other and the reads set the pace.
    uint64_t sums[kLineWords] = {};
    for (size_t line = lines.begin; line < lines.end; ++line) {
      for (size_t i = 0; i < kLineWords; ++i) {
        sums[i] += words[line * kLineWords + i];
      }
    }
    // Somebody may look at it, so no read can be left out.
    volatile uint64_t total = 0;
    for (uint64_t sum : sums) total = total + sum;
  });
}

StreamProbe::StreamProbe(ThreadTeam& team) : team_(team), buffer_(kProbeBytes) {
  // Memory that nobody has written is one page of zeros, in the cache: 84 GB/s
  // where the memory gives 25.
  std::memset(buffer_.data(), 1, buffer_.size());
}

double StreamProbe::MeasureGigabytesPerSecond() {
  std::array<double, 3> seconds;
  for (double& s : seconds) {
    const Stopwatch read;
    StreamRead(team_, buffer_.data(), buffer_.size());
    s = read.Seconds();
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(kProbeBytes) / seconds[1] * 1e-9;
}

}  // namespace lkv
