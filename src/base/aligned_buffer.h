// AlignedBuffer<T>: owning, 64-byte-aligned, zero-initialised memory for
// kernels. Allocated once, never resized in place; the system gives the memory
// of a large one as it is first touched. Thread-compatible.
//
// From kHugePageBytes on it lies in 2 MiB pages: a streaming read of 100 MiB
// by one core runs at 32 GB/s from them and at 20 GB/s from 4 KiB pages (Zen 5
// under a hypervisor). So many small arrays that are read one after another,
// such as the weights of a model, belong into one buffer, not one each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace lkv {

// One cache line, and one AVX-512 register.
inline constexpr size_t kBufferAlignment = 64;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Addresses that a large buffer takes beyond its size, at most: it begins and
// ends at borders of 2 MiB.
inline constexpr size_t kBufferPaddingBytes = 2 * kHugePageBytes;

// What an AlignedBuffer throws when the system refuses its memory. As with the
// containers of the standard library, whoever opens an engine or a sequence
// catches it; it never crosses the border of the library.
class AllocationFailure : public std::bad_alloc {
 public:
  explicit AllocationFailure(size_t n_bytes) : n_bytes_(n_bytes) {}
  const char* what() const noexcept override { return "out of memory"; }
  size_t n_bytes() const { return n_bytes_; }

 private:
  size_t n_bytes_;
};

// What to give to std::free, and the aligned memory inside.
struct AlignedMemory {
  void* block;
  void* aligned;
};
// How a large buffer is touched. kSparse: here and there, and much of it
// perhaps never, so it lies in 4 KiB pages.
enum class Access { kDense, kSparse };
// n_bytes > 0 of zeroed memory.
AlignedMemory AllocateAlignedZeroed(size_t n_bytes, Access access);

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t n_elements, Access access = Access::kDense)
      : n_elements_(n_elements) {
    CHECK(n_elements <= PTRDIFF_MAX / sizeof(T));
    if (n_elements == 0) return;
    const AlignedMemory memory =
        AllocateAlignedZeroed(n_elements * sizeof(T), access);
    block_.reset(memory.block);
    data_ = static_cast<T*>(memory.aligned);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    block_ = std::move(other.block_);
    data_ = std::exchange(other.data_, nullptr);
    n_elements_ = std::exchange(other.n_elements_, 0);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return n_elements_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, n_elements_}; }
  std::span<const T> span() const { return {data_, n_elements_}; }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Free> block_;
  T* data_ = nullptr;
  size_t n_elements_ = 0;
};

}  // namespace lkv
