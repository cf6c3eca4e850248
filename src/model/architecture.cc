#include "model/architecture.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/printable_text.h"

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

// What a refusal advises.
enum class Remedy {
  kConvertAgain,      // the file contradicts itself or lacks something
  kChooseOtherModel,  // the file is sound, but of a kind that we do not run
};

// As short as it can be: "0.5", not "0.500000".
std::string NumberText(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

// Reads one model file. Keeps the first failure; what is read after it does
// not matter, so the code that asks stays a straight line.
class ModelReader {
 public:
  ModelReader(const GgufFile& file, const std::string& family)
      : file_(file), family_(family), prefix_(family + ".") {}

  const Status& status() const { return status_; }

  // `what` names the thing, what it is and what was expected.
  void Fail(const std::string& what, Remedy remedy) {
    if (!status_.ok()) return;
    status_ =
        Corrupt(file_.path() + ": " + what +
                (remedy == Remedy::kConvertAgain ? "; convert the model again"
                                                 : "; choose another model"));
  }
  void FailKey(const std::string& name, const std::string& problem,
               Remedy remedy) {
    Fail("key " + prefix_ + name + " " + problem, remedy);
  }
  void FailTensor(const std::string& name, const std::string& problem,
                  Remedy remedy) {
    Fail("tensor " + Printable(name) + " " + problem, remedy);
  }

  // A whole number in 1..max; without the key `otherwise`, 0 = required.
  uint32_t Count(const std::string& name, uint64_t max,
                 uint64_t otherwise = 0) {
    const std::string key = prefix_ + name;
    if (file_.GetArrayLength(key)) {
      FailKey(name, "has a value for each layer, but only one for all is run",
              Remedy::kChooseOtherModel);
      return 0;
    }
    const std::optional<uint64_t> given = file_.GetUint(key);
    const uint64_t value = given.value_or(otherwise);
    const std::string range = "a whole number in 1.." + std::to_string(max);
    if (value == 0 && !given) {
      FailKey(name, "is missing or no number, but must be " + range,
              Remedy::kConvertAgain);
    } else if (value == 0 || value > max) {
      FailKey(name, "is " + std::to_string(value) + ", but must be " + range,
              Remedy::kConvertAgain);
    }
    return status_.ok() ? static_cast<uint32_t>(value) : 0;
  }

  // A finite number above zero; without the key `otherwise`.
  float Positive(const std::string& name, double otherwise) {
    const std::optional<double> given = Number(name);
    const float value = static_cast<float>(given.value_or(otherwise));
    if (!std::isfinite(value) || value <= 0) {
      FailKey(name,
              (given ? "is " + NumberText(*given) : "is missing") +
                  ", but must be a number above 0",
              Remedy::kConvertAgain);
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
        FailKey(key.name,
                "is " + NumberText(value) + ", but only " +
                    NumberText(key.neutral) + " is supported",
                Remedy::kChooseOtherModel);
      }
    }
    if (!file_.GetBool(prefix_ + "attention.causal").value_or(true)) {
      FailKey("attention.causal",
              "is false, but only causal models are supported",
              Remedy::kChooseOtherModel);
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
      FailTensor(name,
                 "is " + GgufTypeName(tensor->raw_type) + ", expected F32",
                 Remedy::kConvertAgain);
      return nullptr;
    }
    return tensor;
  }

  // A tensor nobody required is a part of the model that would be left out
  // silently: a bias, experts, a fused matrix.
  void RefuseOtherTensors() {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!required_.contains(&tensor)) {
        FailTensor(tensor.name,
                   "is no part of a " + family_ + " model that is supported",
                   Remedy::kChooseOtherModel);
      }
    }
  }

 private:
  const GgufTensor* Require(const std::string& name,
                            std::vector<uint64_t> shape) {
    if (!status_.ok()) return nullptr;
    const GgufTensor* tensor = file_.Find(name);
    if (tensor == nullptr) {
      FailTensor(name, "is missing", Remedy::kConvertAgain);
      return nullptr;
    }
    if (tensor->shape != shape) {
      FailTensor(name,
                 "has shape " + ShapeText(tensor->shape) + ", expected " +
                     ShapeText(shape),
                 Remedy::kConvertAgain);
      return nullptr;
    }
    required_.insert(tensor);
    return tensor;
  }

  const GgufFile& file_;
  const std::string family_;
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

  // Without a key of its own a head's length follows from two others.
  const uint64_t narrow_head = out->n_embd / out->n_heads;
  const bool has_length = reader.Number("attention.key_length").has_value();
  const std::string length_key =
      has_length ? "attention.key_length" : "attention.head_count";
  out->head_dim = reader.Count("attention.key_length", kMaxWidth, narrow_head);
  const uint32_t value_dim =
      reader.Count("attention.value_length", kMaxWidth, narrow_head);
  if (value_dim != out->head_dim) {
    reader.FailKey("attention.value_length",
                   "is " + std::to_string(value_dim) +
                       ", but only the length of the keys, " +
                       std::to_string(out->head_dim) + ", is supported",
                   Remedy::kChooseOtherModel);
  }
  if (out->head_dim % kHeadDimStep != 0 || out->head_dim > kMaxHeadDim) {
    reader.FailKey(length_key,
                   "makes heads of " + std::to_string(out->head_dim) +
                       " elements, but only multiples of 16 up to 256 are "
                       "supported",
                   Remedy::kChooseOtherModel);
  }
  if (out->n_heads % out->n_kv_heads != 0 ||
      out->n_heads / out->n_kv_heads > kMaxGroup) {
    reader.FailKey("attention.head_count_kv",
                   "shares " + std::to_string(out->n_heads) +
                       " query heads among " + std::to_string(out->n_kv_heads) +
                       " KV heads, but only 1 to 8 whole query heads per KV "
                       "head are supported",
                   Remedy::kChooseOtherModel);
  }

  out->norm_epsilon = reader.Positive("attention.layer_norm_rms_epsilon", 0);
  // Beyond the window such a model never attended; within it there is no
  // difference.
  const std::optional<double> window =
      reader.Number("attention.sliding_window");
  if (window && *window > 0 && *window < out->trained_context_tokens) {
    reader.FailKey("attention.sliding_window",
                   "is " + NumberText(*window) +
                       ", but only a window of the "
                       "whole context, " +
                       std::to_string(out->trained_context_tokens) +
                       ", is supported",
                   Remedy::kChooseOtherModel);
  }

  const std::optional<size_t> n_tokens =
      file.GetArrayLength("tokenizer.ggml.tokens");
  const bool has_tokens = n_tokens && *n_tokens > 0 && *n_tokens <= kMaxVocab;
  out->vocab_size =
      reader.Count("vocab_size", kMaxVocab, has_tokens ? *n_tokens : 0);
  if (has_tokens && out->vocab_size != *n_tokens) {
    reader.FailKey("vocab_size",
                   "is " + std::to_string(out->vocab_size) +
                       ", but the vocabulary has " + std::to_string(*n_tokens) +
                       " tokens",
                   Remedy::kConvertAgain);
  }
}

