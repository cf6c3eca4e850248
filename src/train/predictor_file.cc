#include "train/predictor_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "gguf/gguf_writer.h"

namespace lkv {
namespace {

constexpr char kArchitectureKey[] = "general.architecture";
constexpr char kArchitecture[] = "lookaheadkv-predictor";
constexpr char kVersionKey[] = "lookaheadkv.predictor.version";
constexpr char kModelKey[] = "lookaheadkv.predictor.model";
constexpr uint32_t kVersion = 1;

Status Damaged(const std::string& path, const std::string& what) {
  return Corrupt(path + ": " + what + "; train it again with `lkv train`");
}

// Reads a tensor of exactly this shape.
Status ReadTensor(const GgufFile& file, const std::string& name,
                  const std::vector<uint64_t>& shape,
                  std::vector<float>& values) {
  const GgufTensor* tensor = file.Find(name);
  if (tensor == nullptr || tensor->type != GgufType::kF32 ||
      tensor->shape != shape) {
    return Damaged(file.path(),
                   "tensor " + name + " is missing or of another size");
  }
  values.resize(tensor->n_bytes / sizeof(float));
  std::memcpy(values.data(), tensor->data, tensor->n_bytes);
  if (!std::all_of(values.begin(), values.end(),
                   [](float x) { return std::isfinite(x); })) {
    return Damaged(file.path(),
                   "tensor " + name + " holds what is no finite number");
  }
  return {};
}

}  // namespace

Status WritePredictor(const FileSystem& file_system, const std::string& path,
                      const PredictorFile& predictor) {
  const HistoryNetwork& network = predictor.network;
  const std::vector<uint8_t> bytes = EncodeGguf(
      {.strings = {{kArchitectureKey, kArchitecture},
                   {kModelKey, predictor.model}},
       .numbers = {{kVersionKey, kVersion}},
       .reals = {},
       .tensors = {{"inner",
                    {HistoryNetwork::kInputs, HistoryNetwork::kHidden},
                    network.inner},
                   {"hidden_bias",
                    {HistoryNetwork::kHidden, network.n_lanes()},
                    network.hidden_bias},
                   {"outer", {HistoryNetwork::kHidden}, network.outer},
                   {"direct", {HistoryNetwork::kInputs}, network.direct},
                   {"bias", {network.n_lanes()}, network.bias}}});
  Result<std::unique_ptr<NewFile>> file = file_system.Create(path);
  if (!file.ok()) return file.status();
  if (Status s = (*file)->Append(bytes); !s.ok()) return s;
  return (*file)->Commit();
}

std::string ModelOfPredictor(const GgufFile& file) {
  return file.GetString(kModelKey).value_or("");
}

Result<PredictorFile> ReadPredictor(const GgufFile& file) {
  if (file.GetString(kArchitectureKey) != kArchitecture) {
    return Corrupt(file.path() +
                   ": is no predictor; make one with `lkv train`");
  }
  const uint64_t version = file.GetUint(kVersionKey).value_or(0);
  if (version != kVersion) {
    return Damaged(file.path(), "is of version " + std::to_string(version) +
                                    ", this program reads version " +
                                    std::to_string(kVersion));
  }
  const GgufTensor* bias = file.Find("bias");
  if (bias == nullptr) return Damaged(file.path(), "tensor bias is missing");
  const uint64_t n_lanes = bias->shape[0];
  PredictorFile predictor;
  predictor.model = ModelOfPredictor(file);
  HistoryNetwork& network = predictor.network;
  for (const auto& [name, shape, values] : std::initializer_list<
           std::tuple<const char*, std::vector<uint64_t>, std::vector<float>*>>{
           {"inner",
            {HistoryNetwork::kInputs, HistoryNetwork::kHidden},
            &network.inner},
           {"hidden_bias",
            {HistoryNetwork::kHidden, n_lanes},
            &network.hidden_bias},
           {"outer", {HistoryNetwork::kHidden}, &network.outer},
           {"direct", {HistoryNetwork::kInputs}, &network.direct},
           {"bias", {n_lanes}, &network.bias}}) {
    if (Status s = ReadTensor(file, name, shape, *values); !s.ok()) return s;
  }
  if (Status s = file.CheckWhole(); !s.ok()) return s;
  return predictor;
}

Result<std::shared_ptr<const HistoryNetwork>> NetworkFor(
    const GgufFile& file, const std::string& model_fingerprint,
    uint32_t n_lanes) {
  Result<PredictorFile> predictor = ReadPredictor(file);
  if (!predictor.ok()) return predictor.status();
  if (predictor->model != model_fingerprint ||
      predictor->network.n_lanes() != n_lanes) {
    return InvalidArgument(file.path() +
                           ": was trained for another model; train one for "
                           "this model with `lkv train`");
  }
  return std::shared_ptr<const HistoryNetwork>(
      std::make_shared<HistoryNetwork>(std::move(predictor->network)));
}

}  // namespace lkv
