// StateStream: carries the state of objects out of a process and into another
// one. An object names its fields once, in ExchangeState(stream): the same call
// writes them all or reads them all, so the two can never differ.
//
// What is read may come from a damaged or foreign place. It is never believed
// where memory hangs on it: a number that says how much there is goes through
// ExchangeCount. After the first thing that does not fit, everything is left as
// it is and ok() is false. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
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
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Exchange(T& value) { Bytes(&value, sizeof(value)); }
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
  // At most `most`; 0 after a failure.
  void ExchangeCount(uint32_t& count, uint64_t most) {
    Exchange(count);
    Require(count <= most);
    if (!ok_) count = 0;
  }

 private:
  void Bytes(void* data, size_t n_bytes);

  std::vector<uint8_t>* to_ = nullptr;
  std::span<const uint8_t> from_;
  bool ok_ = true;
};

}  // namespace lkv
