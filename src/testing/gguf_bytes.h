// GgufBytes: writes a GGUF file field by field, right or wrong on purpose.
// For tests of readers; models come from testing/random_model.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lkv {

class GgufBytes {
 public:
  // Numbers of the format (ggml/docs/gguf.md): value types.
  enum Type : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kF64 = 12,
  };
  // Tensor types.
  static constexpr uint32_t kTensorF32 = 0;
  static constexpr uint32_t kTensorQ4_0 = 2;

  GgufBytes& Header(uint64_t n_tensors, uint64_t n_keys) {
    return Raw("GGUF").Put(uint32_t{3}).Put(n_tensors).Put(n_keys);
  }
  GgufBytes& String(std::string_view text) {
    return Put(uint64_t{text.size()}).Raw(text);
  }
  template <typename T>
  GgufBytes& Key(std::string_view key, Type type, T value) {
    return String(key).Put(uint32_t{type}).Put(value);
  }
  GgufBytes& StringKey(std::string_view key, std::string_view value) {
    return String(key).Put(uint32_t{kString}).String(value);
  }
  // The elements follow by Put or String.
  GgufBytes& ArrayKey(std::string_view key, Type type, uint64_t n) {
    return String(key).Put(uint32_t{kArray}).Put(uint32_t{type}).Put(n);
  }
  GgufBytes& Tensor(std::string_view name, std::vector<uint64_t> shape,
                    uint32_t type, uint64_t offset) {
    String(name).Put(static_cast<uint32_t>(shape.size()));
    for (uint64_t n : shape) Put(n);
    return Put(type).Put(offset);
  }
  GgufBytes& Pad(size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
    return *this;
  }
  template <typename T>
  GgufBytes& Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    return Raw({raw, sizeof(T)});
  }
  GgufBytes& Raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

inline void WriteBytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace lkv
