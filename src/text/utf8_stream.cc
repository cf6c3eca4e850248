#include "text/utf8_stream.h"

#include <utility>

#include "base/utf8.h"

namespace lkv {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  std::string shown;
  while (!rest.empty()) {
    const Utf8Front front = ReadUtf8Front(rest);
    if (front.kind == Utf8Front::kUnfinished) break;
    shown += front.kind == Utf8Front::kCharacter ? rest.substr(0, front.n_bytes)
                                                 : kReplacement;
    rest.remove_prefix(front.n_bytes);
  }
  pending_ = std::string(rest);
  return shown;
}

std::string Utf8Stream::Finish() {
  return std::exchange(pending_, {}).empty() ? std::string()
                                             : std::string(kReplacement);
}

}  // namespace lkv
