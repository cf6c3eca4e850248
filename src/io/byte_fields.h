// Numbers and texts in a row of bytes, little-endian: how headers and indexes
// of files are written and read.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lkv {

static_assert(std::endian::native == std::endian::little);

// Appends to `bytes`.
template <typename T>
requires std::is_arithmetic_v<T>
void AppendField(std::vector<uint8_t>& bytes, T value) {
  const auto raw = std::bit_cast<std::array<uint8_t, sizeof(T)>>(value);
  // (GCC 12 warns of insert() here, wrongly.)
  for (uint8_t byte : raw) bytes.push_back(byte);
}
// Its length in 32 bits first.
inline void AppendField(std::vector<uint8_t>& bytes, std::string_view text) {
  AppendField(bytes, static_cast<uint32_t>(text.size()));
  bytes.insert(bytes.end(), text.begin(), text.end());
}
// As they are.
inline void AppendBytes(std::vector<uint8_t>& bytes,
                        std::span<const uint8_t> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// Takes fields off the front. Once bytes were missing it is not ok() any more,
// and everything reads as zero or empty.
class FieldReader {
 public:
  explicit FieldReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T Read() {
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string ReadText() {
    const uint32_t n = Read<uint32_t>();
    if (!Has(n)) return {};
    std::string text(reinterpret_cast<const char*>(bytes_.data()), n);
    bytes_ = bytes_.subspan(n);
    return text;
  }
  void ReadBytes(std::span<uint8_t> out) {
    if (!Has(out.size()) || out.empty()) return;
    std::memcpy(out.data(), bytes_.data(), out.size());
    bytes_ = bytes_.subspan(out.size());
  }

  bool ok() const { return ok_; }
  // Bytes not taken yet.
  size_t n_left() const { return bytes_.size(); }

 private:
  bool Has(size_t n) {
    ok_ = ok_ && n <= bytes_.size();
    return ok_;
  }

  std::span<const uint8_t> bytes_;
  bool ok_ = true;
};

}  // namespace lkv
