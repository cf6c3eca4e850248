#include "gguf/quant_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ggml.h"

namespace lkv {
namespace {

// A wave whose amplitude every type can hold well.
std::vector<float> Wave(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = std::sin(0.1f * i) + 0.01f * i;
  return values;
}

TEST(DequantizeTest, InvertsEveryTypeThatGgmlCanQuantize) {
  constexpr size_t kColumns = 256;
  const std::vector<float> values = Wave(kColumns);
  int n_types = 0;
  for (uint32_t raw = 0; raw < GGML_TYPE_COUNT; ++raw) {
    auto type = static_cast<ggml_type>(raw);
    const ggml_type_traits* traits = ggml_get_type_traits(type);
    if (!IsStorageType(raw) || ggml_quantize_requires_imatrix(type)) continue;
    if (!traits->is_quantized && traits->from_float_ref == nullptr) continue;
    // Their codebook search takes 10 s to set up.
    if (GgufTypeName(raw).starts_with("IQ3")) continue;
    if (GgufTypeName(raw).starts_with("IQ2")) continue;
    if (GgufTypeName(raw).starts_with("IQ1")) continue;
    std::vector<uint8_t> bytes(ggml_row_size(type, kColumns));
    ggml_quantize_chunk(type, values.data(), bytes.data(), 0, 1, kColumns,
                        nullptr);
    std::vector<float> back(kColumns);
    Dequantize(raw, bytes.data(), kColumns, back.data());
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < kColumns; ++i) {
      error += std::pow(back[i] - values[i], 2);
      norm += std::pow(values[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.6) << GgufTypeName(raw);
    ++n_types;
  }
  EXPECT_GE(n_types, 15);
}

TEST(DequantizeTest, ConvertsPlainNumbers) {
  const int32_t ints[] = {-3, 0, 7};
  const double doubles[] = {0.5, -2.0};
  float out[3];
  Dequantize(GGML_TYPE_I32, reinterpret_cast<const uint8_t*>(ints), 3, out);
  EXPECT_EQ(out[0], -3.0f);
  EXPECT_EQ(out[2], 7.0f);
  Dequantize(GGML_TYPE_F64, reinterpret_cast<const uint8_t*>(doubles), 2, out);
  EXPECT_EQ(out[1], -2.0f);
}

TEST(DequantizeTest, ReadsF32AtAnyAddress) {
  uint8_t bytes[9];
  const float value = 1.25f;
  std::memcpy(bytes + 1, &value, sizeof(value));
  float out = 0;
  Dequantize(GGML_TYPE_F32, bytes + 1, 1, &out);
  EXPECT_EQ(out, value);
}

TEST(StorageTypeTest, RefusesRemovedInternalAndUnknownTypes) {
  EXPECT_TRUE(IsStorageType(GGML_TYPE_Q4_1));
  EXPECT_TRUE(IsStorageType(GGML_TYPE_IQ2_XXS));
  EXPECT_FALSE(IsStorageType(4));   // Q4_2, removed
  EXPECT_FALSE(IsStorageType(31));  // Q4_0_4_4, removed
  EXPECT_FALSE(IsStorageType(GGML_TYPE_Q8_1));
  EXPECT_FALSE(IsStorageType(GGML_TYPE_Q8_K));
  EXPECT_FALSE(IsStorageType(GGML_TYPE_COUNT));
  EXPECT_FALSE(IsStorageType(0xffffffffu));
}

TEST(StorageTypeTest, NamesAreThoseThatPeopleWrite) {
  EXPECT_EQ(GgufTypeName(GGML_TYPE_Q4_1), "Q4_1");
  EXPECT_EQ(GgufTypeName(GGML_TYPE_Q4_K), "Q4_K");
  EXPECT_EQ(GgufTypeName(GGML_TYPE_IQ4_NL), "IQ4_NL");
  EXPECT_EQ(GgufTypeName(31), "number 31");
  EXPECT_EQ(GgufTypeName(5000), "number 5000");
}

TEST(StorageTypeTest, EveryNamedTypeComesFromItsNumber) {
  EXPECT_EQ(NamedType(GGML_TYPE_F32), GgufType::kF32);
  EXPECT_EQ(NamedType(GGML_TYPE_BF16), GgufType::kBF16);
  EXPECT_EQ(NamedType(GGML_TYPE_Q6_K), GgufType::kQ6_K);
  EXPECT_EQ(NamedType(GGML_TYPE_IQ4_XS), GgufType::kOther);
}

}  // namespace
}  // namespace lkv
