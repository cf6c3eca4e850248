// Memory that the disk can write into without a copy (O_DIRECT): its address
// and its length are whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace lkv {

// What direct reads align offset, address and length to. Disks ask for 512 or
// 4096.
inline constexpr size_t kIoBlockBytes = 4096;

// n_bytes rounded up to whole blocks. Requires room for that in 64 bits.
constexpr uint64_t WholeIoBlocks(uint64_t n_bytes) {
  return (n_bytes + kIoBlockBytes - 1) / kIoBlockBytes * kIoBlockBytes;
}

// At least n_bytes, in whole blocks; contents undefined. Throws std::bad_alloc,
// as containers do. Thread-compatible.
class IoBuffer {
 public:
  IoBuffer() = default;
  explicit IoBuffer(size_t n_bytes) : n_bytes_(WholeIoBlocks(n_bytes)) {
    if (n_bytes_ == 0) return;
    data_.reset(
        static_cast<uint8_t*>(std::aligned_alloc(kIoBlockBytes, n_bytes_)));
    if (data_ == nullptr) throw std::bad_alloc();
  }

  uint8_t* data() { return data_.get(); }
  size_t size() const { return n_bytes_; }
  std::span<uint8_t> span() { return {data_.get(), n_bytes_}; }

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t n_bytes_ = 0;
};

}  // namespace lkv
