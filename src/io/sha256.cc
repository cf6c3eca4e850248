#include "io/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace lkv {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

// Nothing below fails but for want of a few hundred bytes, or for a library
// without SHA-256.
Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr);
  CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(std::span<const uint8_t> bytes) {
  CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Hex() {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned int n_bytes = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, digest, &n_bytes) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < n_bytes; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace lkv
