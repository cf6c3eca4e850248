#include "io/secret_key.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>

#include "base/check.h"
#include "base/errno_text.h"
#include "io/descriptor.h"

namespace lkv {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

Digest HmacSha256(std::span<const uint8_t> key,
                  std::span<const uint8_t> message) {
  CHECK(key.size() <= INT_MAX);
  Digest digest;
  unsigned int n_bytes = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             message.data(), message.size(), digest.data(),
             &n_bytes) != nullptr);
  CHECK(n_bytes == digest.size());
  return digest;
}

void FillRandom(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n > 0);  // no kernel that this runs on lacks it
    out = out.subspan(static_cast<size_t>(n));
  }
}

SecretKey::SecretKey(std::span<const uint8_t, kBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

SecretKey::~SecretKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Result<SecretKey> SecretKey::Load(const std::string& path) {
  const Descriptor file(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open() && errno == ELOOP) {
    return InvalidArgument(path +
                           ": is a symbolic link; give the key file "
                           "that it stands for");
  }
  struct stat info = {};
  if (!file.is_open() || fstat(file.get(), &info) != 0) {
    return NotFound(path + ": cannot be opened (" + ErrnoText(errno) +
                    "); check the path and its permissions");
  }
  if (!S_ISREG(info.st_mode) || info.st_size != kBytes) {
    return InvalidArgument(path +
                           ": is not a file of 32 bytes; make one with "
                           "head -c 32 /dev/urandom");
  }
  if (info.st_uid != geteuid() || (info.st_mode & kOthers) != 0) {
    return InvalidArgument(path +
                           ": others may read this key; run chmod 600 "
                           "on it");
  }
  std::array<uint8_t, kBytes> bytes;
  ssize_t n = -1;
  do {
    n = pread(file.get(), bytes.data(), bytes.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(bytes.size())) {
    return IoError(path + ": cannot be read; check the disk");
  }
  SecretKey key(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

SecretKey SecretKey::Derive(std::span<const uint8_t> salt,
                            std::string_view purpose) const {
  struct Free {
    void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
    void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
  };
  const std::unique_ptr<EVP_KDF, Free> kdf(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  CHECK(kdf != nullptr);
  const std::unique_ptr<EVP_KDF_CTX, Free> context(EVP_KDF_CTX_new(kdf.get()));
  CHECK(context != nullptr);
  // The library takes pointers to what it only reads.
  char digest_name[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest_name, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
                                        const_cast<uint8_t*>(bytes_.data()),
                                        bytes_.size()),
      OSSL_PARAM_construct_octet_string(
          OSSL_KDF_PARAM_SALT, const_cast<uint8_t*>(salt.data()), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO,
                                        const_cast<char*>(purpose.data()),
                                        purpose.size()),
      OSSL_PARAM_construct_end()};
  SecretKey derived = *this;
  CHECK(EVP_KDF_derive(context.get(), derived.bytes_.data(), kBytes,
                       parameters) == 1);
  return derived;
}

}  // namespace lkv
