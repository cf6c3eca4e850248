#include "engine/predictors.h"

#include <utility>

#include "engine/built_in_predictors.h"
#include "gguf/gguf_file.h"
#include "train/predictor_file.h"

namespace lkv {

using NetworkResult = Result<std::shared_ptr<const HistoryNetwork>>;

NetworkResult Predictors::Find(const std::string& predictor) {
  if (predictor == "ema") return std::shared_ptr<const HistoryNetwork>();
  const auto found = found_.find(predictor);
  if (found != found_.end()) return found->second;

  NetworkResult network = std::shared_ptr<const HistoryNetwork>();
  if (predictor == "auto" || predictor == "mlp") {
    network = FindBuiltIn();
    if (network.ok() && *network == nullptr && predictor == "mlp") {
      return InvalidArgument(
          "predictor: none was trained for this model; train one with `lkv"
          " train` and give its path, or use ema");
    }
  } else {
    Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(predictor);
    if (!file.ok()) return file.status();
    network = NetworkFor(**file, model_, n_lanes_);
  }
  if (network.ok()) found_.emplace(predictor, *network);
  return network;
}

NetworkResult Predictors::FindBuiltIn() const {
  for (const BuiltInPredictor& built_in : BuiltInPredictors()) {
    Result<std::unique_ptr<GgufFile>> file =
        GgufFile::FromBytes(built_in.name, built_in.bytes);
    if (!file.ok()) return file.status();
    if (ModelOfPredictor(**file) == model_) {
      return NetworkFor(**file, model_, n_lanes_);
    }
  }
  return std::shared_ptr<const HistoryNetwork>();
}

}  // namespace lkv
