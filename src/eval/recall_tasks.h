// Recall tasks: made texts that state something once, and questions about it
// whose answers are known word for word. What RULER and multi-turn benchmarks
// ask (arXiv 2404.06654), as far as a model of 135M parameters can answer; the
// texts are ours, from a seed, so nothing is downloaded.
//
// A context is read before its questions are known. Every question is a line
// that the model completes; what form an answer has is shown by examples within
// the question where the model needs them, never within the context: so what
// may be evicted is only what is asked for.
//
// Pure; the same seed gives the same text on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lkv {

enum class RecallTask {
  kNeedle,      // one number among sentences
  kMultikey,    // four numbers, each by its key
  kVariable,    // a name for a name for a number: one hop, written out
  kFacts,       // eight facts of different kinds, four questions
  kRepetition,  // lines of random words, each begun again
  kDialogue,    // what the user said in the first turn, asked in the last
};

std::span<const RecallTask> AllRecallTasks();
std::string_view NameOf(RecallTask task);  // "needle"
std::optional<RecallTask> FindRecallTask(std::string_view name);

struct RecallQuestion {
  std::string text;    // follows the context
  std::string answer;  // what the text goes on with, without spaces around it
};

struct RecallExample {
  std::string context;  // ends with a line
  std::vector<RecallQuestion> questions;
};

// The fewest sentences that leave room for what is asked for.
inline constexpr uint32_t kLeastFiller = 8;

// `n_filler` sentences (in a dialogue: turns), kLeastFiller at least, stand
// around what is asked for, about 14 tokens each (38). Everything asked for
// stands behind the first two sentences, which fill the page of the sinks, and
// within the first 85 %; a dialogue states it in its first turn, behind as many
// words. So no policy keeps it anyway, where the rest holds the newest tokens.
RecallExample MakeRecallExample(RecallTask task, uint64_t seed,
                                uint32_t n_filler);

// The fewest sentences or turns of which so many stand behind what is asked for
// that they hold the newest `recent_tokens`, which every policy keeps: 74
// sentences for 128 tokens.
uint32_t LeastFiller(RecallTask task, uint32_t recent_tokens);

// Whether a model's reply begins with the answer and with no longer word or
// number: " 4821.\n" answers "4821", " 48213" does not.
bool AnswersExactly(std::string_view reply, std::string_view answer);

}  // namespace lkv
