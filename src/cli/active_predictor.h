// Which predictor forecasts attention in a sequence, and why that one.
#pragma once

#include <optional>
#include <string>

#include "cache/kv_cache.h"
#include "lookaheadkv/options.h"

namespace lkv::cli {

struct ActivePredictor {
  std::string name;  // "mlp" or "ema", as in the option `predictor`
  std::string reason;
};

// None where nothing is forecast: another policy than the look-ahead ones.
std::optional<ActivePredictor> ActivePredictorOf(const CacheOptions& cache,
                                                 const SequenceStats& kv);

}  // namespace lkv::cli
