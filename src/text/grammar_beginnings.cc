#include "text/grammar_beginnings.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace lkv {
namespace {

// Visits every rule once, after all rules that it may begin with.
class Walk {
 public:
  Walk(const llama_grammar_rules& rules, const std::vector<bool>& derived)
      : rules_(rules), derived_(derived), states_(rules.size()) {}

  std::optional<BeginningProblem> Run() {
    for (uint32_t rule = 0; rule < rules_.size() && !problem_; ++rule) {
      if (states_[rule].stage == Stage::kNew) Visit(rule, 0);
    }
    return problem_;
  }

  // After a Run() without a problem.
  bool MayBeEmpty(uint32_t rule) const { return states_[rule].may_be_empty; }
  const std::vector<uint32_t>& order() const { return order_; }

 private:
  enum class Stage { kNew, kOpen, kDone };
  struct RuleState {
    Stage stage = Stage::kNew;
    bool may_be_empty = false;
    uint32_t n_beginnings = 1;
    uint32_t n_empty_rounds = 0;
  };

  void Visit(uint32_t rule, uint32_t depth) {
    RuleState& state = states_[rule];
    state.stage = Stage::kOpen;
    bool at_front = true;  // everything before may be empty
    bool alone = true;     // nothing stands before
    for (const llama_grammar_element& element : rules_[rule]) {
      switch (element.type) {
        case LLAMA_GRETYPE_END:
        case LLAMA_GRETYPE_ALT:
          state.may_be_empty |= at_front;
          at_front = alone = true;
          continue;
        case LLAMA_GRETYPE_RULE_REF:
          if (at_front) at_front = BeginWith(element.value, rule, alone, depth);
          if (at_front && !alone) CountRound(element.value, rule);
          break;
        default:
          if (at_front) CountBeginnings(1, rule);
          at_front = false;
      }
      if (problem_) return;
      alone = false;
    }
    state.stage = Stage::kDone;
    order_.push_back(rule);
  }

  // Adds the beginnings of `first` to those of `rule`; true when `first` may
  // be empty, so that what follows it also begins `rule`.
  bool BeginWith(uint32_t first, uint32_t rule, bool alone, uint32_t depth) {
    using Kind = BeginningProblem::Kind;
    if (states_[first].stage == Stage::kOpen) {
      // A repetition without end is a rule that goes on with itself.
      const bool loops = first == rule && !alone;
      problem_ = {loops ? Kind::kEmptyLoop : Kind::kItself, first};
      return false;
    }
    if (states_[first].stage == Stage::kNew && depth < kBeginningsMax) {
      Visit(first, depth + 1);
      if (problem_) return false;
    }
    CountBeginnings(states_[first].n_beginnings, rule);
    if (depth >= kBeginningsMax) problem_ = {Kind::kTooMany, rule};
    return states_[first].may_be_empty;
  }

  void CountBeginnings(uint32_t n_more, uint32_t rule) {
    uint32_t& n = states_[rule].n_beginnings;
    n += n_more;
    if (n > kBeginningsMax) problem_ = {BeginningProblem::Kind::kTooMany, rule};
  }

  // {0,n} becomes a chain of n rules, each an item and the next shorter rule.
  // Such chains in the text itself are not counted: of n optional members of a
  // JSON object they are usual, and harmless as the members differ.
  void CountRound(uint32_t shorter, uint32_t rule) {
    if (problem_ || !derived_[rule] || !derived_[shorter]) return;
    uint32_t& n = states_[rule].n_empty_rounds;
    n = std::max(n, states_[shorter].n_empty_rounds + 1);
    if (n >= kEmptyRoundsMax) {
      problem_ = {BeginningProblem::Kind::kEmptyRounds, rule};
    }
  }

