#include "options/option_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>

#include "base/printable_text.h"
#include "options/budget_text.h"
#include "options/suggestion.h"

namespace lkv {
namespace {

using Words = std::string_view;

// Each list is in the order of its enum in lookaheadkv/options.h.
constexpr std::array kPolicies = std::to_array<Words>(
    {"full", "lookahead", "ema", "lru", "lfu", "fifo", "streaming", "h2o",
     "observed", "tova", "snapkv", "expected_attention", "repeat", "random"});
constexpr std::array kStrategies =
    std::to_array<Words>({"static", "dynamic", "hybrid"});
constexpr std::array kLaws = std::to_array<Words>({"symmetric", "source"});
constexpr std::array kRules =
    std::to_array<Words>({"score_threshold", "size_aware"});
constexpr std::array kScores =
    std::to_array<Words>({"output_error", "value_norm"});
constexpr std::array kMetrics = std::to_array<Words>({"js", "kl"});
constexpr std::array kKvTypes = std::to_array<Words>({"f16", "bf16", "int8"});
constexpr std::array kPredictors = std::to_array<Words>({"auto", "mlp", "ema"});
constexpr std::array kSpreads =
    std::to_array<Words>({"auto", "equal", "mass", "score"});
constexpr std::array kReadings = std::to_array<Words>({"budget", "whole"});
constexpr std::array kUnits = std::to_array<Words>({"page", "repack"});
constexpr std::array kDurabilities =
    std::to_array<Words>({"none", "session", "always"});
constexpr std::array kAutoPath = std::to_array<Words>({"auto"});
constexpr std::array kNoPath = std::to_array<Words>({"none"});
constexpr std::array kPresets =
    std::to_array<Words>({"none", "chat", "code", "long_document", "agent"});

constexpr std::string_view kPredictorSuffix = ".gguf";

// The longest context that any key may speak of: 2^24 tokens.
constexpr double kMostTokens = 16777216;

template <auto kMember>
ChoiceField Choice() {
  return {[](CacheOptions& options, size_t choice) {
            using Enum = std::remove_reference_t<decltype(options.*kMember)>;
            options.*kMember = static_cast<Enum>(choice);
          },
          [](const CacheOptions& options) {
            return static_cast<size_t>(options.*kMember);
          }};
}

// Without this, every entry would have to spell all fields.
OptionKey Key(Words name, Words unit, OptionField field, Words doc,
              Words formula = {}) {
  OptionKey key;
  key.name = name;
  key.unit = unit;
  key.field = field;
  key.doc = doc;
  key.formula = formula;
  return key;
}

OptionKey Among(std::span<const Words> choices, OptionKey key) {
  key.choices = choices;
  return key;
}

OptionKey Between(double min, double max, OptionKey key) {
  key.min = min;
  key.max = max;
  return key;
}

OptionKey Open(Words if_unset, OptionKey key) {
  key.if_unset = if_unset;
  return Between(1, kMostTokens, key);
}

std::vector<OptionKey> MakeTable() {
  using O = CacheOptions;
  return {
      Key("enabled", "", &O::enabled, "Whether anything is ever evicted",
          "false: policy full, budget full, whatever else is set"),
      Among(kPresets, Key("preset", "", std::monostate(),
                          "Values for a kind of work, under those set by hand",
                          "lkv config presets lists what each one sets")),
      Key("budget", "", &O::budget,
          "Most memory the KV cache of one sequence may take",
          "25% = 0.25 * (prompt + new tokens) * bytes per token; payload and "
          "metadata count, so 512 holds some 5 to 10 % fewer tokens; a hard "
          "cap, prefill included (unless `read` is whole)"),
      Among(kPolicies, Key("policy", "", Choice<&O::policy>(),
                           "Which cached tokens to keep. expected_attention "
                           "also notes how queries spread, in the bytes of 33 "
                           "tokens and more for each query head of a KV head")),
      Among(kKvTypes, Key("kv_type", "", Choice<&O::kv_type>(),
                          "Element type of cached keys and values",
                          "int8 holds nearly twice the tokens of f16 in the "
                          "same bytes; sinks stay f16")),
      Among(kStrategies,
            Key("window_strategy", "", Choice<&O::window_strategy>(),
                "How the number of tokens worth keeping changes",
                "static: base_window; dynamic: window_law at every step; "
                "hybrid: dynamic up to (prompt + new tokens) / 2, then "
                "fixed")),
      Among(kLaws,
            Key("window_law", "", Choice<&O::window_law>(),
                "How a change of attention pattern moves the window",
                "symmetric: base * 4^(2 sigma(20 (change - threshold)) - 1); "
                "source: base * (1 + sigma(change - threshold)), as the "
                "design sketch had it that this project grew out of")),
      Open("the budget",
           Key("base_window", "tokens",
               TokensField{&O::base_window_tokens, &O::base_window_auto},
               "Tokens to keep at an ordinary rate of change",
               "auto = max(1024, 0.25 * longest sequence)")),
      Open("the budget",
           Key("max_window", "tokens",
               TokensField{&O::max_window_tokens, &O::max_window_auto},
               "Upper end of the window, and where it starts",
               "auto = min(half the memory / bytes per token, "
               "1.5 * base_window)")),
      Open("base_window / 4", Key("min_window", "tokens",
                                  TokensField{&O::min_window_tokens, nullptr},
                                  "Lower end of the window")),
      Among(kMetrics,
            Key("change_metric", "", Choice<&O::change_metric>(),
                "Distance between recent and older attention",
                "js: Jensen-Shannon, 0 .. ln 2; kl: Kullback-Leibler, no "
                "upper end")),
      Between(0, 100,
              Key("change_threshold", "nats", &O::change_threshold,
                  "Change of pattern that leaves the window at base_window")),
      Between(0, 0.999,
              Key("change_smoothing", "", &O::change_smoothing,
                  "Weight of the old value when the change is smoothed",
                  "change = s * old + (1 - s) * new")),
      Between(0, 65536,
              Key("dwell_steps", "steps", &O::dwell_steps,
                  "Steps a window stays before it may move again")),
      Among(kRules,
            Key("eviction_policy", "", Choice<&O::eviction_rule>(),
                "What leaves when the window is exceeded",
                "score_threshold: all below score_threshold, then the lowest; "
                "size_aware: the lowest score per byte")),
      Among(kScores,
            Key("score", "", Choice<&O::score>(),
                "What a token is worth, from its predicted attention a",
                "output_error: a / (1 - a) * |v - o|; value_norm: |v| * a")),
      Between(
          0, 100,
          Key("score_threshold", "percentile", &O::score_threshold_percentile,
              "Scores below this percentile leave first",
              "turned into a score at the end of warm-up, then frozen")),
      Among(kPredictors,
            Key("predictor", "", FileField{&O::predictor},
                "What forecasts attention",
                "ema: moving average of seen attention, half-life "
                "8 * prediction_steps tokens; mlp: also a network trained for "
                "the model (`lkv train`); auto: mlp where there is one")),
      Between(1, 64,
              Key("prediction_steps", "steps", &O::prediction_steps,
                  "How far ahead attention is predicted",
                  "chat 4 .. 6, code 8 .. 12")),
      Between(0, 1,
              Key("temporal_decay", "", &O::temporal_decay,
                  "Weight of each further step ahead, for score value_norm",
                  "a = sum of decay^t a_t / sum of decay^t; no effect while "
                  "predictor ema forecasts the same a for every step")),
      Between(0, kMostTokens,
              Key("warmup_tokens", "tokens", &O::warmup_tokens,
                  "Length before which the window evicts nothing",
                  "the budget holds during warm-up too")),
      Between(0, 65536,
              Key("sink_tokens", "tokens", &O::sink_tokens,
                  "First tokens, which never leave")),
      Between(0, kMostTokens,
              Key("recent_tokens", "tokens", &O::recent_tokens,
                  "Newest tokens, which never leave")),
      Between(0, 1024,
              Key("dense_layers", "layers", &O::dense_layers,
                  "First layers that keep everything, inside the budget")),
      Key("pin_system", "", &O::pin_system,
          "Whether system prompt and chat markers never leave"),
      Among(kReadings,
            Key("read", "", Choice<&O::reading>(),
                "When a sequence's first prompt is cut down to the budget",
                "budget: while it is read, so that the budget holds at every "
                "moment; whole: once it has been read, which predicts far "
                "better and takes the memory of the full cache meanwhile. "
                "Policy repeat reads it whole, twice")),
      Among(kSpreads,
            Key("lane_spread", "", Choice<&O::lane_spread>(),
                "How layers and KV heads share the budget",
                "auto: score for lookahead, ema and repeat, equal for others; "
                "mass: by "
                "the attention their contestable tokens get, which "
                "keeps more of it but predicts worse; score: as many as each "
                "has of the highest scores of all, set when a prompt is cut "
                "down")),
      Among(kUnits,
            Key("unit", "", Choice<&O::unit>(), "What leaves at once",
                "page: 16 tokens of one layer and KV head; repack: the lowest "
                "tokens of some pages, what stays shares fewer pages (1.6 % "
                "of f16 for the positions)")),
      Key("tiers.enabled", "", &O::tiers,
          "Whether what leaves stays within reach in a coarser form; other "
          "keys "
          "of tiers switch it on, too",
          "a copy in 4 bits of every token, 28 % of f16, inside the budget; "
          "whole pages leave then"),
      Between(0, 1,
              Key("tiers.attend", "share", &O::attend_share,
                  "Share of the tokens that have left which a decoded token "
                  "reads in full",
                  "chosen for each query from the upper two bits of the "
                  "copies' keys")),
      Key("guard.enabled", "", &O::guard,
          "Whether more of what has left is read where too much attention "
          "would be left out",
          "one layer every guard.sample_steps steps reads what is left out, "
          "too; past guard.max_recall_gap tiers.attend grows by half, up to "
          "three times, then predictor ema serves, then all is read"),
      Between(1, 65536,
              Key("guard.sample_steps", "steps", &O::guard_sample_steps,
                  "Decode steps between two samples")),
      Between(0, 1,
              Key("guard.max_recall_gap", "share", &O::max_recall_gap,
                  "Attention that may be left out, on average",
                  "total variation between attention over everything and over "
                  "what was read")),
      Among(kAutoPath,
            Key("sessions.path", "", PathField{&O::sessions_path},
                "Folder in which sessions are kept",
                "auto: lookaheadkv/sessions in $XDG_STATE_HOME, or in "
                "~/.local/state; made with mode 0700")),
      Between(1 << 20, 1ull << 50,
              Key("sessions.bytes", "", BytesField{&O::sessions_bytes},
                  "Most disk space of that folder",
                  "the sessions used longest ago make room; 1 GiB of the disk "
                  "stays free")),
      Among(kDurabilities,
            Key("sessions.durability", "", Choice<&O::sessions_durability>(),
                "What saving a session waits for",
                "none: nothing, a crash of the machine may spoil it, which is "
                "noticed; session: the disk; always: the disk, and a chat is "
                "saved after every turn")),
      Between(0, 36500,
              Key("sessions.keep_days", "days", &O::sessions_keep_days,
                  "Days without use after which a session is removed",
                  "0: it is kept until space is needed")),
      Among(kNoPath,
            Key("sessions.key_file", "", PathField{&O::sessions_key_file},
                "File of 32 random bytes, mode 0600, that seals sessions",
                "AES-256-GCM; none: whoever may read the files can read the "
                "texts")),
      Between(0, 4294967295.0,
              Key("seed", "", &O::seed,
                  "Seed of sampling and of the random policy")),
  };
}

// Numbers without the trailing zeros of "%f".
std::string FormatNumber(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                 value, std::chars_format::general);
  return value == std::floor(value) && std::abs(value) < 1e15
             ? std::to_string(static_cast<int64_t>(value))
             : std::string(buffer.data(), end.ptr);
}

Status BadValue(const OptionKey& key, std::string_view text) {
  std::string message =
      std::string(key.name) + " does not take " + Quoted(text) + "; ";
  const std::string_view nearest = NearestWord(text, key.choices);
  if (!nearest.empty()) {
    message += "did you mean '" + std::string(nearest) + "'? ";
  }
  return InvalidArgument(message + "allowed: " + AllowedValues(key));
}

// The number in `text` when it is one of the key's range.
template <typename Number>
std::optional<Number> ParseNumber(const OptionKey& key, std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  // Written so that NaN fails.
  const auto wide = static_cast<double>(value);
  if (!(wide >= key.min && wide <= key.max)) return std::nullopt;
  return value;
}

// Reads a value into the field it belongs to; one overload per kind of field.
struct FieldReader {
  const OptionKey& key;
  std::string_view text;
  CacheOptions* options;

