#include "io/aes_gcm.h"

#include <openssl/evp.h>

#include <algorithm>
#include <climits>

#include "base/check.h"

namespace lkv {

struct AesGcm::State {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  ~State() { EVP_CIPHER_CTX_free(context); }
};

// As with SHA-256, nothing fails but for want of memory, or for a library
// without the cipher.
AesGcm::AesGcm(Direction direction, const SecretKey& key, const GcmNonce& nonce,
               std::span<const uint8_t> associated)
    : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr);
  CHECK(associated.size() <= INT_MAX);
  static_assert(std::tuple_size_v<GcmNonce> == 12);  // the cipher's default
  CHECK(EVP_CipherInit_ex(state_->context, EVP_aes_256_gcm(), nullptr,
                          key.bytes().data(), nonce.data(),
                          direction == Direction::kSeal ? 1 : 0) == 1);
  int n_bytes = 0;
  CHECK(EVP_CipherUpdate(state_->context, nullptr, &n_bytes, associated.data(),
                         static_cast<int>(associated.size())) == 1);
}

AesGcm::~AesGcm() = default;

void AesGcm::Add(std::span<const uint8_t> piece, uint8_t* out) {
  while (!piece.empty()) {
    const auto n = static_cast<int>(std::min<size_t>(piece.size(), INT_MAX));
    int n_done = 0;
    CHECK(EVP_CipherUpdate(state_->context, out, &n_done, piece.data(), n) ==
          1);
    CHECK(n_done == n);
    piece = piece.subspan(static_cast<size_t>(n));
    out += n;
  }
}

GcmTag AesGcm::FinishSeal() {
  GcmTag tag;
  int n_bytes = 0;
  CHECK(EVP_CipherFinal_ex(state_->context, tag.data(), &n_bytes) == 1);
  CHECK(n_bytes == 0);
  CHECK(EVP_CIPHER_CTX_ctrl(state_->context, EVP_CTRL_GCM_GET_TAG,
                            static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
}

bool AesGcm::FinishOpen(const GcmTag& tag) {
  GcmTag expected = tag;
  CHECK(EVP_CIPHER_CTX_ctrl(state_->context, EVP_CTRL_GCM_SET_TAG,
                            static_cast<int>(expected.size()),
                            expected.data()) == 1);
  int n_bytes = 0;
  uint8_t nothing[16];
  return EVP_CipherFinal_ex(state_->context, nothing, &n_bytes) == 1;
}

}  // namespace lkv
