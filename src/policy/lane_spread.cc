#include "policy/lane_spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/types.h"

namespace lkv {

void Apportion(std::span<const float> weights, uint32_t total, uint32_t floor,
               uint32_t cap, std::span<double> exact, std::span<uint32_t> order,
               std::span<uint32_t> out) {
  const size_t n = weights.size();
  CHECK(exact.size() == n && order.size() == n && out.size() == n);
  CHECK(floor <= cap && uint64_t{n} * floor <= total);

  // Exact shares. Whoever passes the cap is held there, and the others share
  // anew what that leaves; shares only grow, so nobody is released again.
  std::fill(out.begin(), out.end(), 0);  // 1 = held at the cap
  uint64_t pool = std::min<uint64_t>(total, uint64_t{n} * cap);
  size_t n_free = n;
  for (bool capped_more = true; capped_more && n_free > 0;) {
    capped_more = false;
    double weight_sum = 0;
    for (size_t i = 0; i < n; ++i) {
      if (out[i] == 0) weight_sum += weights[i];
    }
    const double rest = static_cast<double>(pool - n_free * floor);
    for (size_t i = 0; i < n; ++i) {
      if (out[i] != 0) continue;
      double share = weight_sum > 0 ? weights[i] / weight_sum
                                    : 1.0 / static_cast<double>(n_free);
      exact[i] = floor + rest * share;
    }
    for (size_t i = 0; i < n; ++i) {
      if (out[i] != 0 || exact[i] <= cap) continue;
      out[i] = 1;
      exact[i] = cap;
      pool -= cap;
      --n_free;
      capped_more = true;
    }
  }

  // Whole parts, then one more for the largest remainders.
  uint64_t left = std::min<uint64_t>(total, uint64_t{n} * cap);
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint32_t>(exact[i]);
    exact[i] -= out[i];
    left -= out[i];
  }
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return exact[a] != exact[b] ? exact[a] > exact[b] : a < b;
  });
  // One round is enough but for rounding errors of `exact`.
  while (left > 0) {
    for (size_t k = 0; k < n && left > 0; ++k) {
      if (out[order[k]] == cap) continue;
      ++out[order[k]];
      --left;
    }
  }
}

LaneSpread::LaneSpread(const Options& options)
    : options_(options),
      mass_(options.n_lanes),
      seen_(options.n_lanes),
      target_(options.n_lanes),
      ideal_(options.n_lanes),
      weights_(options.n_lanes),
      exact_(options.n_lanes),
      order_(options.n_lanes) {
  CHECK(options.n_dense_lanes <= options.n_lanes);
  CHECK(options.floor_pages <= options.pages_per_lane);
}

void LaneSpread::Observe(uint32_t lane, float contestable_mass,
                         uint32_t tokens_since) {
  float keep =
      seen_[lane] != 0
          ? std::exp2(-static_cast<float>(tokens_since) / kHalfLifeTokens)
          : 0;
  mass_[lane] = keep * mass_[lane] + (1 - keep) * contestable_mass;
  seen_[lane] = 1;
}

LaneSpread::Limits LaneSpread::LimitsFor(uint32_t n_tokens,
                                         uint32_t total_pages) const {
  const uint32_t n = options_.n_lanes - options_.n_dense_lanes;
  CHECK(uint64_t{n} * options_.floor_pages <= total_pages);
  const uint32_t text_pages = PagesOf(n_tokens) + 1;
  const uint32_t cap_pages = std::min(
      std::max(text_pages, options_.floor_pages), options_.pages_per_lane);
  return {.floor_pages = std::min(
              cap_pages,
              std::max(options_.floor_pages,
                       static_cast<uint32_t>(kFloorShare * total_pages / n))),
          .cap_pages = cap_pages};
}

