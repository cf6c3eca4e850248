// Shared by the tests of cold groups: groups of a lane, decoded as
// cold_group.h says, independently of the kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"

namespace lkv {

// Digests and bodies of consecutive groups, each followed by bytes that nobody
// may write to. Slots are numbered through all groups.
class ColdGroups {
 public:
  // Random levels; scales and mins of elements in about [-1, 1].
  ColdGroups(uint32_t n_groups, uint32_t head_dim, Random* random)
      : ColdGroups(n_groups, head_dim) {
    for (std::vector<uint8_t>& digest : digests_) {
      Draw(digest.data(), size_t{16} * head_dim, head_dim, random);
    }
    for (std::vector<uint8_t>& body : bodies_) {
      Draw(body.data(), size_t{12} * head_dim, kPageSlots, random);
    }
  }
  // Nothing but bytes to be written over.
  ColdGroups(uint32_t n_groups, uint32_t head_dim)
      : head_dim(head_dim),
        digests_(n_groups, std::vector<uint8_t>(digest_bytes() + kGuardBytes,
                                                kGuardByte)),
        bodies_(n_groups * kColdGroupPages,
                std::vector<uint8_t>(body_bytes() + kGuardBytes, kGuardByte)) {}

  const uint32_t head_dim;

  uint32_t n_groups() const { return static_cast<uint32_t>(digests_.size()); }
  uint32_t n_pages() const { return n_groups() * kColdGroupPages; }
  uint32_t n_slots() const { return n_groups() * kColdGroupSlots; }
  size_t digest_bytes() const { return size_t{20} * head_dim; }
  size_t body_bytes() const { return size_t{12} * head_dim + 64; }

  uint8_t* digest(uint32_t group) { return digests_[group].data(); }
  const uint8_t* digest(uint32_t group) const { return digests_[group].data(); }
  uint8_t* body(uint32_t page) { return bodies_[page].data(); }
  ColdPage Page(uint32_t page) const {
    return {.digest = digest(page / kColdGroupPages),
            .body = bodies_[page].data(),
            .index = page % kColdGroupPages};
  }

  uint32_t KeyLevel(uint32_t slot, uint32_t d) const {
    const ColdPage page = Page(slot / kPageSlots);
    const uint32_t s = slot % kPageSlots;
    const uint32_t upper =
        page.digest[d / 4 * 64 + s * 4 + d % 4] >> (2 * page.index);
    const uint32_t lower =
        page.body[d / 16 * 64 + s * 4 + d % 4] >> (2 * (d / 4 % 4));
    return upper % 4 * 4 + lower % 4;
  }
  uint32_t ValueLevel(uint32_t slot, uint32_t d) const {
    const ColdPage page = Page(slot / kPageSlots);
    const uint32_t s = slot % kPageSlots;
    const uint8_t byte =
        page.body[size_t{4} * head_dim + (s / 8 * head_dim + d) * 4 + s % 4];
    return s % 8 < 4 ? byte % 16 : byte / 16;
  }
  double KeyScale(uint32_t group, uint32_t d) const {
    return HalfAt(digest(group) + 16 * head_dim + 2 * d);
  }
  double KeyMin(uint32_t group, uint32_t d) const {
    return HalfAt(digest(group) + 18 * head_dim + 2 * d);
  }
  double ValueScale(uint32_t slot) const {
    return HalfAt(Page(slot / kPageSlots).body + 12 * head_dim +
                  2 * (slot % kPageSlots));
  }
  double ValueMin(uint32_t slot) const {
    return HalfAt(Page(slot / kPageSlots).body + 12 * head_dim + 32 +
                  2 * (slot % kPageSlots));
  }
  double Key(uint32_t slot, uint32_t d) const {
    const uint32_t group = slot / kColdGroupSlots;
    return KeyMin(group, d) + KeyScale(group, d) * KeyLevel(slot, d);
  }
  // As far as the digest knows it.
  double EstimatedKey(uint32_t slot, uint32_t d) const {
    const uint32_t group = slot / kColdGroupSlots;
    const uint32_t upper = KeyLevel(slot, d) / 4;
    return KeyMin(group, d) + KeyScale(group, d) * (4 * upper + 1.5);
  }
  double Value(uint32_t slot, uint32_t d) const {
    return ValueMin(slot) + ValueScale(slot) * ValueLevel(slot, d);
  }