  std::optional<size_t> FindChoice() const {
    const auto at = std::find(key.choices.begin(), key.choices.end(), text);
    if (at == key.choices.end()) return std::nullopt;
    return static_cast<size_t>(at - key.choices.begin());
  }

  Status operator()(std::monostate) const {
    return FindChoice() ? Status() : BadValue(key, text);
  }
  Status operator()(const ChoiceField& field) const {
    const auto choice = FindChoice();
    if (!choice) return BadValue(key, text);
    field.set(*options, *choice);
    return {};
  }
  Status operator()(const FileField& field) const {
    if (!FindChoice() && !text.ends_with(kPredictorSuffix)) {
      return BadValue(key, text);
    }
    options->*field.value = text;
    return {};
  }
  Status operator()(const PathField& field) const {
    if (text.empty() || text.find('\0') != text.npos) {
      return BadValue(key, text);
    }
    options->*field.value = text;
    return {};
  }
  Status operator()(const BytesField& field) const {
    const auto budget = ParseBudget(text);
    if (!budget.ok() || budget->kind != Budget::Kind::kBytes) {
      return BadValue(key, text);
    }
    const auto n_bytes = static_cast<double>(budget->amount);
    if (n_bytes < key.min || n_bytes > key.max) return BadValue(key, text);
    options->*field.n_bytes = budget->amount;
    return {};
  }
  Status operator()(bool CacheOptions::*field) const {
    if (text != "true" && text != "false") return BadValue(key, text);
    options->*field = text == "true";
    return {};
  }
  template <typename Number>
  Status operator()(Number CacheOptions::*field) const {
    const auto value = ParseNumber<Number>(key, text);
    if (!value) return BadValue(key, text);
    options->*field = *value;
    return {};
  }
  Status operator()(const TokensField& field) const {
    const bool is_auto = field.is_auto != nullptr && text == "auto";
    const auto tokens =
        is_auto ? std::nullopt : ParseNumber<uint32_t>(key, text);
    if (!is_auto && !tokens) return BadValue(key, text);
    options->*field.tokens = tokens;
    if (field.is_auto != nullptr) options->*field.is_auto = is_auto;
    return {};
  }
  Status operator()(Budget CacheOptions::*field) const {
    auto budget = ParseBudget(text);
    if (!budget.ok()) return budget.status();
    options->*field = *budget;
    return {};
  }
};

struct FieldWriter {
  const OptionKey& key;
  const CacheOptions& options;

