#include "testing/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "base/check.h"
#include "gguf.h"

namespace lkv {
namespace {

using GgufContext = std::unique_ptr<gguf_context, decltype(&gguf_free)>;
using GgmlContext = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

// Tensors without data: shapes and names only.
GgmlContext NewShapeContext(size_t n_tensors) {
  return {ggml_init({.mem_size = (n_tensors + 1) * ggml_tensor_overhead(),
                     .mem_buffer = nullptr,
                     .no_alloc = true}),
          &ggml_free};
}

// The f32 values of one tensor, as many as it has elements.
using FillFn = std::function<void(const ggml_tensor& tensor, float* values)>;

void QuantizeRows(const ggml_tensor& tensor, const float* values,
                  uint8_t* out) {
  const int64_t n_columns = tensor.ne[0];
  const int64_t n_rows = ggml_nrows(&tensor);
  if (tensor.type == GGML_TYPE_F32) {
    std::memcpy(out, values, sizeof(float) * n_columns * n_rows);
    return;
  }
  CHECK(!ggml_quantize_requires_imatrix(tensor.type));
  ggml_quantize_init(tensor.type);
  // IQ4_NL searches for scales: 135M elements took 14 s on two threads.
  const int64_t n_threads =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, n_rows);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < n_threads; ++t) {
    threads.emplace_back([&, t] {
      int64_t begin = n_rows * t / n_threads;
      int64_t end = n_rows * (t + 1) / n_threads;
      ggml_quantize_chunk(tensor.type, values, out, begin * n_columns,
                          end - begin, n_columns, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Writes metadata, then every tensor of `shapes` in order, holding only one
// tensor's values at a time.
void WriteModel(gguf_context* meta, ggml_context* shapes,
                const std::string& path, const FillFn& fill) {
  for (ggml_tensor* t = ggml_get_first_tensor(shapes); t != nullptr;
       t = ggml_get_next_tensor(shapes, t)) {
    gguf_add_tensor(meta, t);
  }
  CHECK(gguf_write_to_file(meta, path.c_str(), /*only_meta=*/true));
  File file(std::fopen(path.c_str(), "ab"), &std::fclose);
  CHECK(file != nullptr);
  std::vector<float> values;
  std::vector<uint8_t> bytes;
  for (ggml_tensor* t = ggml_get_first_tensor(shapes); t != nullptr;
       t = ggml_get_next_tensor(shapes, t)) {
    values.resize(ggml_nelements(t));
    fill(*t, values.data());
    // The padding that puts the next tensor on its offset.
    bytes.assign(GGML_PAD(ggml_nbytes(t), gguf_get_alignment(meta)), 0);
    QuantizeRows(*t, values.data(), bytes.data());
    CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file.get()) ==
          bytes.size());
  }
  CHECK(std::fflush(file.get()) == 0);
}

void SetMetadata(const RandomModelOptions& o, gguf_context* meta) {
  const std::string prefix = o.family + ".";
  auto set_uint = [&](const char* key, uint32_t value) {
    gguf_set_val_u32(meta, (prefix + key).c_str(), value);
  };
  auto set_float = [&](const char* key, float value) {
    gguf_set_val_f32(meta, (prefix + key).c_str(), value);
  };
  gguf_set_val_str(meta, "general.architecture", o.family.c_str());
  gguf_set_val_str(meta, "general.name", "random");
  gguf_set_val_str(meta, "tokenizer.ggml.model", "none");
  set_uint("vocab_size", o.vocab_size);
  set_uint("context_length", o.context_tokens);
  set_uint("embedding_length", o.n_embd);
  set_uint("block_count", o.n_layers);
  set_uint("feed_forward_length", o.n_ff);
  set_uint("attention.head_count", o.n_heads);
  set_uint("attention.head_count_kv", o.n_kv_heads);
  set_uint("attention.key_length", o.head_dim);
  set_uint("attention.value_length", o.head_dim);
  set_uint("rope.dimension_count", o.head_dim);
  set_float("attention.layer_norm_rms_epsilon", o.norm_epsilon);
  set_float("rope.freq_base", o.rope_frequency_base);
  if (!o.rope_scaling.empty()) {
    gguf_set_val_str(meta, (prefix + "rope.scaling.type").c_str(),
                     o.rope_scaling.c_str());
    set_float("rope.scaling.factor", o.rope_factor);
  }
  if (o.rope_original_context > 0) {
    set_uint("rope.scaling.original_context_length", o.rope_original_context);
  }
}

void AddShapes(const RandomModelOptions& o, ggml_context* shapes) {
  auto add_vector = [&](const std::string& name, uint32_t n) {
    ggml_set_name(ggml_new_tensor_1d(shapes, GGML_TYPE_F32, n), name.c_str());
  };
  auto add_matrix = [&](const std::string& name, uint32_t n_columns,
                        uint32_t n_rows) {
    ggml_type type = QuantTypeForRow(o.matrix_type, n_columns);
    ggml_set_name(ggml_new_tensor_2d(shapes, type, n_columns, n_rows),
                  name.c_str());
  };
  const uint32_t q_width = o.n_heads * o.head_dim;
  const uint32_t kv_width = o.n_kv_heads * o.head_dim;

  add_matrix("token_embd.weight", o.n_embd, o.vocab_size);
  if (!o.rope_frequency_factors.empty()) {
    CHECK(o.rope_frequency_factors.size() == o.head_dim / 2);
    add_vector("rope_freqs.weight", o.head_dim / 2);
  }
  for (uint32_t layer = 0; layer < o.n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add_vector(block + "attn_norm.weight", o.n_embd);
    add_matrix(block + "attn_q.weight", o.n_embd, q_width);
    add_matrix(block + "attn_k.weight", o.n_embd, kv_width);
    add_matrix(block + "attn_v.weight", o.n_embd, kv_width);
    add_matrix(block + "attn_output.weight", q_width, o.n_embd);
    if (o.qkv_bias) {
      add_vector(block + "attn_q.bias", q_width);
      add_vector(block + "attn_k.bias", kv_width);
      add_vector(block + "attn_v.bias", kv_width);
    }
    if (o.qk_norm) {
      add_vector(block + "attn_q_norm.weight", o.head_dim);
      add_vector(block + "attn_k_norm.weight", o.head_dim);
    }
    add_vector(block + "ffn_norm.weight", o.n_embd);
    add_matrix(block + "ffn_gate.weight", o.n_embd, o.n_ff);
    add_matrix(block + "ffn_up.weight", o.n_embd, o.n_ff);
    add_matrix(block + "ffn_down.weight", o.n_ff, o.n_embd);
  }
  add_vector("output_norm.weight", o.n_embd);
  if (!o.tied_output) add_matrix("output.weight", o.n_embd, o.vocab_size);
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

size_t CountTensors(const RandomModelOptions& o) { return 4 + o.n_layers * 14; }

}  // namespace

RandomModelOptions RandomModelOf(const std::string& family) {
  RandomModelOptions options;
  options.family = family;
  if (family == "qwen2") options.qkv_bias = true;
  if (family == "qwen3") {
    options.qk_norm = true;
    options.head_dim = 128;
  }
  return options;
}

void WriteRandomModel(const std::string& path,
                      const RandomModelOptions& options) {
  GgufContext meta(gguf_init_empty(), &gguf_free);
  SetMetadata(options, meta.get());
  GgmlContext shapes = NewShapeContext(CountTensors(options));
  AddShapes(options, shapes.get());

  std::mt19937_64 random(options.seed);
  std::normal_distribution<float> normal;
  WriteModel(meta.get(), shapes.get(), path,
             [&](const ggml_tensor& tensor, float* values) {
               const std::string_view name = ggml_get_name(&tensor);
               if (name == "rope_freqs.weight") {
                 std::copy(options.rope_frequency_factors.begin(),
                           options.rope_frequency_factors.end(), values);
                 return;
               }
               // Norm weights scatter around 1, biases around 0; a matrix maps
               // unit variance to unit variance.
               float mean = EndsWith(name, "norm.weight") ? 1.0f : 0.0f;
               float deviation =
                   ggml_n_dims(&tensor) == 1
                       ? 0.2f
                       : 1.0f / std::sqrt(static_cast<float>(tensor.ne[0]));
               if (name == "token_embd.weight" && !options.tied_output) {
                 deviation = 1.0f;  // norms divide by it, but epsilon counts
               }
               for (int64_t i = 0; i < ggml_nelements(&tensor); ++i) {
                 values[i] = mean + deviation * normal(random);
               }
             });
}

ggml_type QuantTypeForRow(ggml_type type, uint64_t n_columns) {
  auto fits = [&](ggml_type t) { return n_columns % ggml_blck_size(t) == 0; };
  if (fits(type)) return type;
  ggml_type instead = GGML_TYPE_F16;
  switch (type) {
    case GGML_TYPE_Q2_K:
    case GGML_TYPE_Q3_K:
    case GGML_TYPE_TQ1_0:
    case GGML_TYPE_TQ2_0:
      instead = GGML_TYPE_Q4_0;
      break;
    case GGML_TYPE_Q4_K:
      instead = GGML_TYPE_Q5_0;
      break;
    case GGML_TYPE_Q5_K:
      instead = GGML_TYPE_Q5_1;
      break;
    case GGML_TYPE_Q6_K:
      instead = GGML_TYPE_Q8_0;
      break;
    case GGML_TYPE_IQ3_S:
    case GGML_TYPE_IQ3_XXS:
    case GGML_TYPE_IQ2_S:
    case GGML_TYPE_IQ4_XS:
      instead = GGML_TYPE_IQ4_NL;
      break;
    default:
      break;
  }
  return fits(instead) ? instead : GGML_TYPE_F16;
}

void RequantizeModel(const std::string& in_path, const std::string& out_path,
                     ggml_type type) {
  ggml_context* source_shapes = nullptr;
  GgufContext source(
      gguf_init_from_file(in_path.c_str(),
                          {.no_alloc = true, .ctx = &source_shapes}),
      &gguf_free);
  CHECK(source != nullptr);
  GgmlContext own_source_shapes(source_shapes, &ggml_free);

  GgufContext meta(gguf_init_empty(), &gguf_free);
  gguf_set_kv(meta.get(), source.get());
  gguf_remove_key(meta.get(), "general.file_type");

  GgmlContext shapes = NewShapeContext(gguf_get_n_tensors(source.get()));
  for (ggml_tensor* t = ggml_get_first_tensor(source_shapes); t != nullptr;
       t = ggml_get_next_tensor(source_shapes, t)) {
    bool is_matrix = ggml_n_dims(t) == 2;
    ggml_tensor* copy = ggml_new_tensor(
        shapes.get(), is_matrix ? QuantTypeForRow(type, t->ne[0]) : t->type,
        GGML_MAX_DIMS, t->ne);
    ggml_set_name(copy, t->name);
  }

  File file(std::fopen(in_path.c_str(), "rb"), &std::fclose);
  CHECK(file != nullptr);
  std::vector<uint8_t> bytes;
  WriteModel(
      meta.get(), shapes.get(), out_path,
      [&](const ggml_tensor& tensor, float* values) {
        int64_t id = gguf_find_tensor(source.get(), ggml_get_name(&tensor));
        ggml_type source_type = gguf_get_tensor_type(source.get(), id);
        bytes.resize(gguf_get_tensor_size(source.get(), id));
        size_t offset = gguf_get_data_offset(source.get()) +
                        gguf_get_tensor_offset(source.get(), id);
        CHECK(fseeko(file.get(), static_cast<off_t>(offset), SEEK_SET) == 0);
        CHECK(std::fread(bytes.data(), 1, bytes.size(), file.get()) ==
              bytes.size());
        if (source_type == GGML_TYPE_F32) {
          std::memcpy(values, bytes.data(), bytes.size());
        } else {
          ggml_get_type_traits(source_type)
              ->to_float(bytes.data(), values, ggml_nelements(&tensor));
        }
      });
}

}  // namespace lkv
