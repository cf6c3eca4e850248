// Secrets of 32 bytes, and what is derived from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/sha256.h"
#include "lookaheadkv/status.h"

namespace lkv {

// HMAC-SHA-256 (RFC 2104). Pure.
Digest HmacSha256(std::span<const uint8_t> key,
                  std::span<const uint8_t> message);

// Numbers that nobody can guess, from the kernel. Thread-safe.
void FillRandom(std::span<uint8_t> out);

// Wiped when it is destroyed. Thread-compatible.
class SecretKey {
 public:
  static constexpr size_t kBytes = 32;

  explicit SecretKey(std::span<const uint8_t, kBytes> bytes);
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  // The 32 bytes of a file that its owner alone may read (mode 0600 or 0400).
  // kNotFound when it is missing, kInvalidArgument when others may read it, it
  // has another length or is a symbolic link.
  static Result<SecretKey> Load(const std::string& path);

  // Another key, from which this one cannot be told (HKDF-SHA-256, RFC 5869).
  // Requires a salt.
  SecretKey Derive(std::span<const uint8_t> salt,
                   std::string_view purpose) const;

  std::span<const uint8_t, kBytes> bytes() const { return bytes_; }

 private:
  std::array<uint8_t, kBytes> bytes_;
};

}  // namespace lkv