  std::string operator()(std::monostate) const {
    return std::string(key.choices.front());
  }
  std::string operator()(const ChoiceField& field) const {
    const size_t choice = field.get(options);
    return choice < key.choices.size() ? std::string(key.choices[choice])
                                       : std::to_string(choice);
  }
  std::string operator()(const FileField& field) const {
    return options.*field.value;
  }
  std::string operator()(const PathField& field) const {
    return options.*field.value;
  }
  std::string operator()(const BytesField& field) const {
    return FormatBudget(
        {.kind = Budget::Kind::kBytes, .amount = options.*field.n_bytes});
  }
  std::string operator()(bool CacheOptions::*field) const {
    return options.*field ? "true" : "false";
  }
  template <typename Number>
  std::string operator()(Number CacheOptions::*field) const {
    return FormatNumber(static_cast<double>(options.*field));
  }
  std::string operator()(const TokensField& field) const {
    if (field.is_auto != nullptr && options.*field.is_auto) return "auto";
    const auto& tokens = options.*field.tokens;
    return tokens ? std::to_string(*tokens) : std::string(key.if_unset);
  }
  std::string operator()(Budget CacheOptions::*field) const {
    return FormatBudget(options.*field);
  }
};

// A '|' would end the cell.
std::string Cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::span<const OptionKey> OptionTable() {
  static const std::vector<OptionKey> table = MakeTable();
  return table;
}

const OptionKey* FindOption(std::string_view name) {
  const auto table = OptionTable();
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const auto& k) { return k.name == name; });
  return at == table.end() ? nullptr : &*at;
}

