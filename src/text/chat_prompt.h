// Renders a chat by a model's template and says which bytes of the result are
// what somebody wrote, as against system text and template markers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lookaheadkv/status.h"
#include "text/tokenizer.h"

namespace lkv {

// A half-open range of bytes.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

struct ChatPrompt {
  std::string text;
  // The contents of all messages as they stand in the text, in order of place.
  std::vector<ByteRange> contents;
  // Those that are not from the system: what a cache may evict.
  std::vector<ByteRange> evictable;
};

// `chat_template` is the Jinja text of a model; libllama recognises it by
// its markers and applies its own form of it. kInvalidArgument: not
// recognised, no messages, or a NUL byte in one.
Result<ChatPrompt> RenderChat(const std::string& chat_template,
                              std::span<const ChatMessage> messages,
                              Tokenizer::Reply reply);

}  // namespace lkv
