#include "cli/active_predictor.h"

#include "cli/number_text.h"

namespace lkv::cli {
namespace {

// Of the check that runs while a network serves (policy/forecast_check.h).
std::string CheckText(const ForecastCheck::Verdict& verdict) {
  if (verdict.n_returns == 0) return "nothing given up has returned yet";
  return "it ranks " + FormatCount(verdict.n_returns, "return") + " " +
         FormatFixed(verdict.network_rank, 2) + ", the average " +
         FormatFixed(verdict.average_rank, 2);
}

}  // namespace

std::optional<ActivePredictor> ActivePredictorOf(const CacheOptions& cache,
                                                 const SequenceStats& kv) {
  const bool forecasts = cache.policy == PolicyName::kLookahead ||
                         cache.policy == PolicyName::kEma;
  if (!forecasts || !cache.enabled) return {};
  if (kv.forecast) {
    const bool uses_network = kv.forecast->uses_network;
    return ActivePredictor{
        uses_network ? "mlp" : "ema",
        (uses_network ? "" : "network left out: ") + CheckText(*kv.forecast)};
  }
  if (cache.score == ScoreName::kValueNorm) {
    return ActivePredictor{"ema", "score value_norm asks no network"};
  }
  return ActivePredictor{
      "ema", cache.predictor == "ema" || cache.policy == PolicyName::kEma
                 ? "as asked"
                 : "no network was trained for this model"};
}

}  // namespace lkv::cli
