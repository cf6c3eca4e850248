// Reference attention: straight loops over slots, one query head at a time.
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/cold_layout.h"
#include "kernels/int8_page.h"
#include "kernels/kernel_sets.h"

namespace lkv {
namespace {

using Convert = float (*)(uint16_t);

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One slot of a page of 16-bit elements.
template <Convert ToF32>
class HalvesSlot {
 public:
  HalvesSlot(const uint8_t* page, uint32_t slot, uint32_t head_dim) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(page);
    keys_ = halves + slot;
    values_ = halves + size_t{kPageSlots + slot} * head_dim;
  }
  HalvesSlot(const PageRun& run, uint32_t slot)
      : HalvesSlot(run.pages[slot / kPageSlots], slot % kPageSlots,
                   run.head_dim) {}

  float Key(uint32_t d) const { return ToF32(keys_[size_t{d} * kPageSlots]); }
  float Value(uint32_t d) const { return ToF32(values_[d]); }

 private:
  const uint16_t* keys_;
  const uint16_t* values_;
};

// One slot of a page of int8, or of an exact page of an int8 run.
class Int8Slot {
 public:
  Int8Slot(const uint8_t* page, uint32_t slot, uint32_t head_dim) {
    const int8_t* integers = reinterpret_cast<const int8_t*>(page);
    const uint16_t* scales =
        reinterpret_cast<const uint16_t*>(page + Int8ScalesAt(head_dim));
    keys_ = integers + Int8KeyAt(slot, 0);
    values_ = integers + Int8ValueAt(head_dim, slot, 0);
    key_scale_ = BF16ToF32(scales[slot]);
    value_scale_ = BF16ToF32(scales[kPageSlots + slot]);
  }
  Int8Slot(const PageRun& run, uint32_t slot) {
    const uint32_t page = slot / kPageSlots;
    if (page < run.n_exact_pages) {
      exact_.emplace(run.pages[page], slot % kPageSlots, run.head_dim);
    } else {
      *this = Int8Slot(run.pages[page], slot % kPageSlots, run.head_dim);
      key_offset_ = run.key_offset;
    }
  }

  float Key(uint32_t d) const {
    if (exact_) return exact_->Key(d);
    const float key = key_scale_ * keys_[Int8KeyAt(0, d)];
    return key_offset_ != nullptr ? key + key_offset_[d] : key;
  }
  float Value(uint32_t d) const {
    if (exact_) return exact_->Value(d);
    return value_scale_ * values_[size_t{d} * 2];
  }

 private:
  std::optional<HalvesSlot<F16ToF32>> exact_;
  const float* key_offset_ = nullptr;
  const int8_t* keys_ = nullptr;
  const int8_t* values_ = nullptr;
  float key_scale_ = 0;
  float value_scale_ = 0;
};

// One slot of a cold page.
class ColdSlot {
 public:
  ColdSlot() = default;
  ColdSlot(const ColdPage& page, uint32_t slot, uint32_t head_dim)
      : page_(page), slot_(slot), head_dim_(head_dim) {}

  uint32_t KeyLower(uint32_t d) const {
    return page_.body[ColdLowerAt(slot_, d)] >> ColdLowerShift(d) & 3;
  }
  float Key(uint32_t d) const {
    const auto* scales = reinterpret_cast<const uint16_t*>(
        page_.digest + ColdKeyScalesAt(head_dim_));
    const uint32_t upper =
        page_.digest[ColdUpperAt(slot_, d)] >> (2 * page_.index) & 3;
    return ElementOf(4 * upper + KeyLower(d), scales[d], scales[head_dim_ + d]);
  }
  float Value(uint32_t d) const {
    const auto* scales = reinterpret_cast<const uint16_t*>(
        page_.body + ColdValueScalesAt(head_dim_));
    const uint32_t level =
        page_.body[ColdValueAt(head_dim_, slot_, d)] >> ColdValueShift(slot_) &
        15;
    return ElementOf(level, scales[slot_], scales[kPageSlots + slot_]);
  }

 private:
  static float ElementOf(uint32_t level, uint16_t scale, uint16_t min) {
    return F16ToF32(min) + F16ToF32(scale) * static_cast<float>(level);
  }

  ColdPage page_;
  uint32_t slot_ = 0;
  uint32_t head_dim_ = 0;
};

// One slot of a mixed run.
class MixedSlot {
 public:
  MixedSlot(const PageRun& run, uint32_t slot) {
    if (run.pages[slot / kPageSlots] != nullptr) {
      exact_.emplace(run, slot);
    } else {
      cold_ = ColdSlot(run.cold[slot / kPageSlots], slot % kPageSlots,
                       run.head_dim);
    }
  }

  float Key(uint32_t d) const { return exact_ ? exact_->Key(d) : cold_.Key(d); }
  float Value(uint32_t d) const {
    return exact_ ? exact_->Value(d) : cold_.Value(d);
  }

