#include "eval/demo.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/types.h"
#include "eval/forced_run.h"
#include "eval/full_cache.h"
#include "eval/hit_rate.h"
#include "options/option_table.h"

namespace lkv {
namespace {

// Residency is logged at every 8th step: 32 samples of 90 lanes.
constexpr uint32_t kSampleEvery = 8;
// Most tokens whose predictions are kept for comparison: 256 rows of 49,152
// logits are 50 MB for each policy.
constexpr uint32_t kComparedTokens = 256;
// Below this a text says nothing about policies.
constexpr uint32_t kMinForcedTokens = 8;

// Predictions of one run before every n-th token.
class LogitsLog {
 public:
  LogitsLog(size_t vocab_size, uint32_t n_steps)
      : vocab_size_(vocab_size), every_(CeilDiv(n_steps, kComparedTokens)) {
    logits_.reserve((n_steps / every_ + 1) * vocab_size_);
  }

  uint32_t every() const { return every_; }
  // Requires calls for steps 0, 1, ...
  void Add(uint32_t step, std::span<const float> logits) {
    if (step % every_ != 0) return;
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  std::span<const float> row(uint32_t step) const {
    return {logits_.data() + step / every_ * vocab_size_, vocab_size_};
  }

 private:
  size_t vocab_size_;
  uint32_t every_;
  std::vector<float> logits_;
};

class Demo {
 public:
  Demo(Engine& engine, const DemoOptions& options,
       const std::function<void(const DemoProgress&)>& progress,
       const std::function<bool()>& cancelled)
      : engine_(engine),
        options_(options),
        progress_(progress),
        cancelled_(cancelled),
        shape_(engine.architecture().kv_shape()) {
    for (PolicyName policy : options.policies) AddContestant(policy);
  }

  Result<DemoReport> Run();

 private:
  // One policy's run and what is needed to judge it afterwards.
  struct PolicyRun {
    PolicyRun(const KvShape& shape, size_t vocab_size, uint32_t n_steps)
        : residency(shape), predictions(vocab_size, n_steps) {}
    DemoRow row;
    ResidencyLog residency;
    LogitsLog predictions;
    FidelityMeter fidelity;
  };

  void AddContestant(PolicyName policy);
  Status SplitText();
  // Leaves the prompt empty when no question can be asked.
  Status PrepareQuestion();
  // Admits every sequence to come, so that what cannot be is refused at once.
  Status CheckAdmission();
  Result<std::unique_ptr<PolicyRun>> RunPolicy(const CacheOptions& cache);
  // The run that keeps everything: fills hits and fidelity of all others.
  Status RunShadow(std::span<const std::unique_ptr<PolicyRun>> runs);
  Status AnswerQuestion(const CacheOptions& cache, DemoRow* row);

  Request QuestionFor(const CacheOptions& cache) const {
    Request request = question_;
    request.cache = cache;
    return request;
  }
  CacheOptions OptionsOf(PolicyName policy) const {
    CacheOptions cache = options_.cache;
    cache.policy = policy;
    return cache;
  }
  CacheOptions FullOptions() const { return FullCacheOf(options_.cache); }
  // Tokens of the sequence that is running now.
  void Report(uint64_t n_done) const {
    if (progress_) progress_({under_way_, n_finished_ + n_done, n_total_});
  }
  void BeginRun(std::string what) {
    under_way_ = std::move(what);
    Report(0);
  }
  void EndRun(uint64_t n_tokens) { n_finished_ += n_tokens; }

