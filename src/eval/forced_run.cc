#include "eval/forced_run.h"

#include <memory>

namespace lkv {

SequenceOptions OptionsFor(std::span<const ForcedPart> parts,
                           const CacheOptions& cache) {
  SequenceOptions options;
  options.cache = cache;
  for (const ForcedPart& part : parts) {
    options.prompt_tokens += static_cast<uint32_t>(part.prefill.size());
    options.max_new_tokens += static_cast<uint32_t>(part.decode.size());
  }
  return options;
}

Status RunForced(Sequence& sequence, std::span<const ForcedPart> parts,
                 const std::function<void(const Sequence&)>& after_step,
                 const std::function<void(uint32_t)>& progress,
                 const std::function<bool()>& cancelled) {
  for (const ForcedPart& part : parts) {
    if (!part.prefill.empty()) {
      const uint32_t n_before = sequence.n_tokens();
      const auto report = [&](uint32_t n_done) {
        if (progress) progress(n_before + n_done);
      };
      if (Status s = sequence.Prefill(part.prefill, report, cancelled);
          !s.ok()) {
        return s;
      }
      if (after_step) after_step(sequence);
    }
    for (int32_t token : part.decode) {
      if (cancelled && cancelled()) {
        return Cancelled("evaluation: stopped on request");
      }
      if (Status s = sequence.Decode(token); !s.ok()) return s;
      if (after_step) after_step(sequence);
      if (progress) progress(sequence.n_tokens());
    }
  }
  return Status();
}

Result<std::unique_ptr<Sequence>> StartAndRunForced(
    Engine& engine, std::span<const ForcedPart> parts,
    const SequenceOptions& options,
    const std::function<void(const Sequence&)>& after_step,
    const std::function<void(uint32_t)>& progress,
    const std::function<bool()>& cancelled) {
  Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
  if (!sequence.ok()) return sequence.status();
  if (Status s = RunForced(**sequence, parts, after_step, progress, cancelled);
      !s.ok()) {
    return s;
  }
  return sequence;
}

}  // namespace lkv