void LaneSpread::SpreadBy(std::span<const float> wanted_pages,
                          uint32_t n_tokens, uint32_t total_pages) {
  std::span<uint32_t> targets = Participants(target_);
  CHECK(wanted_pages.size() == targets.size());
  const auto [floor_pages, cap_pages] = LimitsFor(n_tokens, total_pages);
  std::span<float> weights = Participants(weights_);
  for (size_t i = 0; i < targets.size(); ++i) {
    weights[i] =
        std::max(0.0f, wanted_pages[i] - static_cast<float>(floor_pages));
  }
  Apportion(weights, total_pages, floor_pages, cap_pages, Participants(exact_),
            Participants(order_), targets);
  total_pages_ = total_pages;
  floor_pages_ = floor_pages;
  cap_pages_ = cap_pages;
  text_fits_ = false;
  last_respread_tokens_ = n_tokens;
}

void LaneSpread::Respread(uint32_t n_tokens, uint32_t total_pages) {
  const uint32_t n = options_.n_lanes - options_.n_dense_lanes;
  if (n == 0) return;
  const auto [floor_pages, cap_pages] = LimitsFor(n_tokens, total_pages);
  const bool text_fits = uint64_t{n} * cap_pages <= total_pages;

  if (text_fits) {
    if (!text_fits_ || cap_pages != cap_pages_) {
      std::span<uint32_t> targets = Participants(target_);
      std::fill(targets.begin(), targets.end(), cap_pages);
    }
    last_respread_tokens_ = n_tokens;
  } else if (text_fits_ || total_pages != total_pages_) {
    Scale(total_pages, floor_pages, cap_pages);
    last_respread_tokens_ = n_tokens;
  } else if (options_.mode == LaneSpreadMode::kMass &&
             n_tokens - last_respread_tokens_ >= kRespreadTokens) {
    std::copy(mass_.begin(), mass_.end(), weights_.begin());
    Apportion(Participants(weights_), total_pages, floor_pages, cap_pages,
              Participants(exact_), Participants(order_), Participants(ideal_));
    uint32_t max_step = (n_tokens - last_respread_tokens_) / kRespreadTokens;
    StepTowardsIdeal(total_pages, max_step);
    last_respread_tokens_ += max_step * kRespreadTokens;
  }
  total_pages_ = total_pages;
  floor_pages_ = floor_pages;
  cap_pages_ = cap_pages;
  text_fits_ = text_fits;
}

void LaneSpread::ExchangeState(StateStream& stream) {
  stream.Exchange(mass_);
  stream.Exchange(seen_);
  for (uint32_t& target : target_) {
    stream.ExchangeCount(target, options_.pages_per_lane);
  }
  stream.Exchange(total_pages_);
  stream.ExchangeCount(floor_pages_, options_.pages_per_lane);
  stream.ExchangeCount(cap_pages_, options_.pages_per_lane);
  stream.Exchange(text_fits_);
  stream.Exchange(last_respread_tokens_);
}

// Keeps the shape of the targets above the floor and gives it the new total.
void LaneSpread::Scale(uint32_t total_pages, uint32_t floor_pages,
                       uint32_t cap_pages) {
  std::span<uint32_t> targets = Participants(target_);
  std::span<float> weights = Participants(weights_);
  for (size_t i = 0; i < targets.size(); ++i) {
    weights[i] =
        static_cast<float>(targets[i] - std::min(targets[i], floor_pages_));
  }
  Apportion(weights, total_pages, floor_pages, cap_pages, Participants(exact_),
            Participants(order_), targets);
}

// Lowers what lies above its ideal, then gives the room to the lanes that lack
// most.
void LaneSpread::StepTowardsIdeal(uint32_t total_pages, uint32_t max_step) {
  std::span<uint32_t> targets = Participants(target_);
  std::span<uint32_t> order = Participants(order_);
  std::span<const uint32_t> ideal = Participants(ideal_);
  uint64_t used = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] > ideal[i]) {
      targets[i] -= std::min(targets[i] - ideal[i], max_step);
    }
    used += targets[i];
  }
  auto lacking = [&](uint32_t i) {
    return ideal[i] - std::min(ideal[i], targets[i]);
  };
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lacking(a) != lacking(b) ? lacking(a) > lacking(b) : a < b;
  });
  for (uint32_t i : order) {
    auto room = static_cast<uint32_t>(total_pages - used);
    uint32_t more = std::min({lacking(i), max_step, room});
    targets[i] += more;
    used += more;
  }
}

}  // namespace lkv
