// How much faster a text comes back from its session than from being read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sessions.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct SessionSpeedOptions {
  std::vector<uint32_t> lengths = {2048, 8192};  // tokens
  uint32_t n_rounds = 5;
  CacheOptions cache;         // where sessions are kept, and what is kept
  std::vector<int32_t> text;  // repeated as needed
};

struct SessionSpeedRow {
  uint32_t n_tokens = 0;
  uint64_t n_bytes = 0;  // of the session, read back
  ReadPath read_path = ReadPath::kUnknown;
  // Seconds: median, least and most of the rounds. In each round the text is
  // read, kept, driven out of the page cache and restored.
  struct Seconds {
    double median = 0, min = 0, max = 0;
  };
  Seconds read, save, restore;
  // Of the rounds: how many times longer reading took.
  Seconds ratio;
  // Whether the next token's logits were the same after each restoring, bit by
  // bit.
  bool is_same = false;
};

// Keeps sessions in a folder of its own beside the one that options.cache
// names, and removes it. Needs an engine opened with allow_beyond_trained for
// lengths beyond. kCancelled; as Sessions.
Result<std::vector<SessionSpeedRow>> MeasureSessionSpeed(
    Engine& engine, const SessionSpeedOptions& options,
    const std::function<void(const SessionSpeedRow&)>& on_row,
    const std::function<bool()>& cancelled);

}  // namespace lkv