  void SetKeyScale(uint32_t group, uint32_t d, float scale, float min) {
    PutHalf(digest(group) + 16 * head_dim + 2 * d, scale);
    PutHalf(digest(group) + 18 * head_dim + 2 * d, min);
  }

  // The bytes of all, without and with what follows them.
  bool operator==(const ColdGroups& other) const {
    return digests_ == other.digests_ && bodies_ == other.bodies_;
  }
  bool GuardsAreIntact() const {
    const auto is_intact = [](const std::vector<uint8_t>& bytes) {
      return std::all_of(bytes.end() - kGuardBytes, bytes.end(),
                         [](uint8_t byte) { return byte == kGuardByte; });
    };
    return std::all_of(digests_.begin(), digests_.end(), is_intact) &&
           std::all_of(bodies_.begin(), bodies_.end(), is_intact);
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr uint8_t kGuardByte = 0xa5;

  static double HalfAt(const uint8_t* at) {
    uint16_t half;
    std::memcpy(&half, at, sizeof(half));
    return F16ToF32(half);
  }
  static void PutHalf(uint8_t* at, float x) {
    const uint16_t half = F32ToF16(x);
    std::memcpy(at, &half, sizeof(half));
  }
  // n_levels random bytes, then n_scales scales and as many mins.
  static void Draw(uint8_t* bytes, size_t n_levels, uint32_t n_scales,
                   Random* random) {
    for (size_t i = 0; i < n_levels; ++i) {
      bytes[i] = static_cast<uint8_t>(random->Below(256));
    }
    for (uint32_t i = 0; i < n_scales; ++i) {
      PutHalf(bytes + n_levels + 2 * i, random->Uniform(0.5f, 1) * 2 / 15);
      PutHalf(bytes + n_levels + 2 * (n_scales + i), random->Uniform(-1, 0));
    }
  }

  std::vector<std::vector<uint8_t>> digests_;
  std::vector<std::vector<uint8_t>> bodies_;  // page by page
};

// What a scan of the groups of a lane finds, in buffers that are exactly large
// enough.
struct Scanned {
  std::vector<float> logits;  // [group, n_slots]
  std::vector<int8_t> q;
  std::vector<float> units, offsets;
  ColdEstimates estimates;

  // In calls of groups_per_call groups; digests may lie anywhere.
  Scanned(const KernelTable& set, const ColdGroups& cold, uint32_t group,
          const std::vector<float>& query, uint32_t groups_per_call)
      : logits(size_t{group} * cold.n_slots()),
        q(size_t{group} * cold.n_groups() * cold.head_dim),
        units(size_t{group} * cold.n_groups()),
        offsets(units.size()),
        estimates{.group = group,
                  .head_dim = cold.head_dim,
                  .logits = logits.data(),
                  .logit_stride = cold.n_slots(),
                  .q = q.data(),
                  .units = units.data(),
                  .offsets = offsets.data()} {
    std::vector<const uint8_t*> digests;
    for (uint32_t i = 0; i < cold.n_groups(); ++i) {
      digests.push_back(cold.digest(i));
    }
    for (uint32_t i = 0; i < cold.n_groups(); i += groups_per_call) {
      const uint32_t n = std::min(groups_per_call, cold.n_groups() - i);
      set.scan_cold({.digests = &digests[i],
                     .first_group = i,
                     .n_groups = n,
                     .ahead = digests.data() + i + n,
                     .n_ahead = cold.n_groups() - i - n,
                     .q = query.data(),
                     .to = estimates});
    }
  }
  Scanned(const Scanned&) = delete;
  Scanned& operator=(const Scanned&) = delete;
};

}  // namespace lkv
