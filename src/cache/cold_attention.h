// ColdAttention: attention of decoded tokens over what their sequences hold of
// tokens that have left: coarse copies (store/cold_pages.h).
//
// Per layer, for each lane: the digests of all groups give every token's logit
// by estimate; with the state of the exact pages that is a mass for every page.
// The best pages, up to the sequence's attend share of those that have left,
// are read in full, and what they give is merged with the exact part. The lanes of a layer share what may be read: a fifth of the
// mean is each one's own (the floor of AdaKV, arXiv 2407.11550), the rest goes
// to the pages of the greatest mass of all (Quest, arXiv 2406.10774, chooses by
// page, too, but by bounds of keys and for each head alone). The estimate is
// the current query's own: one step of delay costs a factor of seven in KL.
//
// Results depend on the calls alone: what is cut is cut at fixed places.
//
// Thread rule: Reserve by one caller, Attend by all members of the team. Attend
// allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "cache/kv_cache.h"
#include "cache/step_part.h"
#include "kernels/kernel_table.h"

namespace lkv {

class ColdAttention {
 public:
  ColdAttention(const KvShape& shape, const KernelTable& kernels,
                uint32_t max_threads);

  // Makes room for sequences of n_slots tokens and steps of n_parts of them.
  void Reserve(uint32_t n_slots, uint32_t n_parts);
  uint64_t n_bytes() const;

  // The attention state of the exact pages of one lane: [group] each.
  struct ExactState {
    const float* m;
    const float* l;
  };
  // One layer of a step. Parts in prefill, and those without copies, are
  // passed over.
  struct Call {
    std::span<const StepPart> parts;
    uint32_t layer;
    TokenRows q;  // of all heads, not scaled
    // exact[pair * exact_stride] and so on: of (part, KV head) pair `pair`.
    const float* exact_m;
    const float* exact_l;
    size_t exact_stride;
  };
  void Attend(TeamMember& me, const Call& call);

  // Merges what the last Attend read for a pair into an attention state.
  void MergeInto(size_t pair, float* m, float* l, float* o) const;

  static bool Concerns(const StepPart& part) {
    return part.n_tokens == 1 && part.sequence->cold() != nullptr;
  }

 private:
  // Groups of one item of the scan, pages of one item of the reading: 512
  // tokens, as in AttentionRunner.
  static constexpr uint32_t kScanGroups = 8;
  static constexpr uint32_t kRunPages = 32;

  struct Candidate {
    float mass;
    uint32_t kv_head;
    uint32_t page;
  };

  const StepPart& PartOf(const Call& call, size_t pair) const {
    return call.parts[pair / shape_.n_kv_heads];
  }
  uint32_t LaneOf(const Call& call, size_t pair) const {
    return shape_.LaneOf(call.layer,
                         static_cast<uint32_t>(pair % shape_.n_kv_heads));
  }
  const float* ScaledQuery(const Call& call, size_t pair, uint32_t member);

  void Scan(const Call& call, size_t pair, uint32_t run, uint32_t member);
  void EstimateMasses(const Call& call, size_t pair);
  void Choose(const Call& call, size_t part);
  void Read(const Call& call, size_t pair, uint32_t run, uint32_t member);

  const KvShape shape_;
  const KernelTable& kernels_;
  uint32_t slot_capacity_ = 0;
  uint32_t part_capacity_ = 0;
  size_t slot_stride_ = 0;
  size_t page_stride_ = 0;
  size_t run_stride_ = 0;
  std::vector<AlignedBuffer<float>> q_;  // [members][group, head_dim]
  AlignedBuffer<float> logits_;          // [pairs, group, slot_stride]
  // Estimated mass, the largest of the group's heads; below 0 for pages that
  // do not stand to be chosen: [pairs, page_stride].
  AlignedBuffer<float> mass_;
  AlignedBuffer<float> page_sums_;     // [pairs, page_stride]
  std::vector<Candidate> candidates_;  // [parts, n_kv_heads * page_stride]
  std::vector<ColdPage> chosen_;       // [pairs, page_stride]
  std::vector<uint32_t> n_chosen_;     // [pairs]
  AlignedBuffer<float> run_m_;         // [pairs, run_stride, group]
  AlignedBuffer<float> run_l_;         // [pairs, run_stride, group]
  AlignedBuffer<float> run_o_;         // [pairs, run_stride, group, head_dim]
};

}  // namespace lkv
