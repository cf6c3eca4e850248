// Recall: what of a text can still be asked for once its cache was cut down.
//
// Each context of a task (eval/recall_tasks.h) is read as a prompt; then the
// cache is cut to the budget; only then does the model see a question, each on
// a fork of its own, and answers with the most likely tokens. An answer counts
// when it is exact. The full cache answers the same questions, so that policies
// are compared in pairs; a task at which it fails says nothing about them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/context_reading.h"
#include "eval/recall_tasks.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// A task counts only if the full cache answers at least this share of its
// questions right: otherwise the model is too weak for it.
inline constexpr double kLeastFullScore = 0.6;

struct RecallOptions {
  std::vector<RecallTask> tasks;
  std::vector<std::string> policies;  // or `repeat` (policy/repeat_policy.h)
  std::vector<Budget> budgets;        // shares are of context and answer
  // Contexts are as long as whole sentences allow. Of 2,400 tokens an eighth is
  // 300, about the least budget with a choice beside what every policy keeps.
  uint32_t context_tokens = 2400;
  uint32_t contexts_per_task = 8;
  uint32_t answer_tokens = 24;  // an answer ends with its line, or here
  PromptReading reading = PromptReading::kWhole;
  uint64_t seed = 1;
  CacheOptions cache;  // policy and budget are replaced
};

// The answers to the questions of one context.
struct ContextAnswers {
  uint32_t n_questions = 0;
  uint32_t n_right = 0;
  uint32_t n_tokens = 0;  // of all answers
};

// One policy at one budget.
struct RecallRow {
  std::string policy;
  Budget budget;
  std::vector<ContextAnswers> contexts;
};

struct TaskRecall {
  RecallTask task = RecallTask::kNeedle;
  std::vector<ContextAnswers> full;  // with the full cache
  std::vector<RecallRow> rows;       // by budget, then policy
};

// Share of right answers, and their mean length, over the contexts.
struct RecallScore {
  double right = 0;
  double answer_tokens = 0;
  uint32_t n_questions = 0;
};
RecallScore ScoreOf(const std::vector<ContextAnswers>& contexts);

// `progress` (may be empty) is told runs done and all: each reads one context
// under one policy. kInvalidArgument: an unknown policy, a context too short
// for what the tasks ask to stand before the newest tokens, a budget below what
// the policies need.
Result<std::vector<TaskRecall>> MeasureRecall(
    Engine& engine, const RecallOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
