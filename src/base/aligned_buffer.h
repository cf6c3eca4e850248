// AlignedBuffer<T>: owning, 64-byte-aligned, zero-initialised memory for
// kernels. Allocated once, never resized in place. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace lkv {

// One cache line, and one AVX-512 register.
inline constexpr size_t kBufferAlignment = 64;

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t n_elements) : n_elements_(n_elements) {
    size_t n_bytes = (n_elements * sizeof(T) + kBufferAlignment - 1) /
                     kBufferAlignment * kBufferAlignment;
    if (n_bytes == 0) return;
    data_.reset(static_cast<T*>(std::aligned_alloc(kBufferAlignment, n_bytes)));
    CHECK(data_ != nullptr);
    std::memset(static_cast<void*>(data_.get()), 0, n_bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return n_elements_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data_.get(), n_elements_}; }
  std::span<const T> span() const { return {data_.get(), n_elements_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t n_elements_ = 0;
};

}  // namespace lkv
