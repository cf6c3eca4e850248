#include "train/predictor_training.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace lkv {
namespace {

constexpr size_t kTextsPerHeldOut = 5;

bool IsSameShape(const KvShape& a, const KvShape& b) {
  return a.n_layers == b.n_layers && a.n_kv_heads == b.n_kv_heads &&
         a.group == b.group && a.head_dim == b.head_dim;
}

Status CheckTraces(std::span<const TraceReader> traces) {
  if (traces.empty()) {
    return InvalidArgument(
        "traces: there are none; record some with `lkv trace record --reread`");
  }
  const TraceInfo& first = traces.front().info();
  for (const TraceReader& trace : traces) {
    const TraceInfo& info = trace.info();
    const std::string& path = trace.path();
    if (info.model != first.model || !IsSameShape(info.shape, first.shape)) {
      return InvalidArgument(path + ": is of another model than " +
                             traces.front().path() +
                             "; train on traces of one model");
    }
    if (info.layers.size() != info.shape.n_layers) {
      return InvalidArgument(path +
                             ": has not all layers; record it without "
                             "--layers");
    }
    if (!trace.has_reread()) {
      return InvalidArgument(path +
                             ": has no second reading; record it with"
                             " `lkv trace record --reread`");
    }
  }
  return {};
}

// Which texts judge.
std::set<std::string> HeldOutTexts(const std::set<std::string>& texts) {
  std::set<std::string> held_out;
  size_t i = 0;
  for (const std::string& text : texts) {
    // The last of each five, and of the rest when there are fewer.
    if (++i % kTextsPerHeldOut == 0) held_out.insert(text);
  }
  if (held_out.empty()) held_out.insert(*texts.rbegin());
  return held_out;
}

Status CollectExamples(const TraceReader& trace, const KernelTable& kernels,
                       ThreadTeam& team, HistoryExamples& examples) {
  std::vector<Status> status(trace.info().n_lanes());
  team.ForEach(status.size(), [&](size_t i) {
    const auto lane = static_cast<uint32_t>(i);
    const Result<LaneTrace> lane_trace = trace.ReadLane(lane);
    if (!lane_trace.ok()) {
      status[i] = lane_trace.status();
      return;
    }
    AddExamples(*lane_trace, {}, kernels, examples.lanes[lane]);
  });
  for (Status& s : status) {
    if (!s.ok()) return std::move(s);
  }
  return {};
}

}  // namespace

Result<TrainedPredictor> TrainPredictor(
    std::span<const TraceReader> traces, const TrainingOptions& options,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(const char*, uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTraces(traces); !s.ok()) return s;
  std::set<std::string> texts;
  for (const TraceReader& trace : traces) texts.insert(trace.info().text);
  if (texts.size() < 2) {
    return InvalidArgument(
        "traces: all are of one text, " + *texts.begin() +
        "; record another one, to judge by what was not learned");
  }
  const std::set<std::string> held_out_texts = HeldOutTexts(texts);

  const TraceInfo& info = traces.front().info();
  HistoryExamples examples(info.n_lanes());
  HistoryExamples held_out(info.n_lanes());
  std::vector<const TraceReader*> judges;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (cancelled && cancelled()) {
      return Cancelled("train: stopped on request; nothing was written");
    }
    const bool is_judge = held_out_texts.count(traces[i].info().text) > 0;
    if (Status s = CollectExamples(traces[i], kernels, team,
                                   is_judge ? held_out : examples);
        !s.ok()) {
      return s;
    }
    if (is_judge) judges.push_back(&traces[i]);
    if (progress) progress("traces", i + 1, traces.size());
  }
  Result<TrainingResult> trained = TrainHistoryNetwork(
      examples, held_out, options, kernels,
      [&](uint32_t n_done, uint32_t n_all) {
        if (progress) progress("epochs", n_done, n_all);
      },
      cancelled);
  if (!trained.ok()) return trained.status();
  Result<HoldoutReplay> holdout = ReplayHoldout(
      judges, trained->network, kernels, team,
      [&](uint64_t n_done, uint64_t n_all) {
        if (progress) progress("replay", n_done, n_all);
      },
      cancelled);
  if (!holdout.ok()) return holdout.status();
  return TrainedPredictor{
      .file = {.model = info.model, .network = std::move(trained->network)},
      .n_examples = examples.size(),
      .n_held_out = held_out.size(),
      .n_texts = static_cast<uint32_t>(texts.size()),
      .n_held_out_texts = static_cast<uint32_t>(held_out_texts.size()),
      .n_epochs = trained->n_epochs,
      .timed_out = trained->timed_out,
      .error = trained->error,
      .mean_error = trained->mean_error,
      .holdout = *std::move(holdout)};
}

}  // namespace lkv