std::vector<std::string_view> OptionNames() {
  std::vector<std::string_view> names;
  for (const OptionKey& key : OptionTable()) names.push_back(key.name);
  return names;
}

bool IsOptionGroup(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  const auto table = OptionTable();
  return std::any_of(table.begin(), table.end(), [&](const OptionKey& key) {
    return key.name.starts_with(prefix);
  });
}

std::string AllowedValues(const OptionKey& key) {
  if (!key.choices.empty()) {
    std::string list;
    for (std::string_view choice : key.choices) {
      if (!list.empty()) list += " | ";
      list += choice;
    }
    if (std::holds_alternative<FileField>(key.field)) {
      list += " | a path ending in " + std::string(kPredictorSuffix);
    }
    if (std::holds_alternative<PathField>(key.field)) list += " | a path";
    return list;
  }
  if (std::holds_alternative<bool CacheOptions::*>(key.field)) {
    return "true | false";
  }
  if (std::holds_alternative<Budget CacheOptions::*>(key.field)) {
    return std::string(kBudgetForms);
  }
  if (std::holds_alternative<BytesField>(key.field)) {
    const auto text = [](double n) {
      return FormatBudget(
          {.kind = Budget::Kind::kBytes, .amount = static_cast<uint64_t>(n)});
    };
    return text(key.min) + " .. " + text(key.max);
  }
  const std::string range =
      FormatNumber(key.min) + " .. " + FormatNumber(key.max);
  const auto* tokens = std::get_if<TokensField>(&key.field);
  return tokens && tokens->is_auto ? range + ", or auto" : range;
}

