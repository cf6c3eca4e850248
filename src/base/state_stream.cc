#include "base/state_stream.h"

#include <cstring>

namespace lkv {

void StateStream::Bytes(void* data, size_t n_bytes) {
  if (!ok_ || n_bytes == 0) return;
  if (!is_reading()) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    to_->insert(to_->end(), bytes, bytes + n_bytes);
    return;
  }
  if (from_.size() < n_bytes) return Fail();
  std::memcpy(data, from_.data(), n_bytes);
  from_ = from_.subspan(n_bytes);
}

}  // namespace lkv
