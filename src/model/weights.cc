#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "model/retile.h"

namespace lkv {
namespace {

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

struct MatrixPart {
  const char* name = nullptr;
  WeightMatrix LayerWeights::*matrix = nullptr;
};

// The matrices of every layer, in the order that a step reads them. Row tiles
// of a pair alternate.
constexpr struct {
  MatrixPart part;
  MatrixPart partner;
} kLayerMatrices[] = {
    {{"attn_k.weight", &LayerWeights::k}, {"attn_v.weight", &LayerWeights::v}},
    {{"attn_q.weight", &LayerWeights::q}, {}},
    {{"attn_output.weight", &LayerWeights::o}, {}},
    {{"ffn_gate.weight", &LayerWeights::gate},
     {"ffn_up.weight", &LayerWeights::up}},
    {{"ffn_down.weight", &LayerWeights::down}, {}},
};

// The next matrix begins at a cache line.
uint64_t AlignedSize(uint64_t n_bytes) {
  return CeilDiv(n_bytes, kBufferAlignment) * kBufferAlignment;
}

// Bytes from the first matrix to the end of the last.
uint64_t BytesOfAllTiles(const GgufFile& file, const Architecture& a) {
  uint64_t n_bytes = 0;
  const auto size = [&](const std::string& name) {
    return RetiledBytes(*file.Find(name));
  };
  for (uint32_t i = 0; i < a.n_layers; ++i) {
    for (const auto& [part, partner] : kLayerMatrices) {
      uint64_t both = size(LayerTensorName(i, part.name));
      if (partner.matrix) both += size(LayerTensorName(i, partner.name));
      n_bytes += AlignedSize(both);
    }
  }
  if (!a.tied_output) n_bytes += AlignedSize(size("output.weight"));
  return n_bytes + AlignedSize(size("token_embd.weight"));
}

// Loads tensor after tensor; keeps the first failure.
class Loader {
 public:
  // Matrices will lie one behind the other in `tiles`.
  Loader(const GgufFile& file, std::span<uint8_t> tiles, ThreadTeam& team)
      : file_(file), team_(team), free_tiles_(tiles) {}

  const Status& status() const { return status_; }
  uint64_t n_vector_bytes() const { return n_vector_bytes_; }

  WeightMatrix Matrix(const std::string& name) {
    const GgufTensor& tensor = Get(name);
    uint8_t* tiles = TakeTiles(RetiledBytes(tensor));
    return Load(tensor, tiles, RowTileBytes(tensor));
  }

  // Two matrices of as many rows, row tiles of one behind those of the other.
  std::pair<WeightMatrix, WeightMatrix> Pair(const std::string& name,
                                             const std::string& partner_name) {
    const GgufTensor& tensor = Get(name);
    const GgufTensor& partner = Get(partner_name);
    CHECK(tensor.shape[1] == partner.shape[1]);
    uint8_t* tiles = TakeTiles(RetiledBytes(tensor) + RetiledBytes(partner));
    const uint64_t stride = RowTileBytes(tensor) + RowTileBytes(partner);
    return {Load(tensor, tiles, stride),
            Load(partner, tiles + RowTileBytes(tensor), stride)};
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
    n_vector_bytes_ += tensor.n_bytes;
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
  uint8_t* TakeTiles(uint64_t n_bytes) {
    uint8_t* tiles = free_tiles_.data();
    free_tiles_ = free_tiles_.subspan(AlignedSize(n_bytes));
    return tiles;
  }

  WeightMatrix Load(const GgufTensor& tensor, uint8_t* tiles,
                    uint64_t row_tile_stride) {
    if (!status_.ok()) return {};
    Result<WeightMatrix> matrix = Retile(tensor, tiles, row_tile_stride, team_);
    if (!matrix.ok()) {
      status_ =
          Corrupt(file_.path() + ": " + std::string(matrix.status().message()));
      return {};
    }
    if (std::string note = NoteOf(tensor, matrix->format); !note.empty()) {
      ++notes_[note];
    }
    file_.DropPages(tensor);
    return *matrix;
  }

  const GgufTensor& Get(const std::string& name) const {
    const GgufTensor* tensor = file_.Find(name);
    CHECK(tensor != nullptr);  // ReadArchitecture found it
    return *tensor;
  }

  const GgufFile& file_;
  ThreadTeam& team_;
  std::span<uint8_t> free_tiles_;
  Status status_;
  uint64_t n_vector_bytes_ = 0;
  std::map<std::string, uint32_t> notes_;
};

}  // namespace

uint64_t WeightBytes(const GgufFile& file, const Architecture& architecture) {
  uint64_t n_bytes = BytesOfAllTiles(file, architecture);
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() == 1) n_bytes += tensor.n_bytes;
  }
  return n_bytes;
}

Result<Weights> LoadWeights(const GgufFile& file,
                            const Architecture& architecture,
                            ThreadTeam& team) {
  Weights weights;
  weights.tiles = AlignedBuffer<uint8_t>(BytesOfAllTiles(file, architecture));
  Loader loader(file, weights.tiles.span(), team);
  for (uint32_t i = 0; i < architecture.n_layers; ++i) {
    auto vector = [&](const char* part) {
      return loader.Vector(LayerTensorName(i, part));
    };
    LayerWeights& layer = weights.layers.emplace_back();
    for (const auto& [part, partner] : kLayerMatrices) {
      const std::string name = LayerTensorName(i, part.name);
      if (partner.matrix == nullptr) {
        layer.*part.matrix = loader.Matrix(name);
      } else {
        std::tie(layer.*part.matrix, layer.*partner.matrix) =
            loader.Pair(name, LayerTensorName(i, partner.name));
      }
    }
    layer.attention_norm = vector("attn_norm.weight");
    layer.ffn_norm = vector("ffn_norm.weight");
    if (architecture.qkv_bias) {
      layer.q_bias = vector("attn_q.bias");
      layer.k_bias = vector("attn_k.bias");
      layer.v_bias = vector("attn_v.bias");
    }
    if (architecture.qk_norm) {
      layer.q_norm = vector("attn_q_norm.weight");
      layer.k_norm = vector("attn_k_norm.weight");
    }
  }
  weights.output_norm = loader.Vector("output_norm.weight");
  if (!architecture.tied_output) {
    weights.output = loader.Matrix("output.weight");
  }
  weights.token_embedding = loader.Matrix("token_embd.weight");
  if (Status s = file.CheckWhole(); !s.ok()) return s;
  if (!loader.status().ok()) return loader.status();
  weights.n_bytes = weights.tiles.size() + loader.n_vector_bytes();
  weights.notes = loader.Notes();
  return weights;
}

}  // namespace lkv
