// Prompts that are read whole, once or twice, before they are cut down to the
// budget.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "policy/repeat_policy.h"

namespace lkv {
namespace {

class RereadObserver final : public AttentionObserver {
 public:
  RereadObserver(const KvShape& shape, RereadScores& scores)
      : shape_(shape), scores_(scores) {}
  void OnAttention(const AttentionSample& sample) override {
    scores_.Observe(shape_.LaneOf(sample.layer, sample.kv_head),
                    sample.mass_max);
  }
  bool WatchesAll() const override { return true; }

 private:
  const KvShape shape_;
  RereadScores& scores_;
};

}  // namespace

Result<Admission> Engine::State::Complete(const SequenceOptions& options) {
  Admission admission{.options = options, .cut = {}};
  if (!options.make_policy && ReadsPromptWhole(options.cache)) {
    if (Status s = PrepareCut(admission); !s.ok()) return s;
  }
  if (options.make_policy || options.predictor != nullptr ||
      options.cache.policy != PolicyName::kLookahead) {
    return admission;
  }
  Result<std::shared_ptr<const HistoryNetwork>> network =
      predictors->Find(options.cache.predictor);
  if (!network.ok()) return network.status();
  admission.options.predictor = *std::move(network);
  return admission;
}

Status Engine::State::PrepareCut(Admission& admission) {
  SequenceOptions& options = admission.options;
  PromptCut cut{
      .budget = options.cache.budget, .budget_bytes = 0, .reread = nullptr};
  if (options.cache.policy == PolicyName::kRepeat) {
    const uint64_t twice = 2 * uint64_t{options.prompt_tokens};
    if (twice > ctx_tokens) {
      return InvalidArgument(
          "policy: repeat reads its prompt twice, and twice " +
          std::to_string(options.prompt_tokens) +
          " tokens are more than the context of " + std::to_string(ctx_tokens) +
          "; give a shorter prompt or choose policy lookahead");
    }
    options.max_tokens =
        std::max({options.max_tokens, static_cast<uint32_t>(twice),
                  options.prompt_tokens + options.max_new_tokens});
    cut.reread = std::make_shared<RereadScores>();
    options.make_policy = [scores =
                               cut.reread](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  // A budget that the policy could not keep is refused before anything is read.
  const Result<SequenceId> within = cache->AddSequence(options);
  if (!within.ok()) return within.status();
  cut.budget_bytes = cache->Stats(*within).budget_bytes;
  cache->RemoveSequence(*within);
  options.cache.budget = Budget();
  admission.cut = std::move(cut);
  return {};
}

Status Sequence::CutDown(const std::function<bool()>& cancelled) {
  const PromptCut cut = *std::exchange(state_->cut, std::nullopt);
  return CatchRefusedMemory("sequence", [&]() -> Status {
    if (cut.reread != nullptr) {
      Engine::State& engine = *state_->engine;
      Result<std::unique_ptr<Sequence>> fork = Engine::Fork(engine, *this);
      if (!fork.ok()) return fork.status();
      *cut.reread = RereadScores(engine.cache->shape().n_lanes(), n_tokens());
      Status status =
          Engine::Reread(engine, **fork, tokens(), *cut.reread, cancelled);
      // The fork holds the prompt, shared, and its second reading.
      state_->reread_bytes_max = (*fork)->stats().resident_bytes_max;
      if (!status.ok()) return status;
    }
    return ShrinkBudget(cut.budget, 0);
  });
}

Status Engine::Reread(Sequence& sequence, std::span<const int32_t> text,
                      RereadScores& scores,
                      const std::function<bool()>& cancelled) {
  return Reread(*state_, sequence, text, scores, cancelled);
}

Status Engine::Reread(State& engine, Sequence& sequence,
                      std::span<const int32_t> text, RereadScores& scores,
                      const std::function<bool()>& cancelled) {
  Sequence::State& state = *sequence.state_;
  const auto n_tokens = static_cast<uint32_t>(text.size());
  Status status = engine.cache->AnnounceTurn(state.id, n_tokens, 0);
  if (!status.ok()) return status;
  state.text_tokens = std::max(state.text_tokens, state.n_tokens() + n_tokens);
  if (status = engine.CheckSequencesFit(); !status.ok()) return status;
  RereadObserver observer(engine.cache->shape(), scores);
  // Also where memory runs out: nobody may be told of attention by a step to
  // come.
  struct Restore {
    State& engine;
    ~Restore() { engine.SetCacheObserver(engine.observer); }
  } restore{engine};
  engine.SetCacheObserver(&observer);
  return sequence.Read(text, {}, cancelled);
}

void Engine::State::SetCacheObserver(AttentionObserver* watching) {
  try {
    cache->SetObserver(watching);
  } catch (const std::bad_alloc&) {
    cache_is_torn = true;
  }
}

}  // namespace lkv
