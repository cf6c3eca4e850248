#include "gguf/quant_types.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/check.h"
#include "ggml.h"

namespace lkv {
namespace {

template <typename T>
void ConvertNumbers(const uint8_t* data, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

}  // namespace

bool IsStorageType(uint32_t raw_type) {
  if (raw_type >= GGML_TYPE_COUNT) return false;
  switch (raw_type) {
    case GGML_TYPE_F32:
    case GGML_TYPE_F64:
    case GGML_TYPE_I8:
    case GGML_TYPE_I16:
    case GGML_TYPE_I32:
    case GGML_TYPE_I64:
      return true;
    default: {
      // Removed types have no block; those without to_float (Q8_1, Q8_K) hold
      // activations inside ggml and never stand in files.
      const ggml_type_traits* traits =
          ggml_get_type_traits(static_cast<ggml_type>(raw_type));
      return traits->blck_size > 0 && traits->to_float != nullptr;
    }
  }
}

GgufType NamedType(uint32_t raw_type) {
  switch (raw_type) {
    case GGML_TYPE_F32:
      return GgufType::kF32;
    case GGML_TYPE_F16:
      return GgufType::kF16;
    case GGML_TYPE_BF16:
      return GgufType::kBF16;
    case GGML_TYPE_Q4_0:
      return GgufType::kQ4_0;
    case GGML_TYPE_Q4_1:
      return GgufType::kQ4_1;
    case GGML_TYPE_Q5_0:
      return GgufType::kQ5_0;
    case GGML_TYPE_Q5_1:
      return GgufType::kQ5_1;
    case GGML_TYPE_Q8_0:
      return GgufType::kQ8_0;
    case GGML_TYPE_Q3_K:
      return GgufType::kQ3_K;
    case GGML_TYPE_Q4_K:
      return GgufType::kQ4_K;
    case GGML_TYPE_Q5_K:
      return GgufType::kQ5_K;
    case GGML_TYPE_Q6_K:
      return GgufType::kQ6_K;
    case GGML_TYPE_IQ4_NL:
      return GgufType::kIQ4_NL;
    default:
      return GgufType::kOther;
  }
}

std::string GgufTypeName(uint32_t raw_type) {
  const char* known = raw_type < GGML_TYPE_COUNT
                          ? ggml_type_name(static_cast<ggml_type>(raw_type))
                          : nullptr;
  // Removed types keep their number, but their name is a sentence, or none.
  if (known == nullptr ||
      ggml_blck_size(static_cast<ggml_type>(raw_type)) == 0) {
    return "number " + std::to_string(raw_type);
  }
  std::string name = known;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return name;
}

void Dequantize(uint32_t raw_type, const uint8_t* data, size_t n, float* out) {
  CHECK(IsStorageType(raw_type));
  switch (raw_type) {
    case GGML_TYPE_F32:
      std::memcpy(out, data, n * sizeof(float));
      return;
    case GGML_TYPE_F64:
      return ConvertNumbers<double>(data, n, out);
    case GGML_TYPE_I8:
      return ConvertNumbers<int8_t>(data, n, out);
    case GGML_TYPE_I16:
      return ConvertNumbers<int16_t>(data, n, out);
    case GGML_TYPE_I32:
      return ConvertNumbers<int32_t>(data, n, out);
    case GGML_TYPE_I64:
      return ConvertNumbers<int64_t>(data, n, out);
    default: {
      const ggml_type_traits* traits =
          ggml_get_type_traits(static_cast<ggml_type>(raw_type));
      CHECK(n % static_cast<size_t>(traits->blck_size) == 0);
      traits->to_float(data, out, static_cast<int64_t>(n));
    }
  }
}

}  // namespace lkv
