#include "eval/trace_recording.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "eval/forced_run.h"
#include "trace/recording_policy.h"
#include "trace/trace_writer.h"

namespace lkv {
namespace {

Status CheckLayers(std::span<const uint32_t> layers, uint32_t n_layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] >= n_layers || (i > 0 && layers[i] <= layers[i - 1])) {
      return InvalidArgument("layers: " + std::to_string(layers[i]) +
                             " is not expected here; give layers from 0 to " +
                             std::to_string(n_layers - 1) +
                             " in ascending order");
    }
  }
  return {};
}

Status RecordReread(Engine& engine, Sequence& sequence,
                    std::span<const int32_t> tokens, const TraceInfo& info,
                    TraceWriter& writer,
                    const std::function<bool()>& cancelled) {
  RereadScores scores(info.shape.n_lanes(),
                      static_cast<uint32_t>(tokens.size()));
  if (Status s = engine.Reread(sequence, tokens, scores, cancelled); !s.ok()) {
    return s;
  }
  for (uint32_t lane = 0; lane < info.n_lanes(); ++lane) {
    Status s = writer.AddReread(scores.of(info.ModelLane(lane)));
    if (!s.ok()) return s;
  }
  return {};
}

}  // namespace

Result<RecordedTrace> RecordTrace(const FileSystem& file_system, Engine& engine,
                                  std::span<const int32_t> tokens,
                                  const TraceRecordingOptions& options,
                                  const std::function<void(uint32_t)>& progress,
                                  const std::function<bool()>& cancelled) {
  if (tokens.empty()) {
    return InvalidArgument(options.text +
                           ": has no tokens; give a text to record");
  }
  TraceInfo info;
  info.shape = engine.architecture().kv_shape();
  info.layers = options.layers;
  info.model = engine.model_fingerprint();
  info.text = options.text;
  if (Status s = CheckLayers(info.layers, info.shape.n_layers); !s.ok()) {
    return s;
  }
  if (info.layers.empty()) {
    info.layers.resize(info.shape.n_layers);
    std::iota(info.layers.begin(), info.layers.end(), 0u);
  }
  Result<std::unique_ptr<TraceWriter>> created =
      TraceWriter::Create(file_system, options.path, info);
  if (!created.ok()) return created.status();
  TraceWriter& writer = **created;

  const ForcedPart part{.prefill = {}, .decode = tokens};
  CacheOptions cache;
  cache.sink_tokens = kTraceSinkTokens;
  SequenceOptions sequence = OptionsFor({&part, 1}, cache);
  const auto n_tokens = static_cast<uint32_t>(tokens.size());
  if (options.reread) sequence.max_tokens = 2 * n_tokens;
  sequence.make_policy = [&](const PolicyCapacity&) {
    return std::make_unique<RecordingPolicy>(info, n_tokens, writer);
  };
  Status written;
  const auto finish_step = [&](const Sequence&) {
    if (written.ok()) written = writer.FinishStep();
  };
  // A disk that takes no more ends the run, too.
  const auto stops = [&] {
    return !written.ok() || (cancelled && cancelled());
  };
  Result<std::unique_ptr<Sequence>> run = StartAndRunForced(
      engine, {&part, 1}, sequence, finish_step, progress, stops);
  if (!written.ok()) return written;
  if (!run.ok()) return run.status();
  if (options.reread) {
    if (Status s = RecordReread(engine, **run, tokens, info, writer, cancelled);
        !s.ok()) {
      return s;
    }
  }
  if (Status s = writer.Finish(); !s.ok()) return s;
  return RecordedTrace{.n_tokens = writer.n_steps(),
                       .n_lanes = info.n_lanes(),
                       .n_bytes = writer.n_bytes()};
}

}  // namespace lkv
