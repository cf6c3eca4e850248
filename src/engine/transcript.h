// Transcript: what whoever holds a conversation keeps in its session beside the
// cached tokens. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lkv {

struct Transcript {
  std::string system;  // empty: none
  std::vector<ChatMessage> messages;
  std::vector<int32_t> uncached;  // tokens behind those that are cached
  // How the cached tokens came: those of a turn that were read, then those that
  // were generated. Empty where nobody wants to know.
  struct TurnLength {
    uint32_t n_read = 0;
    uint32_t n_generated = 0;
  };
  std::vector<TurnLength> turns;
};

// As bytes, for Sessions::Save.
std::string WriteTranscript(const Transcript& transcript);
// Nothing when these bytes are none.
std::optional<Transcript> ReadTranscript(std::string_view note);

}  // namespace lkv
