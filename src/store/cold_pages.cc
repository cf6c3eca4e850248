#include "store/cold_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lkv {

Result<ColdPages::Pools> ColdPages::CreatePools(const Options& options) {
  const auto create = [&](size_t page_bytes) {
    return PagePool::Create(
        {.page_bytes = page_bytes,
         .capacity_pages = options.n_lanes * options.groups_per_lane,
         .n_owners = options.n_lanes});
  };
  Result<PagePool> digests = create(DigestBytes(options.head_dim));
  if (!digests.ok()) return digests.status();
  Result<PagePool> bodies =
      create(kColdGroupPages * BodyBytes(options.head_dim));
  if (!bodies.ok()) return bodies.status();
  return Pools{std::make_shared<PagePool>(*std::move(digests)),
               std::make_shared<PagePool>(*std::move(bodies))};
}

Result<ColdPages> ColdPages::Create(const Options& options) {
  Result<Pools> pools = CreatePools(options);
  if (!pools.ok()) return pools.status();
  return ColdPages(options, *std::move(pools));
}

ColdPages::ColdPages(const Options& options, Pools pools)
    : options_(options),
      body_bytes_(BodyBytes(options.head_dim)),
      pools_{std::move(pools)},
      n_filled_(options.n_lanes),
      digests_(options.n_lanes),
      bodies_(options.n_lanes) {
  for (uint32_t lane = 0; lane < options.n_lanes; ++lane) {
    digests_[lane].reserve(options.groups_per_lane);
    bodies_[lane].reserve(options.groups_per_lane);
  }
}

Result<ColdPages> ColdPages::Fork() {
  Result<Pools> theirs = CreatePools(options_);
  if (!theirs.ok()) return theirs.status();
  ColdPages fork(*this);
  fork.pools_.push_back(*std::move(theirs));
  for (uint32_t lane = 0; lane < options_.n_lanes; ++lane) {
    CHECK(!HasOpen(lane));
    // Copies of vectors have no room to spare.
    fork.digests_[lane].reserve(options_.groups_per_lane);
    fork.bodies_[lane].reserve(options_.groups_per_lane);
    for (size_t i = 0; i < digests_[lane].size(); ++i) {
      const Pools& pools = PoolsOf(digests_[lane][i]);
      pools.digests->Share(digests_[lane][i]);
      pools.bodies->Share(bodies_[lane][i]);
    }
  }
  return fork;
}

ColdPages::~ColdPages() {
  for (uint32_t lane = 0; lane < digests_.size(); ++lane) {
    for (size_t i = 0; i < digests_[lane].size(); ++i) {
      const Pools& pools = PoolsOf(digests_[lane][i]);
      pools.digests->Give(digests_[lane][i]);
      pools.bodies->Give(bodies_[lane][i]);
    }
  }
}

const ColdPages::Pools& ColdPages::PoolsOf(const uint8_t* digest) const {
  const auto at = std::find_if(
      pools_.begin(), pools_.end(),
      [&](const Pools& pools) { return pools.digests->Contains(digest); });
  CHECK(at != pools_.end());
  return *at;
}

void ColdPages::Open(uint32_t lane) {
  CHECK(n_opened(lane) < options_.groups_per_lane);
  const Pools& own = pools_.back();
  digests_[lane].push_back(own.digests->TakeFor(lane));
  bodies_[lane].push_back(own.bodies->TakeFor(lane));
  ++n_opened_;
}

ColdPages::OpenGroup ColdPages::FirstOpen(uint32_t lane) const {
  CHECK(HasOpen(lane));
  const uint32_t first = n_filled_[lane];
  OpenGroup group{.digest = digests_[lane][first], .bodies = {}};
  for (uint32_t i = 0; i < kColdGroupPages; ++i) {
    group.bodies[i] = bodies_[lane][first] + i * body_bytes_;
  }
  return group;
}

void ColdPages::ExchangeState(StateStream& stream) {
  for (uint32_t lane = 0; lane < options_.n_lanes; ++lane) {
    CHECK(!HasOpen(lane));
    uint32_t n_groups = n_filled_[lane];
    stream.ExchangeCount(n_groups, options_.groups_per_lane);
    while (n_filled_[lane] < n_groups) {
      Open(lane);
      Fill(lane);
    }
  }
}

void ColdPages::CopyGroup(uint32_t lane, uint32_t index, uint8_t* to) const {
  const size_t digest_bytes = DigestBytes(options_.head_dim);
  std::memcpy(to, digests_[lane][index], digest_bytes);
  std::memcpy(to + digest_bytes, bodies_[lane][index],
              kColdGroupPages * body_bytes_);
}

void ColdPages::SetGroup(uint32_t lane, uint32_t index, const uint8_t* from) {
  CHECK(index < n_filled_[lane]);
  const size_t digest_bytes = DigestBytes(options_.head_dim);
  std::memcpy(digests_[lane][index], from, digest_bytes);
  std::memcpy(bodies_[lane][index], from + digest_bytes,
              kColdGroupPages * body_bytes_);
}

}  // namespace lkv
