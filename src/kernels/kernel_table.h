// KernelTable: the one door to the compute kernels. Chosen once at start
// (SelectKernels), then called through plain function pointers.
//
// Kernels are free functions on pointers and sizes: they know no page table
// class, model, policy or error. Every set (scalar, avx2, avx512) computes the
// same functions; the scalar one is the readable reference, the others are
// tested against it with the tolerance stated beside each test. All buffers
// are caller's; nothing here allocates. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "kernels/cold_group.h"
#include "kernels/tiles.h"

namespace lkv {

// Slots of one page; the same number as the rows of a tile, so that one
// 64-byte register holds one value of each slot. (Files that are compiled for a
// vector set call no function of base/types.h: the linker may keep that copy,
// with its instructions, for everybody.)
inline constexpr uint32_t kPageSlots = kPageTokens;

// Slots between two looks at the running maximum in attention: the
// unnormalised probabilities of one chunk share one maximum (`p_max`).
inline constexpr uint32_t kAttendChunkSlots = 256;

// Activations of `n_tokens` rows, quantised per 32 columns (symmetric).
// x = scale * (256 * high + low) with 16-bit activations (low != nullptr),
// x = scale * high with 8-bit ones (low == nullptr).
struct QuantizedRows {
  const int8_t* high;  // [n_tokens, stride]
  const int8_t* low;   // [n_tokens, stride] or nullptr
  const float* scale;  // [n_tokens, stride / 32]
  const float* sums;   // [n_tokens, stride / 16], x summed over 16 columns as
                       // quantised: what offsets and minimums multiply
  size_t stride;       // columns, padded to a multiple of 32 with zeros
};

// y[t, r] = sum_c W[r, c] x[t, c] for the rows of tiles
// [row_tile_begin, row_tile_end). Writes whole tiles of 16 rows.
struct MatmulArgs {
  const void* tiles;  // start of the matrix
  size_t n_column_tiles;
  size_t row_tile_begin;
  size_t row_tile_end;
  size_t n_tokens;
  QuantizedRows quantized;  // read by tile4, tile8, tile8x16
  const float* x;           // read by tile16: [n_tokens, x_stride], padded to
  size_t x_stride;          // 32 n_column_tiles with zeros
  float* y;                 // [n_tokens, y_stride]
  size_t y_stride;
  // What the same thread reads next: prefetched towards the end of the range.
  // nullptr: what lies behind it in memory.
  const void* next;
};

// Which slots of which pages, and what a page looks like. Page i of the run
// starts at pages[i]; pages may lie anywhere. All but the last are full.
//
// 16-bit elements: K [head_dim][16], then V [16][head_dim].
//
// int8: K [head_dim / 2][16][2], V [8][head_dim][2], then a bf16 scale for each
// slot's key [16] and value [16]; an element is scale * integer, the integer in
// [-127, 127]. Neighbours are what a multiplication of 16-bit pairs sums: two
// dimensions of a key, two slots' values. Keys are stored less key_offset.
struct PageRun {
  const uint8_t* const* pages;  // [ceil(n_slots / 16)]
  uint32_t n_slots;             // valid slots
  uint32_t head_dim;            // multiple of 16
  // Of int8 runs only: the first n_exact_pages pages of the run (at most all of
  // them) hold f16. (The sinks: nearly every query gives them a large part of
  // its attention, and their keys have outliers that stretch a scale.)
  uint32_t n_exact_pages = 0;
  // Of int8 runs only: [head_dim] to be added to each key that is not exact;
  // nullptr = nothing.
  const float* key_offset = nullptr;
  // Of mixed runs only: [ceil(n_slots / 16)], page i where pages[i] is nullptr;
  // the others hold f16.
  const ColdPage* cold = nullptr;
};

// One query token, all query heads of one KV head, over one run of pages.
struct AttendDecodeArgs {
  PageRun run;
  // What the same thread reads next, or nullptr: prefetched towards the end of
  // `run`. Without it nobody would have prefetched the first pages of a run,
  // which are half of its 512 slots.
  const PageRun* next = nullptr;
  uint32_t group;
  const float* q;  // [group, head_dim], already scaled by 1/sqrt(head_dim)
  // Attention state of this run: exp-weighted sum relative to `m`.
  float* m;  // [group] maximum logit
  float* l;  // [group] sum of exp(logit - m)
  float* o;  // [group, head_dim] sum of exp(logit - m) v, not divided by l
  // Probabilities kept for the mass, or nullptr: p[g * p_stride + slot] =
  // exp(logit - p_max[g * p_max_stride + slot / kAttendChunkSlots]).
  // p_stride is at least n_slots rounded up to 16; slots past n_slots are 0.
  float* p;
  size_t p_stride;
  float* p_max;
  size_t p_max_stride;
};

// `n_queries` consecutive query tokens over one lane's whole run, causal:
// query i sees the first n_visible + i slots (slots are in position order and
// the newest n_queries of them are the queries themselves).
struct AttendPrefillArgs {
  PageRun run;
  uint32_t group;
  uint32_t n_queries;
  uint32_t n_visible;  // slots that query 0 sees, its own included
  const float* q;      // query i, head g at q + i * q_stride + g * head_dim,
  size_t q_stride;     // already scaled
  float* out;          // normalised, same layout
  size_t out_stride;
  float* m;  // [n_queries, group] final maximum logit
  float* l;  // [n_queries, group] final sum
  // Observed queries, ascending, whose probabilities are kept as above; row
  // (j, g) of observed query j at p + (j * group + g) * p_stride, likewise
  // p_max. Slots that the query does not see are 0.
  const uint32_t* observed;
  uint32_t n_observed;
  float* p;
  size_t p_stride;
  float* p_max;
  size_t p_max_stride;
  float* scratch;  // [AttendPrefillScratch(head_dim)], 64-byte aligned
};

// Rows, (query, head) pairs, that one call of prefill attention should have, or
// a multiple: kernels read a chunk of slots once for that many.
inline constexpr uint32_t kPrefillRows = 144;

// Floats of scratch for AttendPrefillArgs: the logits and 16-bit probabilities
// of some rows and one chunk; of all rows the output and the 16-bit query; and
// the keys and values of a chunk in 16 bits.
inline constexpr uint32_t kPrefillScratchRows = 48;
inline constexpr size_t AttendPrefillScratch(uint32_t head_dim) {
  return (size_t{kPrefillScratchRows} * kAttendChunkSlots +
          size_t{kPrefillRows} * head_dim) *
             3 / 2 +
         size_t{kAttendChunkSlots} * head_dim;
}

// Attention mass of one observed query over a lane's slots, from kept
// probabilities: a_g(i) = p_g(i) exp(p_max_g(chunk of i) - m_g) / l_g.
struct ReduceMassArgs {
  const float* p;
  size_t p_stride;
  const float* p_max;
  size_t p_max_stride;
  const float* m;  // [group]
  const float* l;  // [group]
  uint32_t group;
  uint32_t n_slots;
  float* mass_max;   // [n_slots rounded up to 16] max over the group
  float* mass_mean;  // [n_slots rounded up to 16] mean over the group
};

// Merges the attention state of one more run into an accumulated one, for the
// same query heads: afterwards (m, l, o) is the state over both. A state that
// saw no slot (m = -infinity, l = 0, o = 0) may stand on either side.
// The result depends on the order of merges in the last bits: fix the order.
void MergeAttentionStates(uint32_t group, uint32_t head_dim, const float* run_m,
                          const float* run_l, const float* run_o, float* m,
                          float* l, float* o);

// What attention of several queries multiplies. kBF16: query, keys,
// probabilities and values, rounded to it.
enum class PrefillProducts : uint8_t { kF32, kBF16 };

// A network of two layers on many rows at once, the inputs as columns:
// y[i] = bias + sum_j direct[j] x_j[i]
//             + sum_h outer[h] max(0, hidden_bias[h] + sum_j inner[h, j]
//             x_j[i])
struct TwoLayerArgs {
  const float* x;  // input j of row i at x[j * x_stride + i]
  size_t x_stride;
  size_t n_rows;
  uint32_t n_inputs;
  uint32_t n_hidden;
  const float* inner;        // [n_hidden, n_inputs]
  const float* hidden_bias;  // [n_hidden]
  const float* outer;        // [n_hidden]
  const float* direct;       // [n_inputs]
  float bias;
  float* y;  // [n_rows]
};

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512"

