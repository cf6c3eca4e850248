// An open file of the operating system, closed with the object.
#pragma once

#include <unistd.h>

#include <utility>

namespace lkv {

// Thread-compatible.
class Descriptor {
 public:
  // -1: none.
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Its number, which somebody else closes from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace lkv
