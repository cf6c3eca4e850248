#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

uint64_t TileBytesOf(const GgufTensor& tensor) {
  const uint64_t n_column_tiles = CeilDiv(tensor.shape[0], kTileColumns);
  const uint64_t n_row_tiles = CeilDiv(tensor.shape[1], kTileRows);
  return n_row_tiles * n_column_tiles *
         TileBytes(ChooseFormat(tensor.type).format);
}

// What a user should know of a tensor whose values changed on the way; empty
// when they did not.
std::string NoteOf(const GgufTensor& tensor, WeightFormat format) {
  const std::string type = GgufTypeName(tensor.raw_type);
  switch (ChooseFormat(tensor.type).exactness) {
    case Exactness::kExact:
      return "";
    case Exactness::kRequantized:
      return type + " re-quantised to 8 bits with a scale per 16 weights";
    case Exactness::kRounded:
      break;
  }
  if (format == WeightFormat::kTile16F16) {
    return type + " held as F16 (relative error up to 1/2048)";
  }
  if (format == WeightFormat::kTile16BF16) {
    return type +
           " beyond the range of F16, held as BF16 (relative error up "
           "to 1/256)";
  }
  return type + " scales rounded to F16 (relative error up to 1/2048)";
}

// Loads tensor after tensor; keeps the first failure.
class Loader {
 public:
  Loader(const GgufFile& file, ThreadTeam& team) : file_(file), team_(team) {}

  const Status& status() const { return status_; }
  uint64_t n_bytes() const { return n_bytes_; }

  WeightMatrix Matrix(const std::string& name) {
    if (!status_.ok()) return {};
    const GgufTensor& tensor = Get(name);
    Result<WeightMatrix> matrix = Retile(tensor, team_);
    if (!matrix.ok()) {
      status_ =
          Corrupt(file_.path() + ": " + std::string(matrix.status().message()));
      return {};
    }
    n_bytes_ += matrix->tiles.size();
    if (std::string note = NoteOf(tensor, matrix->format); !note.empty()) {
      ++notes_[note];
    }
    file_.DropPages(tensor);
    return std::move(matrix).value();
  }

  std::vector<float> Vector(const std::string& name) {
    if (!status_.ok()) return {};
    const GgufTensor& tensor = Get(name);
    std::vector<float> values(tensor.shape[0]);
    std::memcpy(values.data(), tensor.data, tensor.n_bytes);
    if (!std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); })) {
      status_ = Corrupt(file_.path() + ": tensor " + name +
                        " holds a value that is not finite; fetch or convert "
                        "the model again");
      return {};
    }
    n_bytes_ += tensor.n_bytes;
    file_.DropPages(tensor);
    return values;
  }

  // "Q5_1 re-quantised to ...: 12 tensors", one line per kind.
  std::vector<std::string> Notes() const {
    std::vector<std::string> lines;
    for (const auto& [note, n_tensors] : notes_) {
      lines.push_back(note + ": " + std::to_string(n_tensors) +
                      (n_tensors == 1 ? " tensor" : " tensors"));
    }
    return lines;
  }

 private:
  const GgufTensor& Get(const std::string& name) const {
    const GgufTensor* tensor = file_.Find(name);
    CHECK(tensor != nullptr);  // ReadArchitecture found it
    return *tensor;
  }

  const GgufFile& file_;
  ThreadTeam& team_;
  Status status_;
  uint64_t n_bytes_ = 0;
  std::map<std::string, uint32_t> notes_;
};

}  // namespace

uint64_t EstimateWeightBytes(const GgufFile& file) {
  uint64_t n_bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    n_bytes += tensor.shape.size() == 2 ? TileBytesOf(tensor) : tensor.n_bytes;
  }
  return n_bytes;
}

Result<Weights> LoadWeights(const GgufFile& file,
                            const Architecture& architecture,
                            ThreadTeam& team) {
  Loader loader(file, team);
  Weights weights;
  weights.token_embedding = loader.Matrix("token_embd.weight");
  weights.output_norm = loader.Vector("output_norm.weight");
  if (!architecture.tied_output) {
    weights.output = loader.Matrix("output.weight");
  }
  for (uint32_t i = 0; i < architecture.n_layers; ++i) {
    auto matrix = [&](const char* part) {
      return loader.Matrix(LayerTensorName(i, part));
    };
    auto vector = [&](const char* part) {
      return loader.Vector(LayerTensorName(i, part));
    };
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attention_norm = vector("attn_norm.weight");
    layer.q = matrix("attn_q.weight");
    layer.k = matrix("attn_k.weight");
    layer.v = matrix("attn_v.weight");
    layer.o = matrix("attn_output.weight");
    if (architecture.qkv_bias) {
      layer.q_bias = vector("attn_q.bias");
      layer.k_bias = vector("attn_k.bias");
      layer.v_bias = vector("attn_v.bias");
    }
    if (architecture.qk_norm) {
      layer.q_norm = vector("attn_q_norm.weight");
      layer.k_norm = vector("attn_k_norm.weight");
    }
    layer.ffn_norm = vector("ffn_norm.weight");
    layer.gate = matrix("ffn_gate.weight");
    layer.up = matrix("ffn_up.weight");
    layer.down = matrix("ffn_down.weight");
  }
  if (!loader.status().ok()) return loader.status();
  weights.n_bytes = loader.n_bytes();
  weights.notes = loader.Notes();
  return weights;
}

}  // namespace lkv