  // --- weights times activations -------------------------------------------
  // Quantises one row of n_columns (multiple of 32). low may be nullptr.
  void (*quantize_row)(const float* x, size_t n_columns, int8_t* high,
                       int8_t* low, float* scale, float* sums);
  void (*matmul[kWeightFormats])(const MatmulArgs& args);

  // --- attention, indexed by KvType ----------------------------------------
  // Writes one token's k and v [head_dim] into slot `slot` of a page. int8: the
  // same bytes from every set; what a row that is not finite becomes is
  // unspecified.
  void (*write_slot[kKvTypes])(uint8_t* page, uint32_t slot, uint32_t head_dim,
                               const float* k, const float* v);
  void (*attend_decode[kKvTypes])(const AttendDecodeArgs& args);
  void (*attend_prefill[kKvTypes])(const AttendPrefillArgs& args);
  // kBF16 where the processor multiplies that faster; elsewhere the same
  // functions.
  void (*attend_prefill_bf16[kKvTypes])(const AttendPrefillArgs& args);
  // The same two over mixed runs of f16 and cold pages.
  void (*attend_prefill_mixed)(const AttendPrefillArgs& args);
  void (*attend_prefill_mixed_bf16)(const AttendPrefillArgs& args);
  void (*reduce_mass)(const ReduceMassArgs& args);
  // For slots [first, last) of a page: norms[slot - first] = |v|,
  // distances[slot - first] = |v - mean| with mean [head_dim].
  void (*value_stats[kKvTypes])(const uint8_t* page, uint32_t first,
                                uint32_t last, uint32_t head_dim,
                                const float* mean, float* norms,
                                float* distances);

