#include "gguf/gguf_writer.h"

#include <cstring>
#include <memory>

#include "base/check.h"
#include "ggml.h"
#include "gguf.h"

namespace lkv {
namespace {

struct FreeGgml {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

}  // namespace

std::vector<uint8_t> EncodeGguf(const GgufContent& content) {
  const std::unique_ptr<gguf_context, FreeGguf> gguf(gguf_init_empty());
  CHECK(gguf != nullptr);
  for (const auto& [key, value] : content.strings) {
    gguf_set_val_str(gguf.get(), key.c_str(), value.c_str());
  }
  for (const auto& [key, value] : content.numbers) {
    gguf_set_val_u32(gguf.get(), key.c_str(), value);
  }
  for (const auto& [key, value] : content.reals) {
    gguf_set_val_f32(gguf.get(), key.c_str(), value);
  }
  // Describes tensors only; their values stay where they are.
  const std::unique_ptr<ggml_context, FreeGgml> ggml(ggml_init(
      {.mem_size = (content.tensors.size() + 1) * ggml_tensor_overhead(),
       .mem_buffer = nullptr,
       .no_alloc = true}));
  CHECK(ggml != nullptr);
  for (const GgufContent::Tensor& tensor : content.tensors) {
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    ggml_tensor* described =
        ggml_new_tensor(ggml.get(), GGML_TYPE_F32,
                        static_cast<int>(shape.size()), shape.data());
    CHECK(static_cast<size_t>(ggml_nelements(described)) ==
          tensor.values.size());
    ggml_set_name(described, tensor.name.c_str());
    gguf_add_tensor(gguf.get(), described);
  }

  const size_t n_meta = gguf_get_meta_size(gguf.get());
  std::vector<uint8_t> bytes(n_meta);
  gguf_get_meta_data(gguf.get(), bytes.data());
  for (size_t i = 0; i < content.tensors.size(); ++i) {
    const std::vector<float>& values = content.tensors[i].values;
    const size_t at =
        n_meta + gguf_get_tensor_offset(gguf.get(), static_cast<int64_t>(i));
    const size_t n = values.size() * sizeof(float);
    bytes.resize(at + n);
    std::memcpy(&bytes[at], values.data(), n);
  }
  return bytes;
}

}  // namespace lkv
