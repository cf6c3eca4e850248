#include "text/grammar_unfolding.h"

#include <algorithm>
#include <cstdint>

#include "text/grammar_items.h"

namespace lkv {
namespace {

// libllama's own limit (MAX_REPETITION_THRESHOLD).
constexpr uint64_t kRepetitionsMax = 2000;
constexpr uint32_t kNestingMax = 128;
constexpr size_t kNameBytesMax = 128;
// Elements of 8 bytes that all repetitions together may unfold to: 32 MiB,
// which libllama holds up to three times while it reads them.
constexpr uint64_t kElementsMax = uint64_t{4} << 20;
// What each rule takes beside its elements: its name and the nodes around it.
constexpr uint64_t kRuleElements = 16;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Walks the text once, item by item as the parser does.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::optional<GrammarProblem> Run() {
    while (at_ < text_.size() && !problem_) Step();
    return problem_;
  }

 private:
  void Step() {
    switch (text_[at_]) {
      case '#':
        return SkipComment();
      case '"':
      case '[': {
        const size_t begin = at_;
        at_ = EndOfGrammarItem(text_, at_);
        item_elements_ = at_ - begin;  // no more elements than bytes
        return;
      }
      case '<':  // a token
        at_ = EndOfGrammarItem(text_, at_);
        item_elements_ = 1;
        return;
      case '(':
        if (++depth_ > kNestingMax) {
          Refuse(at_,
                 "parentheses nest deeper than " + std::to_string(kNestingMax),
                 "give inner groups a rule of their own");
        }
        ++at_;
        return;
      case ')':
        if (depth_ > 0) --depth_;
        item_elements_ = 1;  // a group becomes one reference
        ++at_;
        return;
      case '*':
      case '?':
        return SkipAndRepeat(0);
      case '+':
        return SkipAndRepeat(1);
      case '{':
        return ReadBraces();
      default:
        return SkipWord();
    }
  }

  void SkipWord() {
    const size_t begin = at_;
    at_ = EndOfGrammarItem(text_, at_);
    if (at_ - begin > kNameBytesMax) {
      Refuse(begin,
             "the name of a rule is longer than " +
                 std::to_string(kNameBytesMax) + " characters",
             "shorten it");
    }
    // '.' is an item too; white space, '|' and the like are none.
    const char first = text_[begin];
    if (IsGrammarNameCharacter(first) || first == '.') item_elements_ = 1;
  }

  void SkipComment() { at_ = EndOfGrammarItem(text_, at_); }

  // "{m}", "{m,}" or "{m,n}".
  void ReadBraces() {
    const size_t begin = at_++;
    const auto least = ReadNumber();
    if (!least) return;
    uint64_t most = *least;
    uint64_t n_optional = 0;
    if (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      if (const auto given = ReadNumber()) {
        most = *given;
        if (*least > most) {
          return Refuse(begin,
                        "repeats at least " + std::to_string(*least) +
                            " and at most " + std::to_string(most) + " times",
                        "put the smaller number first");
        }
        n_optional = most - *least;
      } else {
        n_optional = 1;  // a rule that goes on with itself
      }
    }
    if (most > kRepetitionsMax) {
      return Refuse(
          begin,
          "repeats more than " + std::to_string(kRepetitionsMax) + " times",
          "write {" + std::to_string(std::min(*least, kRepetitionsMax)) +
              ",} for no upper end, or repeat less");
    }
    Unfold(begin, *least, n_optional);
  }

  // White space and comments, which the parser allows inside braces too.
  void SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        SkipComment();
      } else if (text_[at_] == ' ' || text_[at_] == '\t' ||
                 text_[at_] == '\r' || text_[at_] == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }

  // A number and the space around it. It stops growing where all are too
  // large.
  std::optional<uint64_t> ReadNumber() {
    SkipSpace();
    if (at_ == text_.size() || !IsDigit(text_[at_])) return {};
    uint64_t number = 0;
    for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_) {
      constexpr uint64_t kEnough = 1'000'000'000'000;
      number = std::min<uint64_t>(number * 10 + (text_[at_] - '0'), kEnough);
    }
    SkipSpace();
    return number;
  }

  void SkipAndRepeat(uint64_t least) {
    ++at_;
    Unfold(at_ - 1, least, 1);
  }

  // The item stands `least` times in its rule; each optional repetition
  // becomes a rule of its own that holds it once more.
  void Unfold(size_t begin, uint64_t least, uint64_t n_optional) {
    n_elements_ +=
        item_elements_ * least + (item_elements_ + kRuleElements) * n_optional;
    item_elements_ = item_elements_ * least + 1;
    if (n_elements_ > kElementsMax) {
      Refuse(begin,
             "all repetitions up to here unfold to more than " +
                 std::to_string(kElementsMax) + " elements",
             "repeat less, or shorter items");
    }
  }

  void Refuse(size_t offset, std::string what, std::string remedy) {
    problem_ = GrammarProblem{offset, std::move(what), std::move(remedy)};
  }

  const std::string_view text_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  uint64_t item_elements_ = 1;  // of the last item, with its repetitions
  uint64_t n_elements_ = 0;
  std::optional<GrammarProblem> problem_;
};

}  // namespace

std::optional<GrammarProblem> FindCostlyUnfolding(std::string_view text) {
  return Scan(text).Run();
}

}  // namespace lkv