// Numbers of tokens that begin or end a text. One beyond the vocabulary would
// be ignored, and a text go on for ever. ~0 is what writers put for none.
void CheckSpecialTokens(const GgufFile& file, ModelReader& reader,
                        uint32_t vocab_size) {
  for (const char* name : {"bos", "eos", "eot", "eom"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    const std::optional<uint64_t> id = file.GetUint(key);
    if (id && *id >= vocab_size && *id != ~uint32_t{0}) {
      reader.Fail("key " + key + " is " + std::to_string(*id) +
                      ", but the vocabulary has " + std::to_string(vocab_size) +
                      " tokens",
                  Remedy::kConvertAgain);
    }
  }
}

void ReadRope(ModelReader& reader, uint32_t head_dim, RopeOptions* rope) {
  rope->n_rotated = reader.Count("rope.dimension_count", kMaxWidth, head_dim);
  if (rope->n_rotated != head_dim) {
    reader.FailKey("rope.dimension_count",
                   "is " + std::to_string(rope->n_rotated) +
                       ", but only rotating whole heads, " +
                       std::to_string(head_dim) + ", is supported",
                   Remedy::kChooseOtherModel);
  }
  rope->frequency_base = reader.Positive("rope.freq_base", 10000);
  // rope.scale_linear is the key from before scaling had types; 0 = unset.
  const char* factor_key = reader.Number("rope.scaling.factor")
                               ? "rope.scaling.factor"
                               : "rope.scale_linear";
  const double factor = reader.Number(factor_key).value_or(0);
  rope->factor = factor == 0 ? 1 : static_cast<float>(factor);
  if (!std::isfinite(factor) || factor < 0) {
    reader.FailKey(
        factor_key,
        "is " + NumberText(factor) + ", but must be a number above 0",
        Remedy::kConvertAgain);
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
      reader.FailKey("rope.freq_base",
                     "is " + NumberText(rope->frequency_base) +
                         ", but must be above 1 for YaRN",
                     Remedy::kConvertAgain);
    }
  } else if (type == "none") {
    rope->scaling = RopeScaling::kNone;
  } else if (type.empty() || type == "linear") {
    rope->scaling = RopeScaling::kLinear;
  } else {
    reader.FailKey(
        "rope.scaling.type",
        "is " + Quoted(type) + ", but only none, linear and yarn are supported",
        Remedy::kChooseOtherModel);
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
      reader.FailTensor(kName,
                        "holds " + NumberText(factor) +
                            ", but must hold finite numbers above 0",
                        Remedy::kConvertAgain);
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
    return Corrupt(
        file.path() + ": key general.architecture is " + Quoted(out.family) +
        ", but only llama, qwen2 and qwen3 are supported; choose another "
        "model");
  }
  out.qk_norm = family->qk_norm;
  out.rope.order = family->rope_order;

  ModelReader reader(file, out.family);
  reader.RefuseUnsupportedKeys();
  ReadShape(file, reader, &out);
  if (reader.status().ok()) CheckSpecialTokens(file, reader, out.vocab_size);
  if (reader.status().ok()) ReadRope(reader, out.head_dim, &out.rope);
  if (reader.status().ok()) ReadFrequencyFactors(reader, &out.rope);
  if (reader.status().ok()) CheckTensors(reader, &out);
  if (!reader.status().ok()) return reader.status();
  return out;
}

}  // namespace lkv
