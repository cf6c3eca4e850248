// Rotation: how queries and keys were turned by their position before they come
// to the cache, for policies that expect queries to come. Plain data.
#pragma once

#include <vector>

#include "base/types.h"

namespace lkv {

// The leading elements of a head turn, two per frequency; others do not. What
// else RoPE does (the magnitude of YaRN) stays in queries that are turned back,
// and products with keys come out right.
struct Rotation {
  RopeOrder order = RopeOrder::kNormal;
  std::vector<double> frequencies = {};  // rad per position
};

}  // namespace lkv