  // --- cold groups (cold_group.h) -------------------------------------------
  // The same bytes from every set.
  void (*encode_cold)(const EncodeColdArgs& args);
  void (*scan_cold)(const ScanColdArgs& args);
  void (*page_sums)(const PageSumsArgs& args);
  void (*page_masses)(const PageMassesArgs& args);
  void (*attend_cold)(const AttendColdArgs& args);

  // --- rows -----------------------------------------------------------------
  // out = x / sqrt(mean(x^2) + eps) * weight.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps,
                   float* out);
  // out[i] = gate[i] * sigmoid(gate[i]) * up[i].
  void (*silu_multiply)(const float* gate, const float* up, size_t n,
                        float* out);
  void (*add)(const float* a, const float* b, size_t n, float* out);
  // Rotates pairs by precomputed angles. Normal order: pairs (2i, 2i+1);
  // NeoX order: pairs (i, i + n_pairs). cosine, sine: [n_pairs].
  void (*rope_normal)(float* x, const float* cosine, const float* sine,
                      size_t n_pairs);
  void (*rope_neox)(float* x, const float* cosine, const float* sine,
                    size_t n_pairs);
  // Moving average kept as f16 of value * kMassScale:
  // ema[i] = keep * ema[i] + (1 - keep) * x[i].
  void (*ema_f16)(uint16_t* ema, const float* x, size_t n, float keep);
  void (*two_layer)(const TwoLayerArgs& args);
};

// f16 loses small masses (1/8192 per token is ordinary, its own steps end at
// 6e-8); times 4096 the range 4e-12 .. 16 is kept with 11 bits.
inline constexpr float kMassScale = 4096.0f;

// Scalar conversions; used where a handful of values is converted.
float F16ToF32(uint16_t h);
uint16_t F32ToF16(float f);  // round to nearest even
float BF16ToF32(uint16_t h);
uint16_t F32ToBF16(float f);  // round to nearest even

// The best set that this processor runs, or the one that `forced` names
// ("scalar", "avx2", "avx512"; nullptr or "" = best). Returns nullptr when the
// name is unknown or the processor lacks it.
const KernelTable* SelectKernels(const char* forced);

// Names of the sets this processor runs, best first; ends with nullptr.
const char* const* AvailableKernels();

}  // namespace lkv
