#include "policy/place_policies.h"

namespace lkv {
namespace {

// SplitMix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

float ArrivalPolicy::InitialStat(uint32_t /*lane*/, uint32_t pos) const {
  return static_cast<float>(pos);
}

float RandomPolicy::InitialStat(uint32_t lane, uint32_t pos) const {
  uint64_t hash = Mix(Mix(seed_) ^ (uint64_t{lane} << 32 | pos));
  return static_cast<float>(hash >> 40) * 0x1p-24f;  // [0, 1)
}

}  // namespace lkv
