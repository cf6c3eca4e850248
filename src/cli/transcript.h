// Transcript: what a chat keeps in its session beside the cached tokens. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lkv::cli {

struct Transcript {
  std::string system;  // empty: none
  std::vector<ChatMessage> messages;
  std::vector<int32_t> uncached;  // tokens behind those that are cached
};

// As JSON.
std::string WriteTranscript(const Transcript& transcript);
// Nothing when it is none.
std::optional<Transcript> ReadTranscript(std::string_view text);

}  // namespace lkv::cli