std::string EnvironmentName(const OptionKey& key) {
  std::string name = "LKV_";
  for (char c : key.name) {
    if (c == '.') {
      name += '_';
    } else {
      name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  return name;
}

Status SetOption(const OptionKey& key, std::string_view text,
                 CacheOptions* options) {
  return std::visit(FieldReader{key, text, options}, key.field);
}

std::string FormatOption(const OptionKey& key, const CacheOptions& options) {
  return std::visit(FieldWriter{key, options}, key.field);
}

Status CheckOptions(const CacheOptions& options) {
  for (const OptionKey& key : OptionTable()) {
    if (std::holds_alternative<std::monostate>(key.field)) continue;
    const std::string text = FormatOption(key, options);
    if (text == key.if_unset) continue;
    CacheOptions read;
    if (Status s = SetOption(key, text, &read); !s.ok()) return s;
  }
  return {};
}

std::string OptionTableMarkdown() {
  std::string out =
      "| key | default | allowed | unit | meaning |\n|---|---|---|---|---|\n";
  for (const OptionKey& key : OptionTable()) {
    std::string meaning(key.doc);
    if (!key.formula.empty()) meaning += ". " + std::string(key.formula);
    out += "| `" + std::string(key.name) + "` | " +
           FormatOption(key, CacheOptions()) + " | " +
           Cell(AllowedValues(key)) + " | " + std::string(key.unit) + " | " +
           Cell(meaning) + " |\n";
  }
  return out;
}

}  // namespace lkv
