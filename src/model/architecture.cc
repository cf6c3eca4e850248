#include "model/architecture.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

namespace lkv {
namespace {

// Far above every model we know, far below what overflows a product of two in
// 64 bits. A size is used only after a tensor of the file confirmed it.
constexpr uint64_t kMaxLayers = 512;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxWidth = uint64_t{1} << 20;
constexpr uint64_t kMaxVocab = uint64_t{1} << 24;
constexpr uint64_t kMaxContext = uint64_t{1} << 30;
// What the attention kernels are written for.
constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kHeadDimStep = 16;
constexpr uint32_t kMaxGroup = 8;

struct Family {
  const char* name;
  RopeOrder rope_order;
  bool qk_norm;
};
constexpr Family kFamilies[] = {
    {"llama", RopeOrder::kNormal, false},
    {"qwen2", RopeOrder::kNeox, false},
    {"qwen3", RopeOrder::kNeox, true},
};

// Keys that change the forward pass in ways we do not compute, with the values
// that mean "not used": what the method says, and what writers put for unset.
struct UnsupportedKey {
  const char* name;
  double neutral;
  double unset;
};
constexpr UnsupportedKey kUnsupportedKeys[] = {
    {"expert_count", 0, 0},
    {"nextn_predict_layers", 0, 0},
    {"attention.clamp_kqv", 0, 0},
    {"attention.scale", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"attn_logit_softcapping", 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"logit_scale", 1, 0},
    {"residual_scale", 1, 0},
    {"embedding_scale", 1, 0},
    {"rope.scaling.alpha", 0, 0},
    {"rope.scaling.yarn_ext_factor", 1, -1},
    {"rope.scaling.yarn_attn_factor", 1, 1},
    {"rope.scaling.yarn_log_multiplier", 0, 0},
};

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

// Reads one model file. Keeps the first failure; what is read after it does
// not matter, so the code that asks stays a straight line.
class ModelReader {
 public:
  ModelReader(const GgufFile& file, const std::string& family)
      : file_(file), prefix_(family + ".") {}

  const Status& status() const { return status_; }

  void Fail(const std::string& thing, const std::string& problem) {
    if (status_.ok()) {
      status_ = Corrupt(file_.path() + ": " + thing + ": " + problem);
    }
  }
  void FailKey(const std::string& name, const std::string& problem) {
    Fail(prefix_ + name, problem);
  }

  // A whole number in 1..max; without the key `otherwise`, 0 = required.
  uint32_t Count(const std::string& name, uint64_t max,
                 uint64_t otherwise = 0) {
    const std::string key = prefix_ + name;
    if (file_.GetArrayLength(key)) {
      Fail(key, "a value per layer is not supported");
      return 0;
    }
    const std::optional<uint64_t> given = file_.GetUint(key);
    const uint64_t value = given.value_or(otherwise);
    if (value == 0 && !given) {
      Fail(key, "missing or not a whole number");
    } else if (value == 0 || value > max) {
      Fail(key,
           std::to_string(value) + " is outside 1.." + std::to_string(max));
    }
    return status_.ok() ? static_cast<uint32_t>(value) : 0;
  }

  // A finite number above zero; without the key `otherwise`.
  float Positive(const std::string& name, double otherwise) {
    const float value = static_cast<float>(Number(name).value_or(otherwise));
    if (!std::isfinite(value) || value <= 0) {
      FailKey(name, std::to_string(value) + " is not a number above 0");
    }
    return value;
  }

  std::optional<double> Number(const std::string& name) const {
    const std::string key = prefix_ + name;
    if (auto value = file_.GetFloat(key)) return value;
    if (auto value = file_.GetUint(key)) return static_cast<double>(*value);
    return std::nullopt;
  }

  std::string Text(const std::string& name) const {
    return file_.GetString(prefix_ + name).value_or("");
  }

  void RefuseUnsupportedKeys() {
    for (const UnsupportedKey& key : kUnsupportedKeys) {
      const double value = Number(key.name).value_or(key.neutral);
      if (value != key.neutral && value != key.unset) {
        FailKey(key.name, std::to_string(value) + " is not supported");
      }
    }
    if (!file_.GetBool(prefix_ + "attention.causal").value_or(true)) {
      FailKey("attention.causal", "only causal models are supported");
    }
  }

  bool HasTensor(const std::string& name) const {
    return file_.Find(name) != nullptr;
  }

  // A matrix of any type, `n_rows` outputs of `n_columns` inputs.
  void RequireMatrix(const std::string& name, uint64_t n_rows,
                     uint64_t n_columns) {
    Require(name, {n_columns, n_rows});
  }

  // A vector of F32; nullptr after a failure.
  const GgufTensor* RequireVector(const std::string& name, uint64_t n) {
    const GgufTensor* tensor = Require(name, {n});
    if (tensor != nullptr && tensor->type != GgufType::kF32) {
      Fail(name, "is " + GgufTypeName(tensor->raw_type) + ", expected F32");
      return nullptr;
    }
    return tensor;
  }

