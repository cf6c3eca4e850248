// Fits a history network to examples: Adam (arXiv 1412.6980) on the squared
// error of log2, in batches of as many examples of every lane, until the error
// on examples of other texts falls no more. The same examples and seed give the
// same network.
#pragma once

#include <cstdint>
#include <functional>

#include "lookaheadkv/status.h"
#include "policy/history_network.h"
#include "train/history_examples.h"

namespace lkv {

struct TrainingOptions {
  uint64_t seed = 1;
  uint32_t max_epochs = 8;
  // Asked behind every epoch; true ends the training there. May be empty.
  std::function<bool()> out_of_time = {};
};

struct TrainingResult {
  HistoryNetwork network;
  uint32_t n_epochs = 0;
  bool timed_out = false;  // out_of_time ended it
  // Mean squared errors of log2, in bits, on the held-out examples: of the
  // network, and of each lane's mean (what knows nothing about the token).
  double error = 0;
  double mean_error = 0;
};

// Told epochs done and those that there may be.
using TrainingProgress = std::function<void(uint32_t, uint32_t)>;

// Requires lanes alike in both. kInvalidArgument: a lane without examples, or
// numbers that are not finite. kCancelled when `cancelled` (may be empty) says
// so. 8 s for 10 million examples and an epoch.
Result<TrainingResult> TrainHistoryNetwork(
    const HistoryExamples& examples, const HistoryExamples& held_out,
    const TrainingOptions& options, const KernelTable& kernels,
    const TrainingProgress& progress, const std::function<bool()>& cancelled);

}  // namespace lkv
