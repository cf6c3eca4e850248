// Reference attention: straight loops over slots, one query head at a time.
#include <cmath>
#include <limits>

#include "kernels/kernel_sets.h"

namespace lkv {
namespace {

using Convert = float (*)(uint16_t);

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One page: K [head_dim][16], then V [16][head_dim].
struct Page {
  const uint16_t* keys;
  const uint16_t* values;
};

Page PageOf(const PageRun& run, uint32_t slot) {
  const uint8_t* bytes =
      run.pool + run.page_bytes * run.pages[slot / kPageSlots];
  const uint16_t* keys = reinterpret_cast<const uint16_t*>(bytes);
  return {keys, keys + size_t{kPageSlots} * run.head_dim};
}

template <Convert ToF32>
float Logit(const PageRun& run, uint32_t slot, const float* q) {
  const uint16_t* keys = PageOf(run, slot).keys + slot % kPageSlots;
  float sum = 0;
  for (uint32_t d = 0; d < run.head_dim; ++d) {
    sum += ToF32(keys[size_t{d} * kPageSlots]) * q[d];
  }
  return sum;
}

// Where the probabilities of one (query, head) are kept; p may be nullptr.
struct KeptRow {
  float* p = nullptr;
  float* p_max = nullptr;
};

struct State {
  float m = kMinusInfinity;
  float l = 0;
};

// Attention of one query head over the first n_visible slots of a run, chunk
// by chunk: the running maximum changes at chunk borders only, so that the
// probabilities kept of one chunk share it. o is not divided by l.
template <Convert ToF32>
State AttendRow(const PageRun& run, uint32_t n_visible, const float* q,
                float* o, KeptRow kept) {
  State state;
  for (uint32_t d = 0; d < run.head_dim; ++d) o[d] = 0;
  float logits[kAttendChunkSlots];
  for (uint32_t first = 0; first < n_visible; first += kAttendChunkSlots) {
    uint32_t n = n_visible - first < kAttendChunkSlots ? n_visible - first
                                                       : kAttendChunkSlots;
    float top = state.m;
    for (uint32_t i = 0; i < n; ++i) {
      logits[i] = Logit<ToF32>(run, first + i, q);
      top = std::fmax(top, logits[i]);
    }
    float rescale = std::exp(state.m - top);  // 0 in the first chunk
    state.m = top;
    state.l *= rescale;
    for (uint32_t d = 0; d < run.head_dim; ++d) o[d] *= rescale;
    for (uint32_t i = 0; i < n; ++i) {
      float p = std::exp(logits[i] - top);
      state.l += p;
      const uint16_t* v = PageOf(run, first + i).values +
                          size_t{(first + i) % kPageSlots} * run.head_dim;
      for (uint32_t d = 0; d < run.head_dim; ++d) o[d] += p * ToF32(v[d]);
      if (kept.p != nullptr) kept.p[first + i] = p;
    }
    if (kept.p != nullptr) kept.p_max[first / kAttendChunkSlots] = top;
  }
  if (kept.p != nullptr) {
    uint32_t n_padded =
        (run.n_slots + kPageSlots - 1) / kPageSlots * kPageSlots;
    for (uint32_t i = n_visible; i < n_padded; ++i) kept.p[i] = 0;
    uint32_t n_seen = (n_visible + kAttendChunkSlots - 1) / kAttendChunkSlots;
    for (uint32_t c = n_seen; c * kAttendChunkSlots < run.n_slots; ++c) {
      kept.p_max[c] = state.m;
    }
  }
  return state;
}

template <Convert ToF32>
void AttendDecode(const AttendDecodeArgs& args) {
  for (uint32_t g = 0; g < args.group; ++g) {
    KeptRow kept;
    if (args.p != nullptr) {
      kept = {args.p + g * args.p_stride, args.p_max + g * args.p_max_stride};
    }
    size_t row = size_t{g} * args.run.head_dim;
    State state = AttendRow<ToF32>(args.run, args.run.n_slots, args.q + row,
                                   args.o + row, kept);
    args.m[g] = state.m;
    args.l[g] = state.l;
  }
}

template <Convert ToF32>
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
      State state =
          AttendRow<ToF32>(args.run, args.n_visible + i, q, out, kept);
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

template <Convert ToF32>
void ValueStats(const uint8_t* page, uint32_t first, uint32_t last,
                uint32_t head_dim, const float* mean, float* norms,
                float* distances) {
  const uint16_t* values =
      reinterpret_cast<const uint16_t*>(page) + size_t{kPageSlots} * head_dim;
  for (uint32_t slot = first; slot < last; ++slot) {
    float norm = 0;
    float distance = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      float v = ToF32(values[size_t{slot} * head_dim + d]);
      norm += v * v;
      distance += (v - mean[d]) * (v - mean[d]);
    }
    norms[slot - first] = std::sqrt(norm);
    distances[slot - first] = std::sqrt(distance);
  }
}

}  // namespace

void AddScalarAttention(KernelTable* table) {
  table->write_slot[0] = WriteSlot<F32ToF16>;
  table->write_slot[1] = WriteSlot<F32ToBF16>;
  table->attend_decode[0] = AttendDecode<F16ToF32>;
  table->attend_decode[1] = AttendDecode<BF16ToF32>;
  table->attend_prefill[0] = AttendPrefill<F16ToF32>;
  table->attend_prefill[1] = AttendPrefill<BF16ToF32>;
  table->reduce_mass = ReduceMass;
  table->value_stats[0] = ValueStats<F16ToF32>;
  table->value_stats[1] = ValueStats<BF16ToF32>;
}

}  // namespace lkv