  // A tensor nobody required is a part of the model that would be left out
  // silently: a bias, experts, a fused matrix.
  void RefuseOtherTensors() {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!required_.contains(&tensor)) {
        Fail(tensor.name, "a tensor of this name is not supported");
      }
    }
  }

 private:
  const GgufTensor* Require(const std::string& name,
                            std::vector<uint64_t> shape) {
    if (!status_.ok()) return nullptr;
    const GgufTensor* tensor = file_.Find(name);
    if (tensor == nullptr) {
      Fail(name, "the tensor is missing");
      return nullptr;
    }
    if (tensor->shape != shape) {
      Fail(name, "has shape " + ShapeText(tensor->shape) + ", expected " +
                     ShapeText(shape));
      return nullptr;
    }
    required_.insert(tensor);
    return tensor;
  }

  const GgufFile& file_;
  const std::string prefix_;
  std::unordered_set<const GgufTensor*> required_;
  Status status_;
};

void ReadShape(const GgufFile& file, ModelReader& reader, Architecture* out) {
  out->n_layers = reader.Count("block_count", kMaxLayers);
  out->n_embd = reader.Count("embedding_length", kMaxWidth);
  out->n_ff = reader.Count("feed_forward_length", kMaxWidth);
  out->n_heads = reader.Count("attention.head_count", kMaxHeads);
  out->n_kv_heads =
      reader.Count("attention.head_count_kv", kMaxHeads, out->n_heads);
  out->trained_context_tokens = reader.Count("context_length", kMaxContext);
  if (!reader.status().ok()) return;

  const uint64_t narrow_head = out->n_embd / out->n_heads;
  out->head_dim = reader.Count("attention.key_length", kMaxWidth, narrow_head);
  const uint32_t value_dim =
      reader.Count("attention.value_length", kMaxWidth, narrow_head);
  if (value_dim != out->head_dim) {
    reader.FailKey(
        "attention.value_length",
        std::to_string(value_dim) + " differs from the keys' length " +
            std::to_string(out->head_dim) + ", which is not supported");
  }
  if (out->head_dim % kHeadDimStep != 0 || out->head_dim > kMaxHeadDim) {
    reader.FailKey("attention.key_length",
                   "a head of " + std::to_string(out->head_dim) +
                       " elements is not supported; multiples of 16 up to "
                       "256 are");
  }
  if (out->n_heads % out->n_kv_heads != 0 ||
      out->n_heads / out->n_kv_heads > kMaxGroup) {
    reader.FailKey("attention.head_count_kv",
                   std::to_string(out->n_heads) + " query heads over " +
                       std::to_string(out->n_kv_heads) +
                       " KV heads are not supported; 1 to 8 whole query "
                       "heads per KV head are");
  }

  out->norm_epsilon = reader.Positive("attention.layer_norm_rms_epsilon", 0);
  // Beyond the window such a model never attended; within it there is no
  // difference.
  const std::optional<double> window =
      reader.Number("attention.sliding_window");
  if (window && *window > 0 && *window < out->trained_context_tokens) {
    reader.FailKey("attention.sliding_window",
                   "a window shorter than the context is not supported");
  }

  const std::optional<size_t> n_tokens =
      file.GetArrayLength("tokenizer.ggml.tokens");
  out->vocab_size = n_tokens && *n_tokens > 0 && *n_tokens <= kMaxVocab
                        ? static_cast<uint32_t>(*n_tokens)
                        : reader.Count("vocab_size", kMaxVocab);
}

void ReadRope(ModelReader& reader, uint32_t head_dim, RopeOptions* rope) {
  rope->n_rotated = reader.Count("rope.dimension_count", kMaxWidth, head_dim);
  if (rope->n_rotated != head_dim) {
    reader.FailKey("rope.dimension_count",
                   "rotating a part of a head is not supported");
  }
  rope->frequency_base = reader.Positive("rope.freq_base", 10000);
  // rope.scale_linear is the key from before scaling had types; 0 = unset.
  const double factor =
      reader.Number("rope.scaling.factor")
          .value_or(reader.Number("rope.scale_linear").value_or(0));
  rope->factor = factor == 0 ? 1 : static_cast<float>(factor);
  if (!std::isfinite(factor) || factor < 0) {
    reader.FailKey("rope.scaling.factor",
                   std::to_string(factor) + " is not a number above 0");
  }
  rope->attention_factor = reader.Positive("rope.scaling.attn_factor", 1);

  const std::string type = reader.Text("rope.scaling.type");
  if (type == "yarn") {
    rope->scaling = RopeScaling::kYarn;
    rope->original_context =
        reader.Count("rope.scaling.original_context_length", kMaxContext,
                     reader.Count("context_length", kMaxContext));
    rope->yarn_beta_fast = reader.Positive("rope.scaling.yarn_beta_fast", 32);
    rope->yarn_beta_slow = reader.Positive("rope.scaling.yarn_beta_slow", 1);
    if (rope->frequency_base <= 1) {
      reader.FailKey("rope.freq_base", "must be above 1 for YaRN");
    }
  } else if (type == "none") {
    rope->scaling = RopeScaling::kNone;
  } else if (type.empty() || type == "linear") {
    rope->scaling = RopeScaling::kLinear;
  } else {
    reader.FailKey("rope.scaling.type", type + " is not supported");
  }
}

