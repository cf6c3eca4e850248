#include "eval/recall.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace lkv {
namespace {

struct TokenizedQuestion {
  std::vector<int32_t> tokens;
  std::string answer;
};

struct TokenizedExample {
  std::vector<int32_t> context;
  std::vector<TokenizedQuestion> questions;

  uint32_t LongestQuestion() const {
    size_t most = 0;
    for (const TokenizedQuestion& question : questions) {
      most = std::max(most, question.tokens.size());
    }
    return static_cast<uint32_t>(most);
  }
};

class Examples {
 public:
  Examples(const Tokenizer& tokenizer, const RecallOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  // The longest of `task` and `seed` that context_tokens hold. Its length grows
  // evenly with the filler, so a few steps find it. kInvalidArgument when that
  // has what is asked for among the newest tokens.
  Result<TokenizedExample> Make(RecallTask task, uint64_t seed) const {
    std::optional<TokenizedExample> best;
    uint32_t low = kLeastFiller;  // what fits, if anything does
    uint32_t high = std::max(options_.context_tokens, low + 1);
    uint32_t n_filler = low;
    while (true) {
      TokenizedExample example =
          TokensOf(MakeRecallExample(task, seed, n_filler));
      const size_t n = example.context.size();
      if (n <= options_.context_tokens) {
        low = n_filler;
        best = std::move(example);
      } else if (n_filler == kLeastFiller) {
        return TooShort(task, seed);
      } else {
        high = n_filler;
      }
      if (high - low == 1) break;
      // Where a text of this many tokens for a sentence would fill the context.
      const auto wanted = static_cast<uint32_t>(uint64_t{n_filler} *
                                                options_.context_tokens / n);
      n_filler = std::clamp(wanted, low + 1, high - 1);
    }
    if (low < LeastFiller(task, options_.cache.recent_tokens)) {
      return TooShort(task, seed);
    }
    return *std::move(best);
  }

 private:
  Status TooShort(RecallTask task, uint64_t seed) const {
    const uint32_t n_recent = options_.cache.recent_tokens;
    const TokenizedExample least =
        TokensOf(MakeRecallExample(task, seed, LeastFiller(task, n_recent)));
    return InvalidArgument(
        "context: " + std::to_string(options_.context_tokens) +
        " tokens are too few for the task " + std::string(NameOf(task)) +
        ", which takes " + std::to_string(least.context.size()) + " to have " +
        std::to_string(n_recent) +
        " newest tokens behind what is asked for; give more or fewer "
        "recent_tokens");
  }

  TokenizedExample TokensOf(const RecallExample& example) const {
    TokenizedExample tokenized;
    tokenized.context =
        tokenizer_.Tokenize(example.context, Tokenizer::Start::kAsTrained,
                            Tokenizer::Special::kAsText);
    for (const RecallQuestion& question : example.questions) {
      tokenized.questions.push_back(
          {tokenizer_.Tokenize(question.text, Tokenizer::Start::kNone,
                               Tokenizer::Special::kAsText),
           question.answer});
    }
    return tokenized;
  }

  const Tokenizer& tokenizer_;
  const RecallOptions& options_;
};

// Asks a fork of `sequence` each question.
Result<ContextAnswers> Ask(Engine& engine, const Sequence& sequence,
                           const TokenizedExample& example,
                           uint32_t answer_tokens,
                           const std::function<bool()>& cancelled) {
  ContextAnswers answers;
  for (const TokenizedQuestion& question : example.questions) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(sequence);
    if (!fork.ok()) return fork.status();
    Turn turn;
    turn.prompt = question.tokens;
    turn.max_new_tokens = answer_tokens;
    const Result<Generation> generation = engine.Continue(
        **fork, turn,
        [](std::string_view text) { return text.find('\n') == text.npos; }, {},
        cancelled);
    if (!generation.ok()) return generation.status();
    if (cancelled && cancelled()) {
      return Cancelled("evaluation: stopped on request");
    }
    ++answers.n_questions;
    if (AnswersExactly(generation->text, question.answer)) ++answers.n_right;
    answers.n_tokens += static_cast<uint32_t>(generation->tokens.size());
  }
  return answers;
}

// All answers to one example: told(b, answers) for each of `budgets`.
Status AskWithin(Engine& engine, const TokenizedExample& example,
                 const ReadingPolicy& policy, std::span<const Budget> budgets,
                 uint32_t answer_tokens,
                 const std::function<void(size_t, ContextAnswers)>& told,
                 const std::function<bool()>& cancelled) {
  return ReadWithinBudgets(
      engine,
      {.tokens = example.context,
       .n_new = example.LongestQuestion() + answer_tokens},
      policy, budgets,
      [&](size_t b, Sequence& sequence) {
        Result<ContextAnswers> answers =
            Ask(engine, sequence, example, answer_tokens, cancelled);
        if (answers.ok()) told(b, *answers);
        return answers.status();
      },
      cancelled);
}

}  // namespace

RecallScore ScoreOf(const std::vector<ContextAnswers>& contexts) {
  RecallScore score;
  uint64_t n_right = 0, n_tokens = 0;
  for (const ContextAnswers& answers : contexts) {
    score.n_questions += answers.n_questions;
    n_right += answers.n_right;
    n_tokens += answers.n_tokens;
  }
  if (score.n_questions == 0) return score;
  const double n = score.n_questions;
  score.right = static_cast<double>(n_right) / n;
  score.answer_tokens = static_cast<double>(n_tokens) / n;
  return score;
}

Result<std::vector<TaskRecall>> MeasureRecall(
    Engine& engine, const RecallOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  Result<std::vector<ReadingPolicy>> policies =
      ReadingPoliciesOf(options.policies, options.cache, options.reading);
  if (!policies.ok()) return policies.status();
  const Examples examples(engine.tokenizer(), options);
  const ReadingPolicy full = KeepingAll(options.cache);
  const Budget everything;
  const uint64_t n_runs = options.tasks.size() * options.contexts_per_task *
                          (1 + uint64_t{policies->size()});
  uint64_t n_done = 0;
  const auto done = [&] {
    ++n_done;
    if (progress) progress(n_done, n_runs);
  };
  std::vector<TaskRecall> report;
  for (RecallTask task : options.tasks) {
    TaskRecall& recall = report.emplace_back();
    recall.task = task;
    for (const Budget& budget : options.budgets) {
      for (const std::string& policy : options.policies) {
        recall.rows.push_back(
            {.policy = policy, .budget = budget, .contexts = {}});
      }
    }
    for (uint32_t i = 0; i < options.contexts_per_task; ++i) {
      const Result<TokenizedExample> example =
          examples.Make(task, options.seed + i);
      if (!example.ok()) return example.status();
      Status status = AskWithin(
          engine, *example, full, {&everything, 1}, options.answer_tokens,
          [&](size_t, ContextAnswers answers) {
            recall.full.push_back(answers);
          },
          cancelled);
      if (!status.ok()) return status;
      done();
      for (size_t p = 0; p < policies->size(); ++p) {
        status = AskWithin(
            engine, *example, (*policies)[p], options.budgets,
            options.answer_tokens,
            [&](size_t b, ContextAnswers answers) {
              recall.rows[b * policies->size() + p].contexts.push_back(answers);
            },
            cancelled);
        if (!status.ok()) return status;
        done();
      }
    }
  }
  return report;
}

}  // namespace lkv
