// What a saved cache depends on: weights, tokenizer, shape, KV type, RoPE,
// layout and so on, as named axes in clear. A cache is of use to nobody in whom
// one of them differs, and the refusal says which.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/sha256.h"

namespace lkv {

// The first axis, by name, in which two fingerprints differ. An axis that one
// does not have has the value "(none)".
struct FingerprintDifference {
  std::string axis;
  std::string value;
  std::string wanted;

  // "kv_type is int8 instead of f16"
  std::string Text() const;
};

// Value type, thread-compatible. The caller of `session` fills it.
class Fingerprint {
 public:
  // The last value of an axis counts.
  void Set(std::string axis, std::string value);

  // SHA-256 over the axes by name, each text with its length in front: equal
  // for equal fingerprints, whatever the order of Set.
  Digest Hash() const;
  std::optional<FingerprintDifference> DifferenceFrom(
      const Fingerprint& wanted) const;

  const std::map<std::string, std::string>& axes() const { return axes_; }

 private:
  std::map<std::string, std::string> axes_;
};

}  // namespace lkv
