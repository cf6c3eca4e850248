#include "text/grammar.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable_text.h"
#include "base/utf8.h"
#include "llama-grammar.h"
#include "llama.h"
#include "text/grammar_beginnings.h"
#include "text/grammar_items.h"
#include "text/grammar_unfolding.h"

namespace lkv {
namespace {

constexpr size_t kBytesMax = 64 << 10;

size_t LineOf(std::string_view text, size_t offset) {
  return 1 + static_cast<size_t>(
                 std::count(text.begin(), text.begin() + offset, '\n'));
}

// Where the first rule begins: behind white space and comments.
size_t FirstRule(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '#') {
      at = EndOfGrammarItem(text, at);
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' ||
               text[at] == '\n') {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

// The word or sign at the front of what is left, as a message shows it.
std::string NextWord(std::string_view rest) {
  const size_t end = rest.find_first_of(" \t\r\n");
  if (rest.empty()) return "the end of the text";
  if (end == 0) return "the end of the line";
  return Quoted(rest.substr(0, end));
}

// "'z'" or "U+00E9".
std::string CodePoint(uint32_t value) {
  if (value > 0x20 && value < 0x7f) {
    return Quoted(std::string(1, static_cast<char>(value)));
  }
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "U+%04X", value);
  return text.data();
}

// The parser's words in ours. They end in " at " and all the text that is
// left, which gives the place; `rule` is where the rule begins.
GrammarProblem Translate(std::string_view words, std::string_view text,
                         size_t rule) {
  GrammarProblem problem{rule, std::string(words), "correct the grammar"};
  const auto begins_with = [&](std::string_view start) {
    return words.starts_with(start);
  };
  const size_t at = words.find(" at ");
  const std::string_view rest =
      at == words.npos ? std::string_view() : words.substr(at + 4);
  if (at != words.npos && text.ends_with(rest)) {
    problem.offset = text.size() - rest.size();
  }
  if (begins_with("expecting preceding item")) {
    problem.what = "there is nothing to repeat before *, +, ? or {}";
    problem.remedy = "put an item that is not empty before it";
  } else if (begins_with("unknown escape")) {
    problem.what = Quoted(rest.substr(0, 2)) + " is no escape";
    problem.remedy = "known are \\\\ \\\" \\[ \\] \\- \\n \\r \\t \\x \\u \\U";
  } else if (begins_with("unexpected end of input")) {
    problem.what = "a literal or character class is not closed";
    problem.remedy = "close it with \" or ]";
  } else if (begins_with("invalid token")) {
    problem.what = std::string(words) + ": is not one token of this model";
    problem.remedy = "write it as a literal";
  } else if (begins_with("number of rules")) {
    problem.what = "repetitions within repetitions are more than 2000";
    problem.remedy = "repeat less, or give the inner part a rule of its own";
  } else if (begins_with("sto") || begins_with("parsed token id")) {
    problem.what = "a number is too large";
    problem.remedy = "write a smaller one";
  } else if (begins_with("expecting ") && at != words.npos) {
    static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"name", "the name of a rule"},
        {"newline or end", "the end of the rule"},
        {"an int", "a number"},
        {"integer", "a number"},
        {"::=", "'::='"}};
    std::string_view wanted = words.substr(10, at - 10);
    for (const auto& [theirs, ours] : kNames) {
      if (wanted == theirs) wanted = ours;
    }
    problem.what =
        NextWord(rest) + " stands where " + std::string(wanted) + " belongs";
  }
  return problem;
}

// Reads the rules as libllama does and looks at them as a whole.
class GrammarCheck {
 public:
  GrammarCheck(const llama_vocab* vocab, const std::string& text)
      : text_(text),
        n_tokens_(static_cast<uint32_t>(llama_vocab_n_tokens(vocab))),
        parser_(vocab) {}

  std::optional<GrammarProblem> Run() {
    const char* rule = text_.c_str() + FirstRule(text_);
    try {
      while (*rule != '\0') {
        const auto begin = static_cast<size_t>(rule - text_.c_str());
        rule = parser_.parse_rule(rule);
        const size_t end = text_.find_first_of(" \t#:", begin);
        const std::string name = text_.substr(begin, end - begin);
        const auto [first, is_new] = definitions_.emplace(name, begin);
        // The parser would silently keep the last.
        if (!is_new) {
          return GrammarProblem{
              begin,
              "rule " + Quoted(name) + " was already defined in line " +
                  std::to_string(LineOf(text_, first->second)),
              "rename or delete one"};
        }
      }
    } catch (const std::exception& problem) {
      return Translate(problem.what(), text_,
                       static_cast<size_t>(rule - text_.c_str()));
    }
    if (auto problem = FindUndefined()) return problem;
    if (auto problem = FindWhatNeverMatches()) return problem;
    // Groups and repetitions of "name" are called "name_17", and '_' is part
    // of no name in the text.
    std::vector<bool> derived(parser_.rules.size());
    for (const auto& [name, id] : parser_.symbol_ids) {
      derived[id] = name.find('_') != name.npos;
    }
    if (const auto problem = FindBadBeginning(parser_.rules, derived)) {
      return Describe(*problem);
    }
    return {};
  }

 private:
  std::optional<GrammarProblem> FindUndefined() const {
    const auto& symbols = parser_.symbol_ids;
    const bool all_defined = std::all_of(
        symbols.begin(), symbols.end(),
        [&](const auto& symbol) { return IsDefined(symbol.second); });
    if (!all_defined) return FirstUseOfUndefined();
    if (symbols.contains("root")) return {};
    return GrammarProblem{0, "has no rule 'root'", "name the first rule so"};
  }

