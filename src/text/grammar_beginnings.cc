#include "text/grammar_beginnings.h"

#include <algorithm>

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
          if (problem_) return;
          break;
        default:
          at_front = false;
      }
      alone = false;
    }
    state.stage = Stage::kDone;
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
    uint32_t& n = states_[rule].n_beginnings;
    n += states_[first].n_beginnings;
    if (n > kBeginningsMax || depth >= kBeginningsMax) {
      problem_ = {Kind::kTooMany, rule};
    }
    return states_[first].may_be_empty;
  }

  // {0,n} becomes a chain of n rules, each an item and the next shorter rule.
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
  std::optional<BeginningProblem> problem_;
};

}  // namespace

std::optional<BeginningProblem> FindBadBeginning(
    const llama_grammar_rules& rules, const std::vector<bool>& derived) {
  return Walk(rules, derived).Run();
}

}  // namespace lkv
