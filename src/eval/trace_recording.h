// Records an attention trace of a text under the full cache, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/file_system.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct TraceRecordingOptions {
  std::string path;              // of the trace
  std::string text;              // where the tokens are from
  std::vector<uint32_t> layers;  // ascending; empty: all
  bool reread = false;           // have the model read the text a second time
};

struct RecordedTrace {
  uint32_t n_tokens = 0;
  uint32_t n_lanes = 0;
  uint64_t n_bytes = 0;
};

// Feeds the tokens one by one and writes what every query attended to. Nothing
// stands under the path until all is written. kInvalidArgument: no tokens,
// more than the model holds (with a second reading: half as many), a layer that
// it has not. `progress` (may be empty)
// is told the tokens done.
Result<RecordedTrace> RecordTrace(const FileSystem& file_system, Engine& engine,
                                  std::span<const int32_t> tokens,
                                  const TraceRecordingOptions& options,
                                  const std::function<void(uint32_t)>& progress,
                                  const std::function<bool()>& cancelled);

}  // namespace lkv
