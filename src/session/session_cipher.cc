#include "session/session_cipher.h"

#include <algorithm>
#include <cstring>

namespace lkv {
namespace {

// No block has this number.
constexpr uint32_t kTextNumber = UINT32_MAX;

GcmNonce NonceOf(uint32_t number, uint64_t generation) {
  GcmNonce nonce;
  static_assert(sizeof(number) + sizeof(generation) == sizeof(nonce));
  std::memcpy(nonce.data(), &number, sizeof(number));
  std::memcpy(nonce.data() + sizeof(number), &generation, sizeof(generation));
  return nonce;
}

}  // namespace

KeyId KeyIdOf(const SecretKey& master_key) {
  // No file has this id.
  const SecretKey derived = master_key.Derive(FileId(), "lookaheadkv key id");
  KeyId id;
  std::copy_n(derived.bytes().begin(), id.size(), id.begin());
  return id;
}

SessionCipher::SessionCipher(const SecretKey& master_key,
                             const SessionHeader& header)
    : header_(header),
      key_(master_key.Derive(header.file_id, "lookaheadkv session file")) {}

AesGcm SessionCipher::ForText(AesGcm::Direction direction,
                              const SessionFront& front) const {
  return AesGcm(direction, key_, NonceOf(kTextNumber, header_.generation),
                AssociatedBytes(header_, front));
}

AesGcm SessionCipher::ForBlock(AesGcm::Direction direction, uint32_t number,
                               const BlockEntry& entry) const {
  return AesGcm(direction, key_, NonceOf(number, header_.generation),
                AssociatedBytes(header_, entry));
}

}  // namespace lkv
