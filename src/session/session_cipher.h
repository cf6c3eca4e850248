// How the parts of one sealed session file are sealed (session_format.h).
#pragma once

#include <cstdint>

#include "io/aes_gcm.h"
#include "io/secret_key.h"
#include "session/session_format.h"

namespace lkv {

// Which master key a file was sealed with; says nothing about the key.
KeyId KeyIdOf(const SecretKey& master_key);

// Thread-safe.
class SessionCipher {
 public:
  // The key of the file follows from its id, which therefore never repeats.
  SessionCipher(const SecretKey& master_key, const SessionHeader& header);

  // `front` whatever its text and tag.
  AesGcm ForText(AesGcm::Direction direction, const SessionFront& front) const;
  // `entry` whatever its tag and checksum.
  AesGcm ForBlock(AesGcm::Direction direction, uint32_t number,
                  const BlockEntry& entry) const;

 private:
  const SessionHeader header_;
  const SecretKey key_;
};

}  // namespace lkv
