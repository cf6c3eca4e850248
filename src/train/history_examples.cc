#include "train/history_examples.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/types.h"
#include "policy/history_network.h"
#include "policy/slot_history.h"

namespace lkv {
namespace {

constexpr uint32_t kTokensBetween = 512;
constexpr uint32_t kMostOfMoment = 512;
// Of the target: what less attention does at its best does not matter, and the
// logarithm of nearly nothing would be all that is learned.
constexpr float kLeastLog2 = -17;

class Collector {
 public:
  Collector(const LaneTrace& trace, const EmaPredictor::Options& options,
            const KernelTable& kernels, HistoryExamples::Lane& lane)
      : trace_(trace),
        ends_(options.ends),
        lane_(lane),
        history_(options,
                 {.n_lanes = 1, .pages_per_lane = PagesOf(trace.n_steps())},
                 kernels) {}

  void Run() {
    constexpr uint32_t kStride = SlotHistory::kPeakQueries;
    uint32_t n_tokens = 0;
    for (uint32_t step = kStride - 1; step < trace_.n_steps();
         step += kStride) {
      CHECK(HasTokenRows(step));
      history_.AddSlots(0, n_tokens, step + 1 - n_tokens);
      n_tokens = step + 1;
      history_.Observe({.lane = 0,
                        .query_pos = step,
                        .tokens_since = kStride,
                        .n_slots = n_tokens,
                        .mass_max = trace_.tokens(step).max,
                        .mass_mean = trace_.tokens(step).mean});
      if (n_tokens % kTokensBetween == 0 ||
          step + kStride >= trace_.n_steps()) {
        AddMoment(n_tokens);
      }
    }
  }

 private:
  void AddMoment(uint32_t n_tokens) {
    const LaneRange range = ContestableSlots(ends_, n_tokens);
    if (range.count() == 0) return;
    inputs_.resize(size_t{HistoryNetwork::kInputs} * range.count());
    history_.NetworkInputs(0, range.begin, range.count(), inputs_.data());
    const uint32_t stride = CeilDiv(range.count(), kMostOfMoment);
    for (uint32_t i = 0; i < range.count(); i += stride) {
      for (uint32_t j = 0; j < HistoryNetwork::kInputs; ++j) {
        lane_.inputs.push_back(inputs_[size_t{j} * range.count() + i]);
      }
      const float most = trace_.reread()[range.begin + i];
      lane_.target.push_back(most > 0 ? std::max(std::log2(most), kLeastLog2)
                                      : kLeastLog2);
    }
  }

  const LaneTrace& trace_;
  const ProtectedEnds ends_;
  HistoryExamples::Lane& lane_;
  SlotHistory history_;
  std::vector<float> inputs_;
};

}  // namespace

void AddExamples(const LaneTrace& trace, const EmaPredictor::Options& options,
                 const KernelTable& kernels, HistoryExamples::Lane& lane) {
  CHECK(trace.reread().size() == trace.n_steps());
  Collector(trace, options, kernels, lane).Run();
}

}  // namespace lkv
