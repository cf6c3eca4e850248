// Has the model read a text once more behind itself and keeps what every token
// of the first reading got then: what `repeat` ranks by, and what predictors
// learn from.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "lookaheadkv/status.h"
#include "policy/repeat_policy.h"

namespace lkv {

// `sequence` has read `text` alone, keeps everything and has room for it once
// more; afterwards it has read it twice. `scores` has an entry for every token
// of every lane. Nobody else may observe the engine. Costs as much as reading a
// text of this length behind it with every query observed: 8 s for 3,072
// tokens. kCancelled when `cancelled` (may be empty) says so.
Status Reread(Engine& engine, Sequence& sequence, std::span<const int32_t> text,
              RereadScores& scores, const std::function<bool()>& cancelled);

}  // namespace lkv
