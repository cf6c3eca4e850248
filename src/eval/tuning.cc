#include "eval/tuning.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

using Choices = std::vector<uint32_t>;

// Windows on which choices are made; the others judge.
constexpr uint32_t kMaxChoosing = 3;
// Parts of the time after which choosing and judging end. An agreement needs
// time behind them, for the challenger's other budgets and the share between.
constexpr double kChoosingPart = 0.4;
constexpr double kJudgingPart = 0.75;
// Pairings of choices that are tried, and halvings of the gap between shares.
constexpr uint32_t kMaxCombinations = 3;
constexpr uint32_t kMaxHalvings = 3;
constexpr double kFinestGap = 0.03;
// Nats: the noise floor of KL. Keeps ratios of next to nothing from counting.
constexpr double kKlFloor = 1e-4;

double LogKl(const TuningFigures& figures) {
  return std::log(figures.kl_mean + kKlFloor);
}

// Memory and log KL of the default at several shares on one window, by memory.
using Curve = std::vector<std::pair<double, double>>;

// Straight lines between the points. Beyond them the value stays: less memory
// than the default was ever measured with is no excuse for more KL.
double LogKlAt(const Curve& curve, double bytes) {
  CHECK(!curve.empty());
  if (bytes <= curve.front().first) return curve.front().second;
  if (bytes >= curve.back().first) return curve.back().second;
  size_t right = 1;
  while (curve[right].first < bytes) ++right;
  const auto& [x0, y0] = curve[right - 1];
  const auto& [x1, y1] = curve[right];
  return y0 + (y1 - y0) * (bytes - x0) / (x1 - x0);
}

