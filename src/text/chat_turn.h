// The next turn of a chat whose beginning is already in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lookaheadkv/status.h"
#include "text/tokenizer.h"

namespace lkv {

// The tokens between the end of the last reply and the beginning of the next:
// the mark that ends the reply, the user's words, the mark that begins the next
// one. Requires that `chat` ends in a message of the user, a reply and another
// message of the user. `cancelled` and errors are those of
// Tokenizer::TokenizeChat.
Result<std::vector<int32_t>> TokenizeNextTurn(
    const Tokenizer& tokenizer, std::span<const ChatMessage> chat,
    const std::function<bool()>& cancelled = {});

}  // namespace lkv