  Engine& engine_;
  const DemoOptions& options_;
  const std::function<void(const DemoProgress&)>& progress_;
  const std::function<bool()>& cancelled_;
  const KvShape shape_;
  std::vector<int32_t> tokens_;
  ForcedPart part_;                        // inside tokens_
  std::vector<CacheOptions> contestants_;  // without the full cache
  Request question_;  // its cache is that of the row that is asked
  std::string no_question_;
  std::string under_way_;
  uint64_t n_finished_ = 0;  // tokens of the runs that ended
  uint64_t n_total_ = 0;
};

void Demo::AddContestant(PolicyName policy) {
  const bool known = policy == PolicyName::kFull ||
                     std::any_of(contestants_.begin(), contestants_.end(),
                                 [&](const CacheOptions& cache) {
                                   return cache.policy == policy;
                                 });
  if (known) return;
  contestants_.push_back(OptionsOf(policy));
  if (!options_.shows_whole_reading || policy != PolicyName::kLookahead ||
      ReadsPromptWhole(contestants_.back())) {
    return;
  }
  contestants_.push_back(OptionsOf(policy));
  contestants_.back().reading = PromptReading::kWhole;
}

Status Demo::SplitText() {
  CHECK(options_.context_tokens > 0 && options_.forced_tokens > 0);
  tokens_ = engine_.tokenizer().Tokenize(
      options_.text, Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
  const uint64_t n_wanted =
      uint64_t{options_.context_tokens} + options_.forced_tokens;
  const uint64_t n = std::min<uint64_t>(tokens_.size(), n_wanted);
  const uint64_t n_forced = n * options_.forced_tokens / n_wanted;
  if (n_forced < std::min(kMinForcedTokens, options_.forced_tokens)) {
    return InvalidArgument("text: has " + std::to_string(tokens_.size()) +
                           " tokens; give " + std::to_string(n_wanted) +
                           ", or at least " +
                           std::to_string((kMinForcedTokens * n_wanted +
                                           options_.forced_tokens - 1) /
                                          options_.forced_tokens));
  }
  part_.prefill = std::span(tokens_).first(n - n_forced);
  part_.decode = std::span(tokens_).subspan(n - n_forced, n_forced);
  return Status();
}

Result<std::unique_ptr<Demo::PolicyRun>> Demo::RunPolicy(
    const CacheOptions& cache) {
  const uint32_t n_steps = static_cast<uint32_t>(part_.decode.size());
  auto run = std::make_unique<PolicyRun>(
      shape_, engine_.architecture().vocab_size, n_steps);
  const bool evicts = cache.policy != PolicyName::kFull;
  auto log = [&](const Sequence& sequence) {
    const uint32_t step =
        static_cast<uint32_t>(sequence.times().step_us.size());
    if (step < n_steps) run->predictions.Add(step, sequence.logits());
    if (evicts && step % kSampleEvery == 1) run->residency.Record(sequence);
  };
  Result<std::unique_ptr<Sequence>> sequence = StartAndRunForced(
      engine_, {&part_, 1}, OptionsFor({&part_, 1}, cache), log,
      [&](uint32_t n_done) { Report(n_done); }, cancelled_);
  if (!sequence.ok()) return sequence.status();

  const StepTimes& times = (*sequence)->times();
  DemoRow& row = run->row;
  row.policy = cache.policy;
  row.reads_whole = ReadsPromptWhole(cache);
  row.prefill_tokens_per_second = times.PrefillRate();
  row.decode_tokens_per_second = times.DecodeRate();
  row.step = SummarizeSteps(times.step_us);
  row.policy_share = times.PolicyShare();
  row.kv = (*sequence)->stats();
  return run;
}

Status Demo::RunShadow(std::span<const std::unique_ptr<PolicyRun>> runs) {
  std::vector<const ResidencyLog*> logs;
  for (const auto& run : runs) logs.push_back(&run->residency);
  HitRateMeter meter(shape_, ProtectedEndsOf(options_.cache), logs);
  auto compare = [&](const Sequence& sequence) {
    const uint32_t step =
        static_cast<uint32_t>(sequence.times().step_us.size());
    if (step >= part_.decode.size()) return;
    for (const auto& run : runs) {
      if (step % run->predictions.every() != 0) continue;
      run->fidelity.Add(sequence.logits(), run->predictions.row(step),
                        part_.decode[step]);
    }
  };
  engine_.SetObserver(&meter);
  Result<std::unique_ptr<Sequence>> shadow = StartAndRunForced(
      engine_, {&part_, 1}, OptionsFor({&part_, 1}, FullOptions()), compare,
      [&](uint32_t n_done) { Report(n_done); }, cancelled_);
  engine_.SetObserver(nullptr);
  if (!shadow.ok()) return shadow.status();
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i]->row.fidelity = runs[i]->fidelity.Result();
    if (runs[i]->row.policy != PolicyName::kFull) {
      runs[i]->row.hit = meter.Rates(i);
    }
  }
  return Status();
}

Status Demo::PrepareQuestion() {
  if (options_.question.empty()) return Status();
  const Tokenizer& tokenizer = engine_.tokenizer();
  if (!tokenizer.has_chat_template()) {
    no_question_ = "the model carries no chat template";
    return Status();
  }
  // Nothing but the template can be wrong with this one.
  const ChatMessage greeting{"user", "Hello."};
  if (!tokenizer.TokenizeChat({&greeting, 1}, Tokenizer::Reply::kBegin).ok()) {
    no_question_ = "the model's chat template is of an unknown kind";
    return Status();
  }
  const ChatMessage message{"user", options_.text + "\n\n" + options_.question};
  Result<TokenizedChat> chat = tokenizer.TokenizeChat(
      {&message, 1}, Tokenizer::Reply::kBegin, cancelled_);
  if (!chat.ok()) return chat.status();
  const uint32_t trained = engine_.architecture().trained_context_tokens;
  if (chat->tokens.size() + options_.answer_tokens > trained) {
    no_question_ = "the whole text is longer than the " +
                   std::to_string(trained) +
                   " tokens the model was trained for";
    return Status();
  }
  question_.prompt = std::move(chat->tokens);
  if (options_.cache.pin_system) question_.pinned = std::move(chat->pinned);
  question_.max_new_tokens = options_.answer_tokens;
  return Status();
}

Status Demo::CheckAdmission() {
  std::vector<CacheOptions> rows = contestants_;
  rows.push_back(FullOptions());
  for (const CacheOptions& cache : rows) {
    Status s = engine_.Start(OptionsFor({&part_, 1}, cache)).status();
    if (!s.ok()) return s;
    if (question_.prompt.empty()) continue;
    const Request question = QuestionFor(cache);
    SequenceOptions sequence;
    sequence.cache = question.cache;
    sequence.prompt_tokens = static_cast<uint32_t>(question.prompt.size());
    sequence.max_new_tokens = question.max_new_tokens;
    sequence.pinned = question.pinned;
    s = engine_.Start(sequence).status();
    if (!s.ok()) return s;
  }
  return Status();
}

Status Demo::AnswerQuestion(const CacheOptions& cache, DemoRow* row) {
  Result<Generation> reply = engine_.Generate(
      QuestionFor(cache), {}, [&](uint32_t n_done) { Report(n_done); },
      cancelled_);
  if (!reply.ok()) return reply.status();
  if (reply->stop_reason == StopReason::kCancelled) {
    return Cancelled("demo: stopped on request");
  }
  row->answer = reply->text;
  return Status();
}

Result<DemoReport> Demo::Run() {
  if (Status s = SplitText(); !s.ok()) return s;
  if (Status s = PrepareQuestion(); !s.ok()) return s;
  if (Status s = CheckAdmission(); !s.ok()) return s;
  const uint64_t n_tokens = part_.prefill.size() + part_.decode.size();
  // Beside the policies: full cache, noise floor and shadow.
  n_total_ = (contestants_.size() + 3) * n_tokens +
             (contestants_.size() + 1) * question_.prompt.size();
  std::vector<std::unique_ptr<PolicyRun>> runs;
  auto run_policy = [&](std::string what, const CacheOptions& cache) -> Status {
    BeginRun(std::move(what));
    Result<std::unique_ptr<PolicyRun>> run = RunPolicy(cache);
    if (!run.ok()) return run.status();
    EndRun(n_tokens);
    runs.push_back(*std::move(run));
    return Status();
  };
  Status s = run_policy("full cache", FullOptions());
  if (!s.ok()) return s;
  for (const CacheOptions& cache : contestants_) {
    s = run_policy("policy " + FormatOption(*FindOption("policy"), cache),
                   cache);
    if (!s.ok()) return s;
  }
  s = run_policy("noise floor", FullCacheRoundedOtherwise(options_.cache));
  if (!s.ok()) return s;
  BeginRun("hit rates and fidelity");
  if (s = RunShadow(runs); !s.ok()) return s;
  EndRun(n_tokens);

  DemoReport report;
  report.context_tokens = static_cast<uint32_t>(part_.prefill.size());
  report.weight_bytes = engine_.weight_bytes();
  report.forced_tokens = static_cast<uint32_t>(part_.decode.size());
  report.noise_floor = runs.back()->row.fidelity;
  runs.pop_back();
  for (const auto& run : runs) report.rows.push_back(std::move(run->row));
  report.no_question = no_question_;
  if (question_.prompt.empty()) return report;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    BeginRun("a question about the text");
    s = AnswerQuestion(i == 0 ? FullOptions() : contestants_[i - 1],
                       &report.rows[i]);
    if (!s.ok()) return s;
    EndRun(question_.prompt.size());
  }
  return report;
}

}  // namespace

Result<DemoReport> RunDemo(
    Engine& engine, const DemoOptions& options,
    const std::function<void(const DemoProgress&)>& progress,
    const std::function<bool()>& cancelled) {
  return Demo(engine, options, progress, cancelled).Run();
}

}  // namespace lkv
