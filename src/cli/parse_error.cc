#include "cli/parse_error.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/printable_text.h"
#include "options/option_table.h"
#include "options/suggestion.h"

namespace lkv::cli {
namespace {

// The first word that stands where a verb belongs and is none; empty when the
// error is of another kind.
std::string WrongVerb(const CLI::App& verb, const CLI::ParseError& error) {
  if (error.get_name() != "RequiredError") return {};
  const std::vector<std::string> words = verb.remaining();
  return words.empty() ? std::string() : words.front();
}

// CLI11's words in ours. What a user typed stands in some of them, so the kind
// of error decides which words they are.
std::string WordsOf(const CLI::ParseError& error) {
  const std::string kind = error.get_name();
  std::string words = error.what();
  if (kind == "ExcludesError") {
    constexpr std::string_view kExcludes = " excludes ";
    const size_t at = words.find(kExcludes);
    if (at == words.npos) return words;
    return words.substr(0, at) + ": cannot stand beside " +
           words.substr(at + kExcludes.size());
  }
  if (kind == "ConversionError") {
    // "Could not convert: --temp = cold"
    const size_t colon = words.find(": ");
    const size_t equals = words.find(" = ");
    if (colon == words.npos || equals == words.npos) return words;
    return words.substr(colon + 2, equals - colon - 2) + ": " +
           Quoted(words.substr(equals + 3)) + " is no number that it takes";
  }
  if (kind == "ArgumentMismatch") {
    constexpr std::string_view kTwice = ": At Most 1 required but received ";
    if (const size_t at = words.find(kTwice); at != words.npos) {
      return words.substr(0, at) + ": given " +
             words.substr(at + kTwice.size()) + " times, give it once";
    }
    if (const size_t at = words.find(": 1 required "); at != words.npos) {
      return words.substr(0, at) + ": stands without its value";
    }
    constexpr std::string_view kValue = " was given a disallowed flag override";
    if (const size_t at = words.find(kValue); at != words.npos) {
      return "--" + words.substr(0, at) + ": takes no value";
    }
  }
  if (kind == "RequiredError") {
    if (const size_t at = words.find(" is required"); at != words.npos) {
      return words.substr(0, at) + ": is missing";
    }
  }
  return words;
}

std::vector<std::string> LongOptionsOf(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

// "unknown option '--bugdet'; did you mean '--budget'?" for the first word that
// the verb has no place for.
std::string ExplainExtraWord(const CLI::App& verb) {
  const std::vector<std::string> words = verb.remaining();
  const auto at = std::find_if(
      words.begin(), words.end(),
      [](const std::string& word) { return word.starts_with('-'); });
  const std::string see_help = "; " + PathOf(verb) + " -h shows what it takes";
  if (at == words.end()) {
    return Quoted(words.front()) + " stands where nothing belongs" + see_help;
  }
  const std::string word = at->substr(0, at->find('='));
  const std::string problem = "unknown option " + Quoted(word);
  if (!word.starts_with("--")) return problem + see_help;
  const std::vector<std::string> names = LongOptionsOf(verb);
  const bool takes_keys =
      std::find(names.begin(), names.end(), "--set") != names.end();
  std::string key = word.substr(2);
  std::replace(key.begin(), key.end(), '-', '_');
  if (takes_keys && FindOption(key) != nullptr) {
    return problem + "; write --set " + key + "=VALUE";
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view nearest = NearestWord(word, known);
  if (nearest.empty()) return problem + see_help;
  return problem + "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace

const CLI::App& DeepestVerb(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? app : DeepestVerb(*verbs.front());
}

std::string PathOf(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return "lkv";
  return PathOf(*verb.get_parent()) + " " + verb.get_name();
}

Status ExplainParseError(const CLI::App& app, const CLI::ParseError& error) {
  const bool has_extra_words =
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // Words before a verb belong to the one above it.
  const CLI::App& verb =
      has_extra_words && !app.remaining().empty() ? app : DeepestVerb(app);
  const std::string path = PathOf(verb);
  const std::string thing =
      (path == "lkv" ? "command line" : path.substr(4)) + ": ";
  if (has_extra_words && !verb.remaining().empty()) {
    return InvalidArgument(thing + ExplainExtraWord(verb));
  }
  const std::string wrong = WrongVerb(verb, error);
  if (wrong.empty()) {
    return InvalidArgument(thing + WordsOf(error) + "; " + path +
                           " -h shows what it takes");
  }
  if (wrong.starts_with('-')) {
    return InvalidArgument(thing + ExplainExtraWord(verb));
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : verb.get_subcommands({})) {
    names.push_back(sub->get_name());
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view nearest = NearestWord(wrong, known);
  return InvalidArgument(
      thing + "unknown verb " + Quoted(wrong) + "; " +
      (nearest.empty() ? path + " -h lists them"
                       : "did you mean '" + std::string(nearest) + "'?"));
}

}  // namespace lkv::cli