  const llama_grammar_rules& rules_;
  const std::vector<bool>& derived_;
  std::vector<RuleState> states_;
  std::vector<uint32_t> order_;  // of rules, each after those it begins with
  std::optional<BeginningProblem> problem_;
};

// Whether the class that begins at `element` takes `character`.
bool Takes(const llama_grammar_element* element, uint32_t character) {
  if (element->type == LLAMA_GRETYPE_CHAR_ANY) return true;
  const bool wanted = element->type == LLAMA_GRETYPE_CHAR;
  do {
    const bool is_range = element[1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER;
    const uint32_t upper = element[is_range ? 1 : 0].value;
    if (element->value <= character && character <= upper) return wanted;
    element += is_range ? 2 : 1;
  } while (element->type == LLAMA_GRETYPE_CHAR_ALT);
  return !wanted;
}

// In how many ways a rule may be one and the same character. These are what
// makes libllama slow: all end in the same state, and libllama goes on from
// there once for each. Alternatives that merely begin alike soon part.
class SameCharacter {
 public:
  SameCharacter(const llama_grammar_rules& rules, const Walk& walk)
      : rules_(rules), walk_(walk), n_ways_(rules.size()) {
    // The most ways meet where some class begins: at one of its lower ends,
    // or behind what it excludes.
    std::set<uint32_t> starts = {0};
    for (const llama_grammar_rule& rule : rules) {
      for (const llama_grammar_element& element : rule) {
        if (element.type < LLAMA_GRETYPE_CHAR ||
            element.type > LLAMA_GRETYPE_CHAR_ALT) {
          continue;
        }
        if (starts.size() + 1 >= kCharactersMax) break;
        starts.insert({element.value, element.value + 1});
      }
    }
    characters_.assign(starts.begin(), starts.end());
  }

  std::optional<BeginningProblem> Run() {
    using Kind = BeginningProblem::Kind;
    for (const uint32_t rule : walk_.order()) {
      const bool repeats = CountRule(rule);
      const auto most =
          std::max_element(n_ways_[rule].begin(), n_ways_[rule].end());
      if (most == n_ways_[rule].end()) continue;
      if (repeats && *most > kSameRepeatedMax) {
        return BeginningProblem{Kind::kSameRepeated, rule};
      }
      if (*most > kSameCharacterMax) {
        return BeginningProblem{Kind::kSameCharacter, rule};
      }
    }
    return {};
  }

 private:
  // Of a grammar with more, the first are looked at. Bounds the memory: 64 MiB
  // for the 256 Ki rules that a text may unfold to.
  static constexpr size_t kCharactersMax = 256;

  using Element = llama_grammar_element;

  // True when the rule goes on with itself.
  bool CountRule(uint32_t rule) {
    bool repeats = false;
    const Element* begin = rules_[rule].data();
    for (const Element& element : rules_[rule]) {
      if (element.type != LLAMA_GRETYPE_END &&
          element.type != LLAMA_GRETYPE_ALT) {
        continue;
      }
      repeats |= CountAlternative(begin, &element, rule);
      begin = &element + 1;
    }
    return repeats;
  }

  bool CountAlternative(const Element* begin, const Element* end,
                        uint32_t rule) {
    bool repeats = false;
    const Element* needed = nullptr;  // the one item that may not be empty
    for (const Element* item = begin; item < end; ++item) {
      if (item->type == LLAMA_GRETYPE_CHAR_ALT ||
          item->type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
        continue;  // belongs to the item before
      }
      if (item->type == LLAMA_GRETYPE_RULE_REF) {
        if (item->value == rule) repeats = true;
        if (item->value == rule || walk_.MayBeEmpty(item->value)) continue;
      }
      if (needed != nullptr) return repeats;  // longer than one character
      needed = item;
    }
    if (needed != nullptr) {
      AddItem(*needed, rule);
      return repeats;
    }
    // Any one of the items may be the character and the others empty.
    for (const Element* item = begin; item < end; ++item) AddItem(*item, rule);
    return repeats;
  }

  void AddItem(const Element& item, uint32_t rule) {
    std::vector<uint8_t>& n_ways = n_ways_[rule];
    switch (item.type) {
      case LLAMA_GRETYPE_CHAR:
      case LLAMA_GRETYPE_CHAR_NOT:
      case LLAMA_GRETYPE_CHAR_ANY:
        n_ways.resize(characters_.size());
        for (size_t i = 0; i < characters_.size(); ++i) {
          if (Takes(&item, characters_[i])) Add(1, &n_ways[i]);
        }
        break;
      case LLAMA_GRETYPE_RULE_REF: {
        const std::vector<uint8_t>& more = n_ways_[item.value];
        if (!more.empty()) n_ways.resize(characters_.size());
        for (size_t i = 0; i < more.size(); ++i) Add(more[i], &n_ways[i]);
        break;
      }
      default:
        break;  // a token, which stands for itself
    }
  }

  // Stops where all counts are too many.
  static void Add(uint8_t n_more, uint8_t* n) {
    *n = static_cast<uint8_t>(
        std::min<uint32_t>(*n + n_more, kSameCharacterMax + 1));
  }

  const llama_grammar_rules& rules_;
  const Walk& walk_;
  std::vector<uint32_t> characters_;
  std::vector<std::vector<uint8_t>> n_ways_;  // [rule][character], or empty
};

}  // namespace

std::optional<BeginningProblem> FindBadBeginning(
    const llama_grammar_rules& rules, const std::vector<bool>& derived) {
  Walk walk(rules, derived);
  if (const auto problem = walk.Run()) return problem;
  return SameCharacter(rules, walk).Run();
}

}  // namespace lkv
