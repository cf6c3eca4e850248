#include "text/grammar.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string_view>

#include "llama-grammar.h"

namespace lkv {
namespace {

constexpr size_t kBytesMax = 64 << 10;
// The parser recurses once per open parenthesis.
constexpr uint32_t kNestingMax = 128;
// Elements that all repetitions {m,n} together may unfold to, 8 bytes each.
constexpr uint64_t kUnfoldedMax = 1 << 20;

Status Refuse(size_t line, const std::string& what) {
  return InvalidArgument("grammar, line " + std::to_string(line) + ": " + what +
                         "; correct the grammar");
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t LineOf(std::string_view text, size_t offset) {
  return 1 + static_cast<size_t>(
                 std::count(text.begin(), text.begin() + offset, '\n'));
}

// Walks the text once, outside of comments, literals and character classes,
// and adds up what it would cost to parse.
class CostScan {
 public:
  explicit CostScan(std::string_view text) : text_(text) {}

  Status Run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"') {
        SkipItem('"');
      } else if (c == '[') {
        SkipItem(']');
      } else if (c == '{') {
        if (Status s = AddRepetition(); !s.ok()) return s;
      } else {
        if (c == '(' && ++depth_ > kNestingMax) {
          return Refuse(LineOf(text_, at_), "nests deeper than 128");
        }
        if (c == ')') {
          if (depth_ > 0) --depth_;
          item_elements_ = 1;  // a group becomes one reference
        }
        ++at_;
      }
    }
    return {};
  }

 private:
  // A literal or class, to its unescaped end; its elements are its bytes.
  void SkipItem(char close) {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != close) {
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + 1, text_.size());
    item_elements_ = at_ - begin;
  }

  Status AddRepetition() {
    const size_t line = LineOf(text_, at_);
    uint64_t times_max = 1;
    for (++at_; at_ < text_.size() && text_[at_] != '}'; ++at_) {
      uint64_t times = 0;
      while (at_ < text_.size() && IsDigit(text_[at_])) {
        times =
            std::min<uint64_t>(times * 10 + (text_[at_] - '0'), kUnfoldedMax);
        ++at_;
      }
      times_max = std::max(times_max, times);
      if (at_ == text_.size() || text_[at_] == '}') break;
    }
    unfolded_ += item_elements_ * times_max;
    if (unfolded_ > kUnfoldedMax) return Refuse(line, "repeats too much");
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  uint64_t item_elements_ = 1;
  uint64_t unfolded_ = 0;
};

// Where the first rule begins: behind white space and comments.
size_t FirstRule(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' ||
               text[at] == '\n') {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

// The parser's words, which end with all the text that is left, cut to a line.
std::string OneLine(std::string_view words) {
  constexpr size_t kShown = 80;
  std::string line(words.substr(0, std::min(words.find('\n'), kShown)));
  std::replace_if(
      line.begin(), line.end(),
      [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

}  // namespace

Status CheckGrammar(const llama_vocab* vocab, const std::string& text) {
  if (text.size() > kBytesMax) {
    return InvalidArgument("grammar: is longer than 64 KiB; shorten it");
  }
  if (text.find('\0') != text.npos) {
    return InvalidArgument("grammar: contains a NUL byte; remove it");
  }
  if (Status s = CostScan(text).Run(); !s.ok()) return s;

  llama_grammar_parser parser(vocab);
  const char* rule = text.c_str() + FirstRule(text);
  try {
    while (*rule != '\0') rule = parser.parse_rule(rule);
  } catch (const std::exception& problem) {
    return Refuse(LineOf(text, static_cast<size_t>(rule - text.c_str())),
                  OneLine(problem.what()));
  }
  for (const auto& [name, id] : parser.symbol_ids) {
    if (id >= parser.rules.size() || parser.rules[id].empty()) {
      return InvalidArgument("grammar: rule '" + OneLine(name) +
                             "' is used but not defined; define it");
    }
  }
  if (!parser.symbol_ids.contains("root")) {
    return InvalidArgument(
        "grammar: has no rule 'root'; name the first rule so");
  }
  return {};
}

}  // namespace lkv