 private:
  std::optional<HalvesSlot<F16ToF32>> exact_;
  ColdSlot cold_;
};

// Where the probabilities of one (query, head) are kept; p may be nullptr.
struct KeptRow {
  float* p = nullptr;
  float* p_max = nullptr;
};

struct State {
  float m = kMinusInfinity;
  float l = 0;
};

// Attention of one query head over the first n_visible of n_slots slots, chunk
// by chunk: the running maximum changes at chunk borders only, so that the
// probabilities kept of one chunk share it. slot_of(i) has the values of slot
// i. o is not divided by l.
template <typename LogitOf, typename SlotOf>
State AttendSlots(uint32_t n_slots, uint32_t n_visible, uint32_t head_dim,
                  const LogitOf& logit_of, const SlotOf& slot_of, float* o,
                  KeptRow kept) {
  State state;
  for (uint32_t d = 0; d < head_dim; ++d) o[d] = 0;
  float logits[kAttendChunkSlots];
  for (uint32_t first = 0; first < n_visible; first += kAttendChunkSlots) {
    uint32_t n = n_visible - first < kAttendChunkSlots ? n_visible - first
                                                       : kAttendChunkSlots;
    float top = state.m;
    for (uint32_t i = 0; i < n; ++i) {
      logits[i] = logit_of(first + i);
      top = std::fmax(top, logits[i]);
    }
    float rescale = std::exp(state.m - top);  // 0 in the first chunk
    state.m = top;
    state.l *= rescale;
    for (uint32_t d = 0; d < head_dim; ++d) o[d] *= rescale;
    for (uint32_t i = 0; i < n; ++i) {
      float p = std::exp(logits[i] - top);
      state.l += p;
      const auto slot = slot_of(first + i);
      for (uint32_t d = 0; d < head_dim; ++d) o[d] += p * slot.Value(d);
      if (kept.p != nullptr) kept.p[first + i] = p;
    }
    if (kept.p != nullptr) kept.p_max[first / kAttendChunkSlots] = top;
  }
  if (kept.p != nullptr) {
    uint32_t n_padded = (n_slots + kPageSlots - 1) / kPageSlots * kPageSlots;
    for (uint32_t i = n_visible; i < n_padded; ++i) kept.p[i] = 0;
    uint32_t n_seen = (n_visible + kAttendChunkSlots - 1) / kAttendChunkSlots;
    for (uint32_t c = n_seen; c * kAttendChunkSlots < n_slots; ++c) {
      kept.p_max[c] = state.m;
    }
  }
  return state;
}

template <typename Slot>
State AttendRow(const PageRun& run, uint32_t n_visible, const float* q,
                float* o, KeptRow kept) {
  const auto slot_of = [&](uint32_t slot) { return Slot(run, slot); };
  const auto logit_of = [&](uint32_t slot) {
    const Slot key(run, slot);
    float sum = 0;
    for (uint32_t d = 0; d < run.head_dim; ++d) sum += key.Key(d) * q[d];
    return sum;
  };
  return AttendSlots(run.n_slots, n_visible, run.head_dim, logit_of, slot_of, o,
                     kept);
}

template <typename Slot>
void AttendDecode(const AttendDecodeArgs& args) {
  for (uint32_t g = 0; g < args.group; ++g) {
    KeptRow kept;
    if (args.p != nullptr) {
      kept = {args.p + g * args.p_stride, args.p_max + g * args.p_max_stride};
    }
    size_t row = size_t{g} * args.run.head_dim;
    State state = AttendRow<Slot>(args.run, args.run.n_slots, args.q + row,
                                  args.o + row, kept);
    args.m[g] = state.m;
    args.l[g] = state.l;
  }
}

void AttendCold(const AttendColdArgs& args) {
  const ColdEstimates& of = args.of;
  const uint32_t n_slots = args.n_pages * kPageSlots;
  const auto slot_of = [&](uint32_t slot) {
    const ColdPage page = {.body = args.pages[slot / kPageSlots].body};
    return ColdSlot(page, slot % kPageSlots, of.head_dim);
  };
  for (uint32_t g = 0; g < of.group; ++g) {
    const auto logit_of = [&](uint32_t slot) {
      const uint32_t page = args.pages[slot / kPageSlots].page;
      const size_t row = size_t{page / kColdGroupPages} * of.group + g;
      const int8_t* const q = of.q + row * of.head_dim;
      const ColdSlot key = slot_of(slot);
      int32_t sum = 0;
      for (uint32_t d = 0; d < of.head_dim; ++d) {
        sum += q[d] * static_cast<int32_t>(key.KeyLower(d));
      }
      const float estimate = of.logits[g * of.logit_stride + page * kPageSlots +
                                       slot % kPageSlots];
      return estimate + of.offsets[row] +
             of.units[row] * static_cast<float>(sum);
    };
    KeptRow kept;
    if (args.p != nullptr) {
      kept = {args.p + g * args.p_stride, args.p_max + g * args.p_max_stride};
    }
    const State state =
        AttendSlots(n_slots, n_slots, of.head_dim, logit_of, slot_of,
                    args.o + size_t{g} * of.head_dim, kept);
    args.m[g] = state.m;
    args.l[g] = state.l;
  }
}

template <typename Slot>
void AttendPrefill(const AttendPrefillArgs& args) {
  uint32_t j = 0;  // next observed query
  for (uint32_t i = 0; i < args.n_queries; ++i) {
    bool is_observed = j < args.n_observed && args.observed[j] == i;
    for (uint32_t g = 0; g < args.group; ++g) {
      KeptRow kept;
      if (is_observed) {
        size_t row = size_t{j} * args.group + g;
        kept = {args.p + row * args.p_stride,
                args.p_max + row * args.p_max_stride};
      }
      uint32_t head_dim = args.run.head_dim;
      const float* q = args.q + i * args.q_stride + size_t{g} * head_dim;
      float* out = args.out + i * args.out_stride + size_t{g} * head_dim;
      State state = AttendRow<Slot>(args.run, args.n_visible + i, q, out, kept);
      for (uint32_t d = 0; d < head_dim; ++d) out[d] /= state.l;
      args.m[size_t{i} * args.group + g] = state.m;
      args.l[size_t{i} * args.group + g] = state.l;
    }
    if (is_observed) ++j;
  }
}

void ReduceMass(const ReduceMassArgs& args) {
  uint32_t n_padded = (args.n_slots + kPageSlots - 1) / kPageSlots * kPageSlots;
  for (uint32_t i = 0; i < n_padded; ++i) {
    float max = 0;
    float sum = 0;
    for (uint32_t g = 0; g < args.group; ++g) {
      float p_max = args.p_max[g * args.p_max_stride + i / kAttendChunkSlots];
      float mass = args.p[g * args.p_stride + i] *
                   (std::exp(p_max - args.m[g]) / args.l[g]);
      max = std::fmax(max, mass);
      sum += mass;
    }
    args.mass_max[i] = max;
    args.mass_mean[i] = sum / static_cast<float>(args.group);
  }
}

template <uint16_t (*FromF32)(float)>
void WriteSlot(uint8_t* page, uint32_t slot, uint32_t head_dim, const float* k,
               const float* v) {
  uint16_t* keys = reinterpret_cast<uint16_t*>(page);
  uint16_t* values = keys + size_t{kPageSlots} * head_dim;
  for (uint32_t d = 0; d < head_dim; ++d) {
    keys[size_t{d} * kPageSlots + slot] = FromF32(k[d]);
    values[size_t{slot} * head_dim + d] = FromF32(v[d]);
  }
}

// One row as integers in [-127, 127] times the bf16 scale returned.
uint16_t QuantizeRow(const float* x, uint32_t n, int8_t* integers) {
  float largest = 0;
  for (uint32_t d = 0; d < n; ++d) {
    largest = std::fmax(largest, std::fabs(x[d]));
  }
  const Int8Scale scale = Int8ScaleOf(largest);
  for (uint32_t d = 0; d < n; ++d) {
    integers[d] = static_cast<int8_t>(std::lrint(x[d] * scale.inverse));
  }
  return scale.bf16;
}

template <typename Slot>
void ValueStats(const uint8_t* page, uint32_t first, uint32_t last,
                uint32_t head_dim, const float* mean, float* norms,
                float* distances) {
  for (uint32_t slot = first; slot < last; ++slot) {
    const Slot values(page, slot, head_dim);
    float norm = 0;
    float distance = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      float v = values.Value(d);
      norm += v * v;
      distance += (v - mean[d]) * (v - mean[d]);
    }
    norms[slot - first] = std::sqrt(norm);
    distances[slot - first] = std::sqrt(distance);
  }
}

}  // namespace

