#include "text/chat_turn.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lkv {

// The cached reply keeps the tokens that were drawn, which need not be those
// that its text would give. So the messages are rendered twice, with different
// words in the reply's place: what both have in common at their end follows
// the reply.
Result<std::vector<int32_t>> TokenizeNextTurn(
    const Tokenizer& tokenizer, std::span<const ChatMessage> chat,
    const std::function<bool()>& cancelled) {
  CHECK(chat.size() >= 3);
  const auto last = chat.last(3);
  std::vector<ChatMessage> messages(last.begin(), last.end());
  std::vector<std::vector<int32_t>> renderings;
  for (const char* reply : {"one", "two"}) {
    messages[1].content = reply;
    auto rendered =
        tokenizer.TokenizeChat(messages, Tokenizer::Reply::kBegin, cancelled);
    if (!rendered.ok()) return rendered.status();
    renderings.push_back(std::move(rendered->tokens));
  }
  const auto differ =
      std::mismatch(renderings[0].rbegin(), renderings[0].rend(),
                    renderings[1].rbegin(), renderings[1].rend());
  return std::vector<int32_t>(differ.first.base(), renderings[0].end());
}

}  // namespace lkv
