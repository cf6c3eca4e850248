// Teacher forcing: feeds given tokens to a sequence, whatever the model would
// have said, so that runs under different policies see the same text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "lookaheadkv/status.h"

namespace lkv {

// A stretch of text: read as a prompt, then continued token by token.
struct ForcedPart {
  std::span<const int32_t> prefill;  // may be empty after the first part
  std::span<const int32_t> decode;
};

// Admission of a sequence just long enough for the parts.
SequenceOptions OptionsFor(std::span<const ForcedPart> parts,
                           const CacheOptions& cache);

// Feeds all parts. `after_step` (may be empty) is called after every prefill
// and every decode step, outside the timed part of the step; the logits then
// predict the token that comes next. `progress` (may be empty) is told the
// tokens done, after every chunk of a prefill and every decode step.
Status RunForced(Sequence& sequence, std::span<const ForcedPart> parts,
                 const std::function<void(const Sequence&)>& after_step,
                 const std::function<void(uint32_t)>& progress,
                 const std::function<bool()>& cancelled);

// Starts a sequence and feeds it the parts.
Result<std::unique_ptr<Sequence>> StartAndRunForced(
    Engine& engine, std::span<const ForcedPart> parts,
    const SequenceOptions& options,
    const std::function<void(const Sequence&)>& after_step,
    const std::function<void(uint32_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