double MeanOf(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

class Search {
 public:
  Search(const TuningProblem& problem, const MeasureOnWindow& measure,
         const std::function<double()>& seconds)
      : problem_(problem),
        measure_(measure),
        seconds_(seconds),
        default_(problem.n_choices.size(), 0),
        n_choosing_(std::clamp(problem.n_windows / 3, 1u, kMaxChoosing)) {}

  Result<TuningResult> Run();

 private:
  // --- measuring ------------------------------------------------------------
  // Measures what is missing. False when it was not done: it would end after
  // until_s, or something has stopped the search.
  bool Measure(uint32_t window, const std::vector<TuningCandidate>& candidates,
               double until_s);
  // How many runs on one window would end before until_s; after the first.
  size_t RoomUntil(double until_s) const;
  bool HasStopped() const { return stopped_ || !failure_.ok(); }
  TuningTrial& TrialOf(const TuningCandidate& candidate);
  const TuningTrial* Find(const TuningCandidate& candidate) const;
  // Requires that it was measured.
  const TuningFigures& At(const TuningCandidate& candidate,
                          uint32_t window) const;
  bool IsComplete(const TuningCandidate& candidate,
                  std::span<const uint32_t> windows) const;
  std::vector<TuningCandidate> AtAllShares(const Choices& choices) const;

  // --- judging --------------------------------------------------------------
  // Log of the KL over the default's with the same memory.
  double LogRatio(const TuningCandidate& candidate, uint32_t window) const;
  double MeanLogRatio(const TuningCandidate& candidate,
                      std::span<const uint32_t> windows) const;
  bool Reaches(const TuningTrial& trial) const;
  // The trial of a setting that the goal asks for, or the nearest to it.
  struct Answer {
    const TuningTrial* trial = nullptr;
    bool is_reached = false;
  };
  Answer AnswerOf(const Choices& choices) const;

  // --- the five parts -------------------------------------------------------
  double WorkingShare() const;
  std::vector<TuningCandidate> Alternatives(double share) const;
  std::optional<TuningCandidate> FindChallenger(double share);
  TuningCandidate Combine(const std::vector<TuningCandidate>& alive,
                          std::span<const uint32_t> windows);
  void MeasureFrontier(const std::optional<TuningCandidate>& challenger);
  TuningDuel Judge(const TuningCandidate& challenger);
  bool CostsMore(const Choices& choices) const;
  void RefineShare(const Choices& choices);
  void Conclude(const Choices& choices);

  const TuningProblem& problem_;
  const MeasureOnWindow& measure_;
  const std::function<double()>& seconds_;
  const Choices default_;
  const uint32_t n_choosing_;  // the first windows choose
  TuningResult result_;
  bool stopped_ = false;  // by time or by somebody
  Status failure_;
  uint32_t n_paid_ = 0;  // runs, full caches counted
};

bool Search::Measure(uint32_t window,
                     const std::vector<TuningCandidate>& candidates,
                     double until_s) {
  if (HasStopped()) return false;
  std::vector<TuningCandidate> missing;
  for (const TuningCandidate& candidate : candidates) {
    const TuningTrial* trial = Find(candidate);
    if (trial == nullptr || !trial->figures[window]) {
      missing.push_back(candidate);
    }
  }
  if (missing.empty()) return true;
  const double now_s = seconds_();
  const uint32_t n_to_pay = static_cast<uint32_t>(missing.size()) + 1;
  const double cost_s =
      n_paid_ == 0 ? 0 : now_s / n_paid_ * static_cast<double>(n_to_pay);
  if (now_s + cost_s > until_s) {
    result_.end = TuningResult::End::kTimeLimit;
    return false;
  }
  Result<std::vector<TuningFigures>> figures = measure_(window, missing);
  if (!figures.ok()) {
    if (figures.status().code() != StatusCode::kCancelled) {
      failure_ = figures.status();
      return false;
    }
    stopped_ = true;
    result_.end = seconds_() >= problem_.limit_s
                      ? TuningResult::End::kTimeLimit
                      : TuningResult::End::kInterrupted;
    return false;
  }
  CHECK(figures->size() == missing.size());
  for (size_t i = 0; i < missing.size(); ++i) {
    TrialOf(missing[i]).figures[window] = (*figures)[i];
  }
  n_paid_ += n_to_pay;
  result_.n_runs += static_cast<uint32_t>(missing.size());
  return true;
}

size_t Search::RoomUntil(double until_s) const {
  CHECK(n_paid_ > 0);
  const double now_s = seconds_();
  if (now_s == 0) return SIZE_MAX;
  const double n_runs = (until_s - now_s) / (now_s / n_paid_) - 1;
  return n_runs < 1 ? 0 : static_cast<size_t>(std::min(n_runs, 1e9));
}

const TuningTrial* Search::Find(const TuningCandidate& candidate) const {
  const auto at = std::find_if(
      result_.trials.begin(), result_.trials.end(),
      [&](const TuningTrial& trial) { return trial.candidate == candidate; });
  return at == result_.trials.end() ? nullptr : &*at;
}

TuningTrial& Search::TrialOf(const TuningCandidate& candidate) {
  if (const TuningTrial* trial = Find(candidate)) {
    return result_.trials[static_cast<size_t>(trial - result_.trials.data())];
  }
  result_.trials.push_back(
      {.candidate = candidate,
       .figures = std::vector<std::optional<TuningFigures>>(problem_.n_windows),
       .kl_ratio = std::nullopt});
  return result_.trials.back();
}

const TuningFigures& Search::At(const TuningCandidate& candidate,
                                uint32_t window) const {
  const TuningTrial* trial = Find(candidate);
  CHECK(trial != nullptr && trial->figures[window].has_value());
  return *trial->figures[window];
}

bool Search::IsComplete(const TuningCandidate& candidate,
                        std::span<const uint32_t> windows) const {
  const TuningTrial* trial = Find(candidate);
  return trial != nullptr &&
         std::all_of(windows.begin(), windows.end(),
                     [&](uint32_t w) { return trial->figures[w].has_value(); });
}

std::vector<TuningCandidate> Search::AtAllShares(const Choices& choices) const {
  std::vector<TuningCandidate> candidates;
  for (double share : problem_.shares) candidates.push_back({choices, share});
  return candidates;
}

double Search::LogRatio(const TuningCandidate& candidate,
                        uint32_t window) const {
  Curve curve;
  for (const TuningCandidate& point : AtAllShares(default_)) {
    const TuningFigures& figures = At(point, window);
    // Shares below the smallest budget hold the same: one point of them.
    if (!curve.empty() && figures.resident_bytes_mean <= curve.back().first) {
      continue;
    }
    curve.emplace_back(figures.resident_bytes_mean, LogKl(figures));
  }
  const TuningFigures& figures = At(candidate, window);
  return LogKl(figures) - LogKlAt(curve, figures.resident_bytes_mean);
}

double Search::MeanLogRatio(const TuningCandidate& candidate,
                            std::span<const uint32_t> windows) const {
  std::vector<double> ratios;
  for (uint32_t w : windows) ratios.push_back(LogRatio(candidate, w));
  return MeanOf(ratios);
}

bool Search::Reaches(const TuningTrial& trial) const {
  const TuningMeans means = MeansOf(trial, result_.windows);
  if (problem_.goal.kind == TuningGoal::Kind::kAgreement) {
    return means.agreement >= problem_.goal.value;
  }
  // A budget below the smallest one is raised to it. 1 %: a window's last page.
  return static_cast<double>(means.resident_bytes_max) <=
         1.01 * problem_.goal.value * means.full_bytes;
}

Search::Answer Search::AnswerOf(const Choices& choices) const {
  const auto is_nearer = [&](const Answer& a, const Answer& b) {
    if (a.is_reached != b.is_reached) return a.is_reached;
    const TuningMeans mine = MeansOf(*a.trial, result_.windows);
    const TuningMeans other = MeansOf(*b.trial, result_.windows);
    return a.is_reached ? mine.resident_bytes < other.resident_bytes
                        : mine.agreement > other.agreement;
  };
  Answer nearest;
  for (const TuningTrial& trial : result_.trials) {
    if (trial.candidate.choices != choices ||
        !IsComplete(trial.candidate, result_.windows)) {
      continue;
    }
    if (problem_.goal.kind == TuningGoal::Kind::kMemory &&
        trial.candidate.share != problem_.goal.value) {
      continue;
    }
    const Answer answer = {&trial, Reaches(trial)};
    if (nearest.trial == nullptr || is_nearer(answer, nearest)) {
      nearest = answer;
    }
  }
  CHECK(nearest.trial != nullptr);
  return nearest;
}

// Where settings are compared: at the goal's memory; for an agreement, at the
// largest share with which the default misses it on the first window, because a
// better setting that reaches it there saves memory.
double Search::WorkingShare() const {
  if (problem_.goal.kind == TuningGoal::Kind::kMemory) {
    return problem_.goal.value;
  }
  double working = problem_.shares.front();
  for (double share : problem_.shares) {
    if (At({default_, share}, 0).top1_agreement < problem_.goal.value) {
      working = share;
    }
  }
  return working;
}

std::vector<TuningCandidate> Search::Alternatives(double share) const {
  std::vector<TuningCandidate> candidates;
  for (size_t axis = 0; axis < problem_.n_choices.size(); ++axis) {
    for (uint32_t choice = 1; choice < problem_.n_choices[axis]; ++choice) {
      Choices choices = default_;
      choices[axis] = choice;
      candidates.push_back({std::move(choices), share});
    }
  }
  return candidates;
}

std::optional<TuningCandidate> Search::FindChallenger(double share) {
  const double until_s = kChoosingPart * problem_.limit_s;
  std::vector<TuningCandidate> alive = Alternatives(share);
  if (const size_t room = RoomUntil(until_s); alive.size() > room) {
    alive.resize(room);
    result_.end = TuningResult::End::kTimeLimit;
  }
  uint32_t n_seen = 0;  // windows that all of `alive` have
  while (n_seen < n_choosing_ && !alive.empty()) {
    std::vector<TuningCandidate> batch = AtAllShares(default_);
    batch.insert(batch.end(), alive.begin(), alive.end());
    if (!Measure(n_seen, batch, until_s)) break;
    ++n_seen;
    const std::vector<uint32_t> windows = Range(0, n_seen);
    std::stable_sort(
        alive.begin(), alive.end(), [&](const auto& a, const auto& b) {
          return MeanLogRatio(a, windows) < MeanLogRatio(b, windows);
        });
    if (n_seen < n_choosing_) alive.resize((alive.size() + 1) / 2);
  }
  if (n_seen == 0 || alive.empty()) return std::nullopt;
  const std::vector<uint32_t> windows = Range(0, n_seen);
  TuningCandidate best = Combine(alive, windows);
  if (MeanLogRatio(best, windows) >= 0) return std::nullopt;
  return best;
}

TuningCandidate Search::Combine(const std::vector<TuningCandidate>& alive,
                                std::span<const uint32_t> windows) {
  const double until_s = kChoosingPart * problem_.limit_s;
  TuningCandidate best = alive.front();
  uint32_t n_tried = 0;
  for (const TuningCandidate& other : alive) {
    if (n_tried == kMaxCombinations || MeanLogRatio(other, windows) >= 0) break;
    TuningCandidate both = best;
    for (size_t axis = 0; axis < default_.size(); ++axis) {
      if (both.choices[axis] == 0) both.choices[axis] = other.choices[axis];
    }
    if (both == best) continue;
    ++n_tried;
    for (uint32_t w : windows) {
      if (!Measure(w, {both}, until_s)) return best;
    }
    if (MeanLogRatio(both, windows) < MeanLogRatio(best, windows)) best = both;
  }
  return best;
}

// On the windows that did not choose; where there are none, or no time for
// them, on those that did, which judge nobody.
void Search::MeasureFrontier(const std::optional<TuningCandidate>& challenger) {
  std::vector<TuningCandidate> batch = AtAllShares(default_);
  if (challenger) batch.push_back(*challenger);
  for (uint32_t w = n_choosing_; w < problem_.n_windows; ++w) {
    if (!Measure(w, batch, kJudgingPart * problem_.limit_s)) break;
    result_.windows.push_back(w);
  }
  if (!result_.windows.empty()) return;
  for (uint32_t w = 0; w < n_choosing_; ++w) {
    const auto has = [&](const auto& c) { return IsComplete(c, {&w, 1}); };
    const auto points = AtAllShares(default_);
    if (std::all_of(points.begin(), points.end(), has)) {
      result_.windows.push_back(w);
    }
  }
}

TuningDuel Search::Judge(const TuningCandidate& challenger) {
  TuningDuel duel{.challenger = challenger.choices,
                  .share = challenger.share,
                  .kl_ratio_ci95 = std::nullopt};
  std::vector<double> ratios;
  for (uint32_t w : result_.windows) ratios.push_back(LogRatio(challenger, w));
  duel.kl_ratio = std::exp(MeanOf(ratios));
  if (ratios.size() < TuningResult::kMinJudged) return duel;
  const Interval log_ci95 =
      Resamples(ratios.size()).Ci95([&](const std::vector<size_t>& draw) {
        double sum = 0;
        for (size_t i : draw) sum += ratios[i];
        return sum / static_cast<double>(draw.size());
      });
  duel.kl_ratio_ci95 = {std::exp(log_ci95.low), std::exp(log_ci95.high)};
  if (log_ci95.high >= 0) return duel;
  for (uint32_t w : result_.windows) {
    const auto batch = AtAllShares(challenger.choices);
    if (!Measure(w, batch, problem_.limit_s)) break;
  }
  duel.is_won = !CostsMore(challenger.choices);
  return duel;
}

// Better predictions that need more memory for the goal are no gain.
bool Search::CostsMore(const Choices& choices) const {
  const Answer mine = AnswerOf(choices);
  const Answer plain = AnswerOf(default_);
  if (!plain.is_reached) return false;
  if (!mine.is_reached) return true;
  return problem_.goal.kind == TuningGoal::Kind::kAgreement &&
         MeansOf(*mine.trial, result_.windows).resident_bytes >
             MeansOf(*plain.trial, result_.windows).resident_bytes;
}

void Search::RefineShare(const Choices& choices) {
  for (uint32_t i = 0; i < kMaxHalvings; ++i) {
    const Answer answer = AnswerOf(choices);
    if (!answer.is_reached) return;
    const double high = answer.trial->candidate.share;
    double low = 0;
    for (const TuningTrial& trial : result_.trials) {
      const double share = trial.candidate.share;
      if (trial.candidate.choices == choices && share < high &&
          IsComplete(trial.candidate, result_.windows)) {
        low = std::max(low, share);
      }
    }
    if (low == 0 || high - low < kFinestGap) return;
    const TuningCandidate between{choices, (low + high) / 2};
    for (uint32_t w : result_.windows) {
      if (!Measure(w, {between}, problem_.limit_s)) return;
    }
  }
}

void Search::Conclude(const Choices& choices) {
  const Answer answer = AnswerOf(choices);
  result_.best = static_cast<size_t>(answer.trial - result_.trials.data());
  result_.is_reached = answer.is_reached;
  result_.n_choosing = n_choosing_;
  result_.n_tried = static_cast<uint32_t>(result_.trials.size());
  for (TuningTrial& trial : result_.trials) {
    const std::vector<uint32_t> windows = trial.WindowsOf(n_choosing_);
    if (windows.empty()) continue;
    trial.kl_ratio = std::exp(MeanLogRatio(trial.candidate, windows));
  }
  const auto bytes_of = [&](size_t i) {
    return MeansOf(result_.trials[i], result_.windows).resident_bytes;
  };
  for (size_t i = 0; i < result_.trials.size(); ++i) {
    if (IsComplete(result_.trials[i].candidate, result_.windows)) {
      result_.frontier.push_back(i);
    }
  }
  std::stable_sort(
      result_.frontier.begin(), result_.frontier.end(),
      [&](size_t a, size_t b) { return bytes_of(a) < bytes_of(b); });
}

Result<TuningResult> Search::Run() {
  CHECK(problem_.shares.size() >= 2 && problem_.n_windows >= 1);
  CHECK(std::is_sorted(problem_.shares.begin(), problem_.shares.end()));
  if (!Measure(0, AtAllShares(default_), problem_.limit_s)) {
    if (!failure_.ok()) return failure_;
    if (result_.end == TuningResult::End::kInterrupted) {
      return Cancelled("tuning: stopped on request");
    }
    return InvalidArgument(
        "time limit: " +
        std::to_string(static_cast<uint64_t>(problem_.limit_s)) +
        " s are not enough for one window at " +
        std::to_string(problem_.shares.size()) +
        " budgets; raise it or shorten the context");
  }
  const std::optional<TuningCandidate> challenger =
      FindChallenger(WorkingShare());
  MeasureFrontier(challenger);
  Choices chosen = default_;
  if (challenger && IsComplete(*challenger, result_.windows)) {
    result_.duel = Judge(*challenger);
    if (result_.duel->is_won) chosen = challenger->choices;
  }
  if (problem_.goal.kind == TuningGoal::Kind::kAgreement) RefineShare(chosen);
  if (!failure_.ok()) return failure_;
  Conclude(chosen);
  return std::move(result_);
}

}  // namespace

std::vector<uint32_t> TuningTrial::WindowsOf(uint32_t n) const {
  std::vector<uint32_t> windows;
  for (uint32_t w = 0; w < n; ++w) {
    if (figures[w].has_value()) windows.push_back(w);
  }
  return windows;
}

TuningMeans MeansOf(const TuningTrial& trial,
                    std::span<const uint32_t> windows) {
  CHECK(!windows.empty());
  const double n = static_cast<double>(windows.size());
  TuningMeans means;
  for (uint32_t w : windows) {
    CHECK(trial.figures[w].has_value());
    const TuningFigures& figures = *trial.figures[w];
    means.kl += figures.kl_mean / n;
    means.agreement += figures.top1_agreement / n;
    means.resident_bytes += figures.resident_bytes_mean / n;
    means.resident_bytes_max =
        std::max(means.resident_bytes_max, figures.resident_bytes_max);
    means.full_bytes += static_cast<double>(figures.full_bytes) / n;
  }
  return means;
}

Result<TuningResult> Tune(const TuningProblem& problem,
                          const MeasureOnWindow& measure,
                          const std::function<double()>& seconds) {
  return Search(problem, measure, seconds).Run();
}

}  // namespace lkv
