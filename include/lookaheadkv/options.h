// Options of the cache: what a user may ask for, with defaults and units.
//
// The names are those of the YAML block (docs/configuration.md). What is left
// open or "auto" is worked out for the model and the request when a sequence
// begins. Plain data, copyable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lkv {

// Which cached tokens to keep. Every policy protects the same tokens (sinks,
// recent, pinned) and obeys the same budget.
enum class PolicyName {
  kFull,       // keeps everything; the budget must hold the whole text
  kLookahead,  // predicted attention times what the loss would change
  kEma,        // the same, predicted by a moving average alone
  kLru,        // oldest last use first (use = among the step's heavy hitters)
  kLfu,        // fewest uses first
  kFifo,       // oldest arrival first
  kStreaming,  // sinks and newest only (StreamingLLM)
  kH2o,        // smallest sum of attention first
  kObserved,   // smallest sum of attention divided by age first
  kTova,       // smallest attention in the last step first
  kSnapKv,     // smallest pooled attention of the last 32 queries first
  kExpectedAttention,  // least expected attention times value norm first
  kRepeat,  // least attention when the prompt is read a second time (KVzip)
  kRandom,  // uniformly, from the seed
};

// When a prompt is cut down to the budget.
enum class PromptReading {
  kWithinBudget,  // while it is read: the budget holds at every moment
  kWhole,         // once it has been read whole: nothing is missing while it is
                  // read, but all of its KV is in memory until then
};

// What leaves at once.
enum class EvictionUnit {
  kPage,    // whole pages of 16 tokens
  kRepack,  // the lowest tokens of some pages; what stays shares fewer
};

enum class WindowStrategy { kStatic, kDynamic, kHybrid };
enum class WindowLaw {
  kSymmetric,  // base * 4^(2 sigma(k (change - threshold)) - 1)
  kSource,     // base * (1 + sigma(change - threshold))
};
enum class EvictionRule {
  kScoreThreshold,  // below a frozen score first, then the lowest
  kSizeAware,       // lowest score per byte until the window holds
};
enum class ScoreName { kOutputError, kValueNorm };
enum class ChangeMetric { kJensenShannon, kKullbackLeibler };
enum class KvTypeName { kF16, kBF16, kInt8 };
enum class LaneSpreadMode {
  kAuto,   // kScore for the look-ahead policy, whose scores of different lanes
           // can be compared; kEqual for the others
  kEqual,  // every lane may hold the same number of pages
  kMass,   // in proportion to the lane's contestable attention mass
  kScore,  // as many as it has of the tokens with the highest scores
};

// Precision of the activations that meet quantised weights, and of attention in
// prefill.
enum class ActivationPrecision {
  kAuto,  // 16 bit while decoding; in prefill 8 bit, attention in bf16 where
          // the processor multiplies that
  kHigh,  // 16 bit everywhere, attention in f32
};

// What a session file waits for.
enum class SessionDurability {
  kNone,     // nothing: what a crash of the machine spoils is noticed
  kSession,  // it is on the disk before the program goes on
  kAlways,   // the same for every turn of a chat
};

// How much memory a sequence's KV may take.
struct Budget {
  enum class Kind { kFull, kShare, kTokens, kBytes };
  Kind kind = Kind::kFull;
  double share = 1.0;   // kShare: of (prompt + new tokens)
  uint64_t amount = 0;  // kTokens: tokens; kBytes: bytes

  bool operator==(const Budget&) const = default;
};

struct CacheOptions {
  PolicyName policy = PolicyName::kLookahead;
  Budget budget;
  KvTypeName kv_type = KvTypeName::kF16;

  // --- window ---------------------------------------------------------------
  bool enabled = true;  // false: full cache, whatever else is set
  WindowStrategy window_strategy = WindowStrategy::kDynamic;
  WindowLaw window_law = WindowLaw::kSymmetric;
  // Empty = not given: without any window key the window is the budget.
  std::optional<uint32_t> base_window_tokens;
  std::optional<uint32_t> min_window_tokens;  // default base / 4
  std::optional<uint32_t> max_window_tokens;
  bool base_window_auto = false;  // "auto": max(1024, 0.25 max_seq_len)
  bool max_window_auto = false;   // "auto": min(half the memory, 1.5 base)
  // Nats of Jensen-Shannon divergence (of the other metric if that is chosen):
  // between a text that goes on (0.03) and one that turns (0.10 and more).
  double change_threshold = 0.06;
  double change_smoothing = 0.7;  // weight of the old value
  ChangeMetric change_metric = ChangeMetric::kJensenShannon;
  uint32_t dwell_steps = 32;

  // --- eviction -------------------------------------------------------------
  EvictionRule eviction_rule = EvictionRule::kSizeAware;
  ScoreName score = ScoreName::kOutputError;
  double score_threshold_percentile = 50;  // of the scores at warm-up's end
  // What forecasts attention: "auto" (a network trained for the model where the
  // program has one, else "ema"), "mlp" (that network, or an error), "ema" (a
  // moving average alone), or the path of a .gguf file from `lkv train`.
  std::string predictor = "auto";
  uint32_t prediction_steps = 4;  // 1..64; the source: 4..12
  double temporal_decay = 0.9;  // kValueNorm; without effect on a flat forecast
  uint32_t warmup_tokens = 0;
  uint32_t sink_tokens = 4;
  uint32_t recent_tokens = 128;
  uint32_t dense_layers = 0;  // first layers that never evict
  bool pin_system = true;
  // Of a sequence's first prompt; kRepeat always reads it whole.
  PromptReading reading = PromptReading::kWithinBudget;

  // --- tiers ----------------------------------------------------------------
  // Whether what leaves stays within reach: a coarse copy of every token is
  // kept, and each step reads of it what its query asks for. Whole pages leave
  // then.
  bool tiers = false;
  // Share of the tokens that have left which a decoded token reads in full.
  double attend_share = 0.25;
  // Whether that is raised where too much of the attention is left out: more
  // than max_recall_gap, sampled in one layer every guard_sample_steps steps.
  bool guard = true;
  uint32_t guard_sample_steps = 64;
  double max_recall_gap = 0.15;

  // --- sessions -------------------------------------------------------------
  // The folder; "auto": lookaheadkv/sessions where this user's programs keep
  // their state.
  std::string sessions_path = "auto";
  // On the disk, at most; the sessions used longest ago make room.
  uint64_t sessions_bytes = uint64_t{8} << 30;
  SessionDurability sessions_durability = SessionDurability::kSession;
  uint32_t sessions_keep_days = 0;  // since the last use; 0: for ever
  // File of 32 bytes that seals sessions; "none": they can be read like text.
  std::string sessions_key_file = "none";

  uint64_t seed = 0;  // of the random policy

  // How the pages of a sequence are shared among its lanes.
  LaneSpreadMode lane_spread = LaneSpreadMode::kAuto;
  EvictionUnit unit = EvictionUnit::kRepack;
};

// Whether the first prompt is read with everything kept, then cut down.
inline bool ReadsPromptWhole(const CacheOptions& options) {
  if (!options.enabled || options.policy == PolicyName::kFull) return false;
  return options.policy == PolicyName::kRepeat ||
         (options.reading == PromptReading::kWhole &&
          options.budget.kind != Budget::Kind::kFull);
}

}  // namespace lkv
