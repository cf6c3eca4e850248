// HitRates: how much of what full attention reads a cache still holds.
#pragma once

#include <cstdint>

namespace lkv {

// Measured against a run that keeps everything, on the same tokens, at sampled
// decode steps, over all lanes (layer, KV head) with the group mean of the
// attention weights. *Contestable* are the cached tokens that are neither
// sinks nor among the newest `recent_tokens`: those every policy keeps.
struct HitRates {
  // Resident contestable attention mass over all contestable mass: the figure
  // to compare policies by. 1 when nothing was contestable.
  double mass = 1;
  // The mean of that ratio with every (step, lane) counting the same, however
  // little it reads from afar.
  double mass_unweighted = 1;
  // Share that is resident of the smallest set of tokens holding 90 % of the
  // contestable mass; the set has at most as many tokens as were resident.
  double topk = 1;
  // Sinks and recent tokens included. Near 1 for every policy, because these
  // hold most of the mass.
  double raw = 1;
  uint32_t sampled_steps = 0;
};

}  // namespace lkv
