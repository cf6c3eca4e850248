// StateStream: carries the state of objects out of a process and into another
// one. An object names its fields once, in ExchangeState(stream): the same call
// writes them all or reads them all, so the two can never differ.
//
// What is read may come from a damaged or foreign place. It is never believed
// where memory hangs on it: a number that says how much there is goes through
// ExchangeCount. After the first thing that does not fit, ok() is false,
// nothing more is written or read, and an object that was being read is of no
// use; one that was being written is as it was. Cost: copying.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace lkv {

class StateStream {
 public:
  // Writes: appends to `to`, which outlives it.
  explicit StateStream(std::vector<uint8_t>* to) : to_(to) {}
  // Reads `from`, which outlives it.
  explicit StateStream(std::span<const uint8_t> from) : from_(from) {}

  bool is_reading() const { return to_ == nullptr; }
  bool ok() const { return ok_; }
  // Reading: all of it has been read, too.
  bool IsDone() const { return ok_ && from_.empty(); }
  void Fail() { ok_ = false; }
  // Fails unless it holds.
  void Require(bool holds) { ok_ = ok_ && holds; }

  // Numbers, or arrays of numbers: no padding would be written.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Exchange(T& value) { Bytes(&value, sizeof(value)); }
  void Exchange(bool& value) {
    uint8_t byte = value ? 1 : 0;
    Exchange(byte);
    Require(byte <= 1);
    if (ok_) value = byte == 1;
  }
  // One of the enumerators from 0 to `last`.
  template <typename T>
  requires std::is_enum_v<T>
  void Exchange(T& value, T last) {
    auto number = static_cast<uint32_t>(value);
    ExchangeCount(number, static_cast<uint32_t>(last));
    if (ok_) value = static_cast<T>(number);
  }
  template <typename T>
  requires std::has_unique_object_representations_v<T> ||
      std::is_floating_point_v<T>
  void Exchange(std::span<T> values) {
    Bytes(values.data(), values.size_bytes());
  }
  // Arrays whose length does not change.
  template <typename T>
  void Exchange(std::vector<T>& values) {
    Exchange(std::span<T>(values));
  }
  // At most `most`; reading, 0 after a failure.
  void ExchangeCount(uint32_t& count, uint64_t most) {
    Exchange(count);
    Require(count <= most);
    if (!ok_ && is_reading()) count = 0;
  }
  // Whether there is a part, which goes by the object's options: both sides
  // have it, or neither.
  template <typename T>
  bool ExchangePresence(const std::optional<T>& part) {
    bool is_there = part.has_value();
    Exchange(is_there);
    Require(is_there == part.has_value());
    return ok_ && is_there;
  }

 private:
  void Bytes(void* data, size_t n_bytes);

  std::vector<uint8_t>* to_ = nullptr;
  std::span<const uint8_t> from_;
  bool ok_ = true;
};

}  // namespace lkv
