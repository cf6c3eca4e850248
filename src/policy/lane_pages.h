// Bookkeeping shared by everything that keeps state per page or slot of a lane:
// flat arrays in the lane's page order, which is position order.
//
// Thread rule: calls for different lanes may run at the same time. Allocates in
// the constructors only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/state_stream.h"
#include "base/types.h"
#include "policy/eviction_policy.h"

namespace lkv {

// Fixed-size entries for every page of every lane, as many as the longest text
// may need; a shorter one touches the beginning of each lane's part only:
// [n_lanes, pages_per_lane, entries_per_page].
template <typename T>
class LaneArray {
 public:
  LaneArray(const PolicyCapacity& capacity, uint32_t entries_per_page)
      : lane_stride_(size_t{capacity.pages_per_lane} * entries_per_page),
        entries_per_page_(entries_per_page),
        values_(lane_stride_ * capacity.n_lanes, Access::kSparse) {}
  LaneArray(const LaneArray& other);
  LaneArray(LaneArray&&) = default;

  T* of(uint32_t lane) { return values_.data() + lane * lane_stride_; }
  const T* of(uint32_t lane) const {
    return values_.data() + lane * lane_stride_;
  }

  // The first entries of a lane.
  void ExchangeState(StateStream& stream, uint32_t lane, uint32_t n_entries) {
    const std::span<T> entries(of(lane), n_entries);
    if constexpr (std::is_arithmetic_v<T>) {
      stream.Exchange(entries);
    } else {
      for (T& entry : entries) entry.ExchangeState(stream);
    }
  }

  // Closes the gap that page `index` of n_pages leaves. O(pages behind it).
  void RemovePage(uint32_t lane, uint32_t index, uint32_t n_pages) {
    T* gap = of(lane) + size_t{index} * entries_per_page_;
    size_t n_behind = size_t{n_pages - index - 1} * entries_per_page_;
    std::memmove(gap, gap + entries_per_page_, n_behind * sizeof(T));
  }

  // Requires an entry per slot.
  void MoveSlots(uint32_t lane, const SlotMoves& moves) {
    CHECK(entries_per_page_ == kPageTokens);
    T* entries = of(lane);
    for (size_t i = 0; i < moves.slots.size(); ++i) {
      entries[moves.target(i)] = entries[moves.slots[i]];
    }
  }

 private:
  size_t lane_stride_;
  size_t entries_per_page_;
  AlignedBuffer<T> values_;
};

// Takes memory for what is not zero only.
template <typename T>
LaneArray<T>::LaneArray(const LaneArray& other)
    : lane_stride_(other.lane_stride_),
      entries_per_page_(other.entries_per_page_),
      values_(other.values_.size(), Access::kSparse) {
  static constexpr char kZeros[4096] = {};
  constexpr size_t kPiece = sizeof(kZeros) / sizeof(T);
  for (size_t i = 0; i < values_.size(); i += kPiece) {
    const size_t n = std::min(kPiece, values_.size() - i);
    const T* const from = &other.values_[i];
    if (std::memcmp(from, kZeros, n * sizeof(T)) == 0) continue;
    std::copy_n(from, n, &values_[i]);
  }
}

// How many pages and slots each lane has and where its pages begin.
class LanePages {
 public:
  static constexpr size_t kBytesPerPage = sizeof(uint32_t);

  explicit LanePages(const PolicyCapacity& capacity);

  // Pages come in position order and hold kPageTokens slots each.
  void AddPage(uint32_t lane, uint32_t first_pos);
  // Returns the number of the first new slot.
  uint32_t AddSlots(uint32_t lane, uint32_t n);
  // Returns how many pages the lane had before, as LaneArray::RemovePage wants.
  uint32_t RemovePage(uint32_t lane, uint32_t index);

  // Comes before that of the arrays kept for its pages. Reading, it has the
  // same pages and slots already.
  void ExchangeState(StateStream& stream);

  // CHECKs that the observation covers slots which exist and are not younger
  // than its query: mass 0 of a slot that was not seen would count as evidence.
  void CheckSees(const LaneObservation& observation) const;

  uint32_t n_lanes() const { return static_cast<uint32_t>(n_pages_.size()); }
  uint32_t n_pages(uint32_t lane) const { return n_pages_[lane]; }
  uint32_t n_slots(uint32_t lane) const { return n_slots_[lane]; }
  uint32_t first_pos(uint32_t lane, uint32_t index) const {
    return first_pos_.of(lane)[index];
  }
  // Position that a slot was written with: while its page holds what it was
  // opened for.
  uint32_t PositionWritten(uint32_t lane, uint32_t slot) const {
    return first_pos(lane, slot / kPageTokens) + slot % kPageTokens;
  }
  // Filled slots of one page, 0 .. kPageTokens.
  uint32_t slots_in_page(uint32_t lane, uint32_t index) const;

 private:
  uint32_t pages_per_lane_;
  std::vector<uint32_t> n_pages_;  // [n_lanes]
  std::vector<uint32_t> n_slots_;  // [n_lanes]
  LaneArray<uint32_t> first_pos_;  // [n_lanes, pages_per_lane]
};

// Of arrays that have an entry for every slot of `pages`.
template <typename... T>
void ExchangeArrays(StateStream& stream, const LanePages& pages,
                    LaneArray<T>&... arrays) {
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    (arrays.ExchangeState(stream, lane, pages.n_slots(lane)), ...);
  }
}

}  // namespace lkv
