#include "text/chat_prompt.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "llama.h"

namespace lkv {
namespace {

// Stands for the content of message i while the template is taken apart. No
// template trims or splits it.
std::string MarkOf(size_t i) {
  std::string mark(1, '\x01');
  mark += std::to_string(i);
  mark += '\x02';
  return mark;
}

std::optional<std::string> ApplyTemplate(
    const std::string& chat_template,
    const std::vector<llama_chat_message>& messages, Tokenizer::Reply reply) {
  const bool begin_reply = reply == Tokenizer::Reply::kBegin;
  int32_t n =
      llama_chat_apply_template(chat_template.c_str(), messages.data(),
                                messages.size(), begin_reply, nullptr, 0);
  if (n < 0) return {};
  std::string text(static_cast<size_t>(n) + 1, '\0');
  llama_chat_apply_template(chat_template.c_str(), messages.data(),
                            messages.size(), begin_reply, text.data(), n + 1);
  text.pop_back();
  return text;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool Consume(std::string_view text, std::string_view expected, size_t* at) {
  if (text.substr(*at, expected.size()) != expected) return false;
  *at += expected.size();
  return true;
}

// Walks the rendered text along the rendered marks; between them both
// are equal. False when the template did something else with a content.
bool LocateContents(std::string_view skeleton,
                    std::span<const ChatMessage> messages, ChatPrompt* prompt) {
  size_t at = 0;
  while (true) {
    const size_t mark = skeleton.find('\x01');
    if (!Consume(prompt->text, skeleton.substr(0, mark), &at)) return false;
    if (mark == skeleton.npos) return at == prompt->text.size();
    const size_t mark_end = skeleton.find('\x02', mark);
    const size_t index =
        std::stoul(std::string(skeleton.substr(mark + 1, mark_end - mark - 1)));
    skeleton.remove_prefix(mark_end + 1);

    const ChatMessage& message = messages[index];
    const size_t begin = at;
    // Where a trimmed content also fits untrimmed, the next mark decides.
    const std::string_view next = skeleton.substr(0, skeleton.find('\x01'));
    size_t after = begin;
    if (Consume(prompt->text, message.content, &after) &&
        prompt->text.compare(after, next.size(), next) == 0) {
      at = after;
    } else if (!Consume(prompt->text, Trim(message.content), &at)) {
      return false;
    }
    prompt->contents.push_back({begin, at});
    if (message.role != "system") prompt->evictable.push_back({begin, at});
  }
}

}  // namespace

Result<ChatPrompt> RenderChat(const std::string& chat_template,
                              std::span<const ChatMessage> messages,
                              Tokenizer::Reply reply) {
  if (messages.empty()) {
    return InvalidArgument("chat: has no messages; give at least one");
  }
  std::vector<llama_chat_message> written;
  std::vector<llama_chat_message> marked;
  std::vector<std::string> marks(messages.size());
  size_t n_bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    // libllama takes C strings; the role also stands beside marks.
    if (message.content.find('\0') != std::string::npos ||
        message.role.find_first_of(std::string_view("\0\x01\x02", 3)) !=
            std::string::npos) {
      return InvalidArgument("chat message " + std::to_string(i + 1) +
                             ": contains a NUL byte; remove it");
    }
    n_bytes += message.content.size();
    written.push_back({message.role.c_str(), message.content.c_str()});
    // An empty content stays empty: templates treat it in its own way.
    if (!message.content.empty()) marks[i] = MarkOf(i);
    marked.push_back({message.role.c_str(), marks[i].c_str()});
  }
  // libllama counts bytes in int32; half of it leaves room for the marks.
  if (n_bytes > std::numeric_limits<int32_t>::max() / 2) {
    return InvalidArgument("chat: is longer than 1 GiB; shorten it");
  }

  std::optional<std::string> text =
      ApplyTemplate(chat_template, written, reply);
  std::optional<std::string> skeleton =
      ApplyTemplate(chat_template, marked, reply);
  if (!text || !skeleton) {
    return InvalidArgument(
        "chat template: is of no kind that libllama knows; give the prompt as "
        "plain text");
  }
  ChatPrompt prompt{.text = std::move(*text), .contents = {}, .evictable = {}};
  if (!LocateContents(*skeleton, messages, &prompt)) {
    // Without places nothing can be told apart: all of it may be evicted.
    prompt.contents = {{0, prompt.text.size()}};
    prompt.evictable = prompt.contents;
  }
  return prompt;
}

}  // namespace lkv
