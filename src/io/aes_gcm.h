// AES-256-GCM: one message, sealed or opened piece by piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "io/secret_key.h"

namespace lkv {

using GcmNonce = std::array<uint8_t, 12>;
using GcmTag = std::array<uint8_t, 16>;

// Thread-compatible; 3 GB/s. A nonce serves one message of a key, for two with
// the same one give both away.
class AesGcm {
 public:
  enum class Direction { kSeal, kOpen };

  // `associated` is not sealed, but what opens must have had the same.
  AesGcm(Direction direction, const SecretKey& key, const GcmNonce& nonce,
         std::span<const uint8_t> associated);
  ~AesGcm();
  AesGcm(const AesGcm&) = delete;
  AesGcm& operator=(const AesGcm&) = delete;

  // The next piece, to as many bytes at `out`, which may be its own place.
  // What was opened means nothing before FinishOpen has said so.
  void Add(std::span<const uint8_t> piece, uint8_t* out);
  // Once, at the end.
  GcmTag FinishSeal();
  // Whether key, nonce, associated bytes and all pieces are what was sealed.
  bool FinishOpen(const GcmTag& tag);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lkv