// The tensor by which Llama 3 slows each pair.
void ReadFrequencyFactors(ModelReader& reader, RopeOptions* rope) {
  constexpr const char* kName = "rope_freqs.weight";
  if (rope->order != RopeOrder::kNormal || !reader.HasTensor(kName)) return;
  const size_t n_pairs = rope->n_rotated / 2;
  const GgufTensor* tensor = reader.RequireVector(kName, n_pairs);
  if (tensor == nullptr) return;
  rope->frequency_factors.resize(n_pairs);
  std::memcpy(rope->frequency_factors.data(), tensor->data,
              n_pairs * sizeof(float));
  for (float factor : rope->frequency_factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      reader.Fail(kName, "holds a factor that is not above 0");
    }
  }
}

void CheckTensors(ModelReader& reader, Architecture* out) {
  const uint64_t q_width = uint64_t{out->n_heads} * out->head_dim;
  const uint64_t kv_width = uint64_t{out->n_kv_heads} * out->head_dim;

  reader.RequireMatrix("token_embd.weight", out->vocab_size, out->n_embd);
  reader.RequireVector("output_norm.weight", out->n_embd);
  out->tied_output = !reader.HasTensor("output.weight");
  if (!out->tied_output) {
    reader.RequireMatrix("output.weight", out->vocab_size, out->n_embd);
  }
  out->qkv_bias = reader.HasTensor(LayerTensorName(0, "attn_q.bias"));

  for (uint32_t i = 0; i < out->n_layers && reader.status().ok(); ++i) {
    auto name = [i](std::string_view part) { return LayerTensorName(i, part); };
    reader.RequireVector(name("attn_norm.weight"), out->n_embd);
    reader.RequireMatrix(name("attn_q.weight"), q_width, out->n_embd);
    reader.RequireMatrix(name("attn_k.weight"), kv_width, out->n_embd);
    reader.RequireMatrix(name("attn_v.weight"), kv_width, out->n_embd);
    reader.RequireMatrix(name("attn_output.weight"), out->n_embd, q_width);
    if (out->qkv_bias) {
      reader.RequireVector(name("attn_q.bias"), q_width);
      reader.RequireVector(name("attn_k.bias"), kv_width);
      reader.RequireVector(name("attn_v.bias"), kv_width);
    }
    if (out->qk_norm) {
      reader.RequireVector(name("attn_q_norm.weight"), out->head_dim);
      reader.RequireVector(name("attn_k_norm.weight"), out->head_dim);
    }
    reader.RequireVector(name("ffn_norm.weight"), out->n_embd);
    reader.RequireMatrix(name("ffn_gate.weight"), out->n_ff, out->n_embd);
    reader.RequireMatrix(name("ffn_up.weight"), out->n_ff, out->n_embd);
    reader.RequireMatrix(name("ffn_down.weight"), out->n_embd, out->n_ff);
  }
  if (reader.status().ok()) reader.RefuseOtherTensors();
}

}  // namespace

std::string LayerTensorName(uint32_t layer, std::string_view part) {
  return "blk." + std::to_string(layer) + "." + std::string(part);
}

Result<Architecture> ReadArchitecture(const GgufFile& file) {
  Architecture out;
  out.family = file.GetString("general.architecture").value_or("");
  out.name = file.GetString("general.name").value_or("");

  const Family* family = nullptr;
  for (const Family& known : kFamilies) {
    if (out.family == known.name) family = &known;
  }
  if (family == nullptr) {
    return Corrupt(file.path() + ": architecture '" + out.family +
                   "' is not supported; supported are llama, qwen2, qwen3");
  }
  out.qk_norm = family->qk_norm;
  out.rope.order = family->rope_order;

  ModelReader reader(file, out.family);
  reader.RefuseUnsupportedKeys();
  ReadShape(file, reader, &out);
  if (reader.status().ok()) ReadRope(reader, out.head_dim, &out.rope);
  if (reader.status().ok()) ReadFrequencyFactors(reader, &out.rope);
  if (reader.status().ok()) CheckTensors(reader, &out);
  if (!reader.status().ok()) return reader.status();
  return out;
}

}  // namespace lkv