void AddScalarAttention(KernelTable* table) {
  constexpr auto f16 = static_cast<size_t>(KvType::kF16);
  constexpr auto bf16 = static_cast<size_t>(KvType::kBF16);
  constexpr auto int8 = static_cast<size_t>(KvType::kInt8);
  using F16 = HalvesSlot<F16ToF32>;
  using BF16 = HalvesSlot<BF16ToF32>;
  table->write_slot[f16] = WriteSlot<F32ToF16>;
  table->write_slot[bf16] = WriteSlot<F32ToBF16>;
  table->write_slot[int8] = WriteInt8Slot<QuantizeRow>;
  table->attend_decode[f16] = AttendDecode<F16>;
  table->attend_decode[bf16] = AttendDecode<BF16>;
  table->attend_decode[int8] = AttendDecode<Int8Slot>;
  table->attend_prefill[f16] = AttendPrefill<F16>;
  table->attend_prefill[bf16] = AttendPrefill<BF16>;
  table->attend_prefill[int8] = AttendPrefill<Int8Slot>;
  table->attend_prefill_mixed = AttendPrefill<MixedSlot>;
  table->attend_cold = AttendCold;
  table->reduce_mass = ReduceMass;
  table->value_stats[f16] = ValueStats<F16>;
  table->value_stats[bf16] = ValueStats<BF16>;
  table->value_stats[int8] = ValueStats<Int8Slot>;
}

}  // namespace lkv
