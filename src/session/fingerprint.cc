#include "session/fingerprint.h"

#include <utility>

#include "base/printable_text.h"
#include "io/byte_fields.h"

namespace lkv {
namespace {

constexpr char kNone[] = "(none)";

}  // namespace

std::string FingerprintDifference::Text() const {
  return Printable(axis) + " is " + Printable(value) + " instead of " +
         Printable(wanted);
}

void Fingerprint::Set(std::string axis, std::string value) {
  axes_[std::move(axis)] = std::move(value);
}

Digest Fingerprint::Hash() const {
  std::vector<uint8_t> bytes;
  for (const auto& [axis, value] : axes_) {
    AppendField(bytes, std::string_view(axis));
    AppendField(bytes, std::string_view(value));
  }
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

std::optional<FingerprintDifference> Fingerprint::DifferenceFrom(
    const Fingerprint& wanted) const {
  auto ours = axes_.begin();
  auto theirs = wanted.axes_.begin();
  while (ours != axes_.end() || theirs != wanted.axes_.end()) {
    if (theirs == wanted.axes_.end() ||
        (ours != axes_.end() && ours->first < theirs->first)) {
      return FingerprintDifference{ours->first, ours->second, kNone};
    }
    if (ours == axes_.end() || theirs->first < ours->first) {
      return FingerprintDifference{theirs->first, kNone, theirs->second};
    }
    if (ours->second != theirs->second) {
      return FingerprintDifference{ours->first, ours->second, theirs->second};
    }
    ++ours;
    ++theirs;
  }
  return std::nullopt;
}

}  // namespace lkv
