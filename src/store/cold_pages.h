// ColdPages: the coarse copies of one sequence's tokens, group by group.
//
// A lane has groups of 64 consecutive tokens from its first on, without gaps. A
// group is a digest, from which attention is estimated, and the bodies of its
// pages, which complete it (kernels/cold_group.h). Groups never change once
// they are filled, so forks share them.
//
// Thread-compatible; different lanes may be filled and read at the same time.
// Allocates in Create and Fork only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/state_stream.h"
#include "base/types.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/status.h"
#include "store/page_pool.h"

namespace lkv {

class ColdPages {
 public:
  struct Options {
    uint32_t n_lanes = 0;
    uint32_t head_dim = 0;
    uint32_t groups_per_lane = 0;  // of the longest text
  };
  static Result<ColdPages> Create(const Options& options);
  ~ColdPages();
  ColdPages(ColdPages&&) = default;
  ColdPages& operator=(ColdPages&&) = delete;

  // Another sequence with the same groups. O(groups); copies no payload.
  Result<ColdPages> Fork();

  static size_t DigestBytes(uint32_t head_dim) {
    return kColdDigestBytesPerDim * head_dim;
  }
  static size_t BodyBytes(uint32_t head_dim) {
    return kColdBodyBytesPerDim * head_dim + kColdBodyScaleBytes;
  }
  // What a group of one lane takes, and the part of it that is bookkeeping: the
  // addresses of digest and bodies, and their holders.
  static size_t GroupBytes(uint32_t head_dim) {
    return DigestBytes(head_dim) + kColdGroupPages * BodyBytes(head_dim) +
           kMetadataBytesPerGroup;
  }
  static constexpr size_t kMetadataBytesPerGroup =
      2 * sizeof(uint8_t*) + 2 * PagePool::kBytesPerPage;

  // Opens the next group of a lane; by one caller for all lanes. Requires that
  // the lane has fewer than groups_per_lane.
  void Open(uint32_t lane);
  bool HasOpen(uint32_t lane) const {
    return n_filled_[lane] < digests_[lane].size();
  }
  // Where the first group that is open is to be written; Fill says that it has
  // been.
  struct OpenGroup {
    uint8_t* digest;
    uint8_t* bodies[kColdGroupPages];
  };
  OpenGroup FirstOpen(uint32_t lane) const;
  void Fill(uint32_t lane) { ++n_filled_[lane]; }

  // How many groups each lane has; between steps, when all are filled. Reading,
  // into an object that has none, their contents are still to be written.
  void ExchangeState(StateStream& stream);
  // Digest and bodies of a filled group, as they are: [GroupPayloadBytes].
  static size_t GroupPayloadBytes(uint32_t head_dim) {
    return DigestBytes(head_dim) + kColdGroupPages * BodyBytes(head_dim);
  }
  void CopyGroup(uint32_t lane, uint32_t index, uint8_t* to) const;
  void SetGroup(uint32_t lane, uint32_t index, const uint8_t* from);

  // Open and filled ones.
  uint32_t n_opened(uint32_t lane) const {
    return static_cast<uint32_t>(digests_[lane].size());
  }
  // Filled ones.
  uint32_t n_groups(uint32_t lane) const { return n_filled_[lane]; }
  // [n_groups]
  std::span<const uint8_t* const> digests(uint32_t lane) const {
    return {digests_[lane].data(), n_filled_[lane]};
  }
  // Page `index` of a lane, counted from its first token. Requires it to lie in
  // a filled group.
  ColdPage PageAt(uint32_t lane, uint32_t index) const {
    return {.digest = digests_[lane][index / kColdGroupPages],
            .body = BodyAt(lane, index),
            .index = index % kColdGroupPages};
  }
  const uint8_t* BodyAt(uint32_t lane, uint32_t index) const {
    return bodies_[lane][index / kColdGroupPages] +
           index % kColdGroupPages * body_bytes_;
  }

  // Payload and bookkeeping of all groups.
  uint64_t n_bytes() const { return n_opened_ * GroupBytes(options_.head_dim); }

 private:
  // Owners: the sequence that takes groups from them, and every fork that holds
  // some.
  struct Pools {
    std::shared_ptr<PagePool> digests;
    std::shared_ptr<PagePool> bodies;
  };
  static Result<Pools> CreatePools(const Options& options);

  ColdPages(const Options& options, Pools pools);
  // For Fork, which makes the copy a holder of the groups.
  ColdPages(const ColdPages&) = default;

  // The pools that a group lies in.
  const Pools& PoolsOf(const uint8_t* digest) const;

  Options options_;
  size_t body_bytes_;
  std::vector<Pools> pools_;                    // own ones last
  uint64_t n_opened_ = 0;                       // groups of all lanes
  std::vector<uint32_t> n_filled_;              // [n_lanes]
  std::vector<std::vector<uint8_t*>> digests_;  // [n_lanes][groups]
  std::vector<std::vector<uint8_t*>> bodies_;   // [n_lanes][groups]
};

}  // namespace lkv