  bool IsDefined(uint32_t rule) const {
    return rule < parser_.rules.size() && !parser_.rules[rule].empty();
  }

  GrammarProblem FirstUseOfUndefined() const {
    bool in_braces = false;  // where numbers look like names
    for (size_t at = 0, end = 0; at < text_.size(); at = end) {
      end = EndOfGrammarItem(text_, at);
      if (text_[at] == '{') in_braces = true;
      if (text_[at] == '}') in_braces = false;
      if (in_braces) continue;
      const std::string item = text_.substr(at, end - at);
      const auto symbol = parser_.symbol_ids.find(item);
      if (symbol == parser_.symbol_ids.end()) continue;
      if (IsDefined(symbol->second)) continue;
      return {at, "rule " + Quoted(item) + " is used but not defined",
              "define it"};
    }
    return {0, "a rule is used but not defined", "define it"};
  }

  // Tokens beyond the vocabulary and ranges from high to low.
  std::optional<GrammarProblem> FindWhatNeverMatches() const {
    for (uint32_t rule = 0; rule < parser_.rules.size(); ++rule) {
      uint32_t previous = 0;
      for (const llama_grammar_element& element : parser_.rules[rule]) {
        const bool is_token = element.type == LLAMA_GRETYPE_TOKEN ||
                              element.type == LLAMA_GRETYPE_TOKEN_NOT;
        if (is_token && element.value >= n_tokens_) {
          return GrammarProblem{
              definitions_.at(NameOf(rule)),
              "rule " + Quoted(NameOf(rule)) + " names token " +
                  std::to_string(element.value) + ", but the model has " +
                  std::to_string(n_tokens_),
              "count from 0, or write the token's text"};
        }
        if (element.type == LLAMA_GRETYPE_CHAR_RNG_UPPER &&
            element.value < previous) {
          return GrammarProblem{
              definitions_.at(NameOf(rule)),
              "rule " + Quoted(NameOf(rule)) +
                  " has a range that ends before it begins (" +
                  CodePoint(previous) + " to " + CodePoint(element.value) + ")",
              "swap its ends"};
        }
        previous = element.value;
      }
    }
    return {};
  }

  GrammarProblem Describe(const BeginningProblem& problem) const {
    using Kind = BeginningProblem::Kind;
    const std::string name = NameOf(problem.rule);
    const size_t offset = definitions_.at(name);
    const std::string rule = "rule " + Quoted(name);
    switch (problem.kind) {
      case Kind::kItself:
        return {offset, rule + " begins with itself (left recursion)",
                "let it begin with what it repeats"};
      case Kind::kEmptyLoop:
        return {offset, rule + " repeats without end what may be empty",
                "let what is repeated take at least one character"};
      case Kind::kEmptyRounds:
        return {offset,
                rule + " repeats more than " + std::to_string(kEmptyRoundsMax) +
                    " times what may be empty",
                "let what is repeated take at least one character"};
      case Kind::kSameCharacter:
        return {offset,
                rule + " may be one and the same character in more than " +
                    std::to_string(kSameCharacterMax) + " ways",
                "let fewer of its parts take the same character"};
      case Kind::kSameRepeated:
        return {offset,
                rule +
                    " repeats without end one and the same character in "
                    "more than " +
                    std::to_string(kSameRepeatedMax) + " ways",
                "let its alternatives take different characters"};
      case Kind::kTooMany:
        return {
            offset,
            rule + " may begin in more than " + std::to_string(kBeginningsMax) +
                " ways",
            "write fewer alternatives, and repeat less of what may be empty"};
    }
    return {};
  }

  // The rule of the text from which the rule was derived.
  std::string NameOf(uint32_t rule) const {
    const auto at =
        std::find_if(parser_.symbol_ids.begin(), parser_.symbol_ids.end(),
                     [&](const auto& symbol) { return symbol.second == rule; });
    return at->first.substr(0, at->first.find('_'));
  }

  const std::string& text_;
  const uint32_t n_tokens_;
  llama_grammar_parser parser_;
  std::map<std::string, size_t> definitions_;  // offsets of rules by name
};

std::optional<GrammarProblem> FindProblem(const llama_vocab* vocab,
                                          const std::string& text) {
  if (text.size() > kBytesMax) {
    return GrammarProblem{0, "longer than 64 KiB", "shorten it"};
  }
  if (const size_t at = text.find('\0'); at != text.npos) {
    return GrammarProblem{at, "contains a NUL byte", "remove it"};
  }
  // The parser would read past the end of a literal.
  if (const size_t at = FindInvalidUtf8(text); at != text.npos) {
    return GrammarProblem{at, "not UTF-8", "save the grammar as UTF-8"};
  }
  if (auto problem = FindCostlyUnfolding(text)) return problem;
  return GrammarCheck(vocab, text).Run();
}

}  // namespace

Status CheckGrammar(const llama_vocab* vocab, const std::string& text,
                    const std::string& name) {
  const auto problem = FindProblem(vocab, text);
  if (!problem) return {};
  return InvalidArgument(name + ":" +
                         std::to_string(LineOf(text, problem->offset)) + ": " +
                         problem->what + "; " + problem->remedy);
}

}  // namespace lkv
