// From traces to a predictor: examples of every lane, training, and what the
// result is worth on texts that it was not trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/status.h"
#include "trace/trace_reader.h"
#include "train/history_trainer.h"
#include "train/holdout_replay.h"
#include "train/predictor_file.h"

namespace lkv {

struct TrainedPredictor {
  PredictorFile file;
  uint64_t n_examples = 0, n_held_out = 0;
  uint32_t n_texts = 0, n_held_out_texts = 0;
  // Of HistoryTrainer, on the held-out texts.
  uint32_t n_epochs = 0;
  bool timed_out = false;
  double error = 0, mean_error = 0;
  // The cache's view of the same texts.
  HoldoutReplay holdout;
};

// Texts that judge: one in five, at least one; the same ones for the same
// texts. All traces of a text are on the same side.
//
// kInvalidArgument, naming the trace: of another model than the first, without
// a second reading, of fewer layers than the model has; or fewer than two
// texts. Else what reading a trace says. `progress` (may be empty) is told what
// is done ("traces", "epochs", "replay"), how much and of how much.
Result<TrainedPredictor> TrainPredictor(
    std::span<const TraceReader> traces, const TrainingOptions& options,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(const char*, uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
