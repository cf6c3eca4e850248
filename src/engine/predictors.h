// Predictors: which network forecasts for a model, by the option `predictor`.
//
// Networks that come with the program are part of it (predictors/*.gguf of the
// source); each is for one model, told by its fingerprint. Others are files of
// `lkv train`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lookaheadkv/status.h"
#include "policy/history_network.h"

namespace lkv {

// Thread-compatible.
class Predictors {
 public:
  // For a model of n_lanes lanes.
  Predictors(std::string model_fingerprint, uint32_t n_lanes)
      : model_(std::move(model_fingerprint)), n_lanes_(n_lanes) {}

  // nullptr: the moving average alone ("ema", or "auto" for a model that no
  // network came with). Owned by the shelf and by every sequence that got it. A
  // file is read once. kInvalidArgument: "mlp" for such a model, or a file for
  // another one; else what reading the file says.
  Result<std::shared_ptr<const HistoryNetwork>> Find(
      const std::string& predictor);

 private:
  Result<std::shared_ptr<const HistoryNetwork>> FindBuiltIn() const;

  std::string model_;
  uint32_t n_lanes_;
  std::map<std::string, std::shared_ptr<const HistoryNetwork>> found_;
};

}  // namespace lkv
