// The table of keys: every option a user can set, as data.
//
// Parsing, `lkv config show` and `explain`, the environment names and the table
// in docs/configuration.md all derive from it, so a key is added in one place.
// Defaults are those of CacheOptions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// An enum of CacheOptions; choice i of the key is enumerator i.
struct ChoiceField {
  void (*set)(CacheOptions& options, size_t choice);
  size_t (*get)(const CacheOptions& options);
};

// A number of tokens that may be left open, or be "auto".
struct TokensField {
  std::optional<uint32_t> CacheOptions::*tokens;
  bool CacheOptions::*is_auto;  // nullptr: the key does not offer "auto"
};

// One of the key's choices, or a path that ends in .gguf.
struct FileField {
  std::string CacheOptions::*value;
};

// One of the key's choices, or the path of a file or folder.
struct PathField {
  std::string CacheOptions::*value;
};

// A number of bytes, with a unit.
struct BytesField {
  uint64_t CacheOptions::*n_bytes;
};

// Where a key's value lives. std::monostate: nowhere, the key only chooses
// among names and sets others (preset).
using OptionField =
    std::variant<std::monostate, ChoiceField, FileField, PathField, BytesField,
                 bool CacheOptions::*, uint32_t CacheOptions::*,
                 uint64_t CacheOptions::*, double CacheOptions::*, TokensField,
                 Budget CacheOptions::*>;

struct OptionKey {
  std::string_view name;  // as in YAML; a dot before the key of a group
  std::string_view unit;  // "tokens", "steps", ...; empty: none
  OptionField field;
  std::span<const std::string_view> choices;  // names that it takes
  double min = 0;                             // numbers: both ends allowed
  double max = 0;
  std::string_view doc;       // one line
  std::string_view formula;   // how it works out; empty: nothing to add
  std::string_view if_unset;  // TokensField: what holds while it is open
};

// All keys, in the order in which people should read them.
std::span<const OptionKey> OptionTable();
// nullptr when there is no such key.
const OptionKey* FindOption(std::string_view name);
std::vector<std::string_view> OptionNames();
// Whether there are keys "<name>.<something>".
bool IsOptionGroup(std::string_view name);

// "static | dynamic | hybrid", "1 .. 64", ...
std::string AllowedValues(const OptionKey& key);
// LKV_BASE_WINDOW for base_window, LKV_TIERS_ATTEND for tiers.attend.
std::string EnvironmentName(const OptionKey& key);

// Reads `text` as a value of the key into `options`. kInvalidArgument names
// key, text and allowed values, without a place: the caller knows it.
Status SetOption(const OptionKey& key, std::string_view text,
                 CacheOptions* options);
// The value as SetOption reads it; an open TokensField gives its if_unset.
std::string FormatOption(const OptionKey& key, const CacheOptions& options);
// kInvalidArgument unless every field holds a value that SetOption would take:
// for options that no text was read into.
Status CheckOptions(const CacheOptions& options);

// The table of docs/configuration.md, in Markdown.
std::string OptionTableMarkdown();

}  // namespace lkv
