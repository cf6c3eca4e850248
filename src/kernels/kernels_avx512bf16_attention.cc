// Prefill attention in products of bf16, two at a time, summed in f32: half the
// multiplications of simd_attend_prefill.h, whose walk over rows, pages and
// chunks it shares. For processors with AVX512_BF16.
//
// Query, keys, probabilities and values are rounded to 8 bits of mantissa, as
// the activations of prefill are in its matrix products. Keys of int8 are
// stored less run.key_offset; it is left out here, because a constant taken
// from all keys changes no softmax, and taken from the exact ones, too.
#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_attend_prefill.h"

namespace lkv {
namespace {

// Logits of 8 rows by 2 pages and outputs of 6 rows by 4 vectors are summed in
// registers.
constexpr int kLogitRows = 8;
constexpr int kOutputRows = 6;

// Slots whose values are added up between two stores of the sums: 2.5 % faster
// than 32.
constexpr uint32_t kValueSlots = 64;

// Each lane holds two bf16 that are multiplied with two others and summed.
using Pairs = __m512i;

// Lane i: low[i] and high[i].
inline Pairs PairOf(Simd::F32 low, Simd::F32 high) {
  const __m512i interleave = _mm512_set_epi16(
      31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
      6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
  return _mm512_permutexvar_epi16(interleave, reinterpret_cast<__m512i>(both));
}

inline Pairs LoadPairs(const uint16_t* x) { return _mm512_loadu_si512(x); }
inline void StorePairs(uint16_t* to, Pairs x) { _mm512_storeu_si512(to, x); }

// The same pair in every lane.
inline Pairs SetPairOf(const uint16_t* pair) {
  return Simd::SetPair(reinterpret_cast<const int16_t*>(pair));
}

inline Simd::F32 DotPairs(Simd::F32 sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

// kLanes values as bf16.
inline void StoreRounded(uint16_t* to, Simd::F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

// 2^x with a relative error of at most 7.5e-5, a twentieth of what rounding to
// bf16 adds; 0 below 2^-126. (Logits are in powers of two here, because the
// fraction of x then needs no product to be found.)
inline Simd::F32 Exp2(Simd::F32 x) {
  const Simd::F32 smallest = Simd::Set(-126.0f);
  const Simd::F32 fraction = _mm512_reduce_ps(x, 0);  // from -1/2 to 1/2
  Simd::F32 p = Simd::Set(0.0551714338f);
  p = Simd::MulAdd(p, fraction, Simd::Set(0.242610812f));
  p = Simd::MulAdd(p, fraction, Simd::Set(0.693260968f));
  p = Simd::MulAdd(p, fraction, Simd::Set(0.999928117f));
  return Simd::ScaleUnlessBelow(x, smallest, p, Simd::Sub(x, fraction));
}

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

// Blocks of kBlockRows rows take turns on a chunk of slots, whose pages are
// read and paired once for all of them. (24 rows to a page: 146 GFLOP/s, 48:
// 162, 144: 168; and long lanes do not fit the second-level cache, so fewer
// readings of them help once more.)
constexpr uint32_t kBlockRows = 48;
constexpr uint32_t kBlocks = kPrefillRows / kBlockRows;
static_assert(kPrefillRows % kBlockRows == 0);
static_assert(kBlockRows % kLogitRows == 0 && kBlockRows % kOutputRows == 0);

// Parts of the scratch: AttendPrefillScratch counts them.
static_assert(kBlockRows == kPrefillScratchRows);
struct Scratch {
  float* logits;      // [kBlockRows, kAttendChunkSlots]
  float* o;           // [kPrefillRows, head_dim]
  uint16_t* p;        // [kBlockRows, kAttendChunkSlots]
  uint16_t* queries;  // [kPrefillRows, head_dim]
  uint16_t* keys;     // of one chunk
  uint16_t* values;   // likewise

  explicit Scratch(const AttendPrefillArgs& args) {
    const uint32_t head_dim = args.run.head_dim;
    logits = args.scratch;
    o = logits + kBlockRows * kAttendChunkSlots;
    p = reinterpret_cast<uint16_t*>(o + kPrefillRows * head_dim);
    queries = p + kBlockRows * kAttendChunkSlots;
    keys = queries + kPrefillRows * head_dim;
    values = keys + kAttendChunkSlots * head_dim;
  }
};

// Logits are in powers of two.
struct Block {
  PrefillRows<kBlockRows> rows;
  float* o;                  // [kBlockRows, head_dim]
  uint16_t* queries;         // [kBlockRows, head_dim]
  float offset[kBlockRows];  // the logit of key_offset
  RunningSoftmax softmax[kBlockRows];

  // Rows [first_row + index * kBlockRows, ...).
  void Begin(const AttendPrefillArgs& args, const Scratch& scratch,
             uint32_t first_row, uint32_t index) {
    const uint32_t head_dim = args.run.head_dim;
    rows = PrefillRows<kBlockRows>(args, first_row + index * kBlockRows);
    o = scratch.o + index * kBlockRows * head_dim;
    queries = scratch.queries + index * kBlockRows * head_dim;
    Fill(o, kBlockRows * head_dim, 0.0f);
    for (uint32_t r = 0; r < kBlockRows; ++r) {
      Simd::F32 dot = Simd::Zero();
      for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
        const Simd::F32 scaled =
            Simd::Mul(Simd::Load(rows.q[r] + d), Simd::Set(kLog2E));
        StoreRounded(queries + r * head_dim + d, scaled);
        if (args.run.key_offset == nullptr) continue;
        dot = Simd::MulAdd(scaled, Simd::Load(args.run.key_offset + d), dot);
      }
      offset[r] = Simd::SumOf(dot);
      softmax[r] = RunningSoftmax();
    }
  }

  // The largest logit of row r so far, in powers of e.
  float max_logit(uint32_t r) const {
    return (softmax[r].max + offset[r]) * kLn2;
  }
};

// Keys of a page less the run's offset: [head_dim / 2][kPageSlots] pairs of
// dimensions.
template <KvType kType>
inline void PairKeys(const PageRun& run, uint32_t page, uint16_t* to) {
  const auto offset_of = [&](uint32_t d) {
    return Simd::Set(run.key_offset != nullptr ? run.key_offset[d] : 0);
  };
  if constexpr (kType == KvType::kInt8) {
    if (page < run.n_exact_pages) {
      PageRun exact = ExactPages(run);
      exact.key_offset = run.key_offset;
      PairKeys<KvType::kF16>(exact, page, to);
      return;
    }
    const Int8Page from = Int8PageOf(run, page);
    const Simd::F32 scales = Simd::LoadBF16(from.key_scales);
    for (uint32_t d = 0; d < run.head_dim; d += 2) {
      const Simd::I32 words =
          Simd::LoadBytesAsWords(from.keys + d * kPageSlots);
      StorePairs(to + d * kPageSlots,
                 PairOf(Simd::Mul(Simd::EvenWords(words), scales),
                        Simd::Mul(Simd::OddWords(words), scales)));
    }
  } else if (IsCold<kType>(run, page)) {
    ForColdKeys(run.cold[page], run.head_dim,
                [&](uint32_t, uint32_t d, const Simd::F32* keys) {
                  StorePairs(to + d * kPageSlots, PairOf(keys[0], keys[1]));
                  StorePairs(to + (d + 2) * kPageSlots,
                             PairOf(keys[2], keys[3]));
                });
  } else {
    const uint16_t* keys = KeysOf(run, page);
    for (uint32_t d = 0; d < run.head_dim; d += 2) {
      const uint16_t* from = keys + d * kPageSlots;
      StorePairs(to + d * kPageSlots,
                 PairOf(Simd::Sub(LoadHalf<kType>(from), offset_of(d)),
                        Simd::Sub(LoadHalf<kType>(from + kPageSlots),
                                  offset_of(d + 1))));
    }
  }
}

// Values of the first n_slots slots of a page: [n_slots / 2][head_dim] pairs of
// slots, 0 behind the last.
template <KvType kType>
inline void PairValues(const PageRun& run, uint32_t page, uint32_t n_slots,
                       uint16_t* to) {
  if constexpr (kType == KvType::kInt8) {
    if (page < run.n_exact_pages) {
      PairValues<KvType::kF16>(ExactPages(run), page, n_slots, to);
      return;
    }
  }
  if (IsCold<kType>(run, page)) {
    ForColdValues(
        run.cold[page], run.head_dim, n_slots,
        [&](uint32_t slot, uint32_t d, Simd::F32 low, Simd::F32 high) {
          StorePairs(to + slot * run.head_dim + 2 * d, PairOf(low, high));
        });
    return;
  }
  for (uint32_t slot = 0; slot < n_slots; slot += 2) {
    for (uint32_t d = 0; d < run.head_dim; d += Simd::kLanes) {
      Simd::F32 low, high;
      if constexpr (kType == KvType::kInt8) {
        const ValuePair pair =
            LoadInt8Values(Int8PageOf(run, page), run.head_dim, slot / 2, d);
        low = pair.even;
        high = pair.odd;
      } else {
        const uint16_t* from = ValuesOf(run, page) + slot * run.head_dim + d;
        low = LoadHalf<kType>(from);
        high = LoadHalf<kType>(from + run.head_dim);
      }
      // What lies behind the last slot may be NaN, and 0 times NaN is NaN.
      if (slot + 1 == n_slots) high = Simd::Zero();
      StorePairs(to + slot * run.head_dim + 2 * d, PairOf(low, high));
    }
  }
}

// Loops over arrays of registers are unrolled by request, as in
// simd_decode_halves.h.

// Logits of kLogitRows rows over kPages pages of keys.
template <int kPages>
inline void PairLogits(const uint16_t* keys, uint32_t head_dim,
                       const uint16_t* queries, float* logits) {
  Simd::F32 sums[kLogitRows][kPages];
#pragma GCC unroll 8
  for (int r = 0; r < kLogitRows; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < kPages; ++i) sums[r][i] = Simd::Zero();
  }
  for (uint32_t d = 0; d < head_dim; d += 2) {
    Pairs k[kPages];
#pragma GCC unroll 2
    for (int i = 0; i < kPages; ++i) {
      k[i] = LoadPairs(keys + (i * head_dim + d) * kPageSlots);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kLogitRows; ++r) {
      const Pairs q = SetPairOf(queries + r * head_dim + d);
#pragma GCC unroll 2
      for (int i = 0; i < kPages; ++i)
        sums[r][i] = DotPairs(sums[r][i], k[i], q);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kLogitRows; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < kPages; ++i) {
      Simd::Store(logits + r * kAttendChunkSlots + i * kPageSlots, sums[r][i]);
    }
  }
}

// Adds p times the values of n_slots slots to kVectors vectors of the output of
// kOutputRows rows.
template <int kVectors>
inline void AddPairValues(const uint16_t* values, uint32_t n_slots,
                          uint32_t head_dim, const uint16_t* p, float* o) {
  Simd::F32 sums[kOutputRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kOutputRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sums[r][c] = Simd::Load(o + r * head_dim + c * Simd::kLanes);
    }
  }
  for (uint32_t slot = 0; slot < n_slots; slot += 2) {
    Pairs v[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      v[c] = LoadPairs(values + slot * head_dim + 2 * c * Simd::kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kOutputRows; ++r) {
      const Pairs weight = SetPairOf(p + r * kAttendChunkSlots + slot);
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        sums[r][c] = DotPairs(sums[r][c], v[c], weight);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kOutputRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      Simd::Store(o + r * head_dim + c * Simd::kLanes, sums[r][c]);
    }
  }
}

// The slots of one chunk that somebody reads.
struct ChunkSlots {
  uint32_t first;
  uint32_t n_slots;

  ChunkSlots(uint32_t first, uint32_t n_visible)
      : first(first), n_slots(AtMost(n_visible - first, kAttendChunkSlots)) {}

  uint32_t n_pages() const { return PagesFor(n_slots); }
  uint32_t n_padded() const { return n_pages() * kPageSlots; }
};

// Pairs all keys and values of a chunk.
template <KvType kType>
void PairChunk(const PageRun& run, const ChunkSlots& chunk,
               const Scratch& scratch) {
  for (uint32_t i = 0; i < chunk.n_slots; i += kPageSlots) {
    const uint32_t page = (chunk.first + i) / kPageSlots;
    PairKeys<kType>(run, page, scratch.keys + i * run.head_dim);
    // Only slots in view: what lies behind them may be NaN.
    PairValues<kType>(run, page, AtMost(chunk.n_slots - i, kPageSlots),
                      scratch.values + i * run.head_dim);
  }
}

void ChunkLogits(const ChunkSlots& chunk, const Scratch& scratch,
                 const Block& block, uint32_t head_dim) {
  ForPages(chunk.n_pages(), [&]<int kPages>(uint32_t page) {
    for (uint32_t r = 0; r < block.rows.n_rows; r += kLogitRows) {
      PairLogits<kPages>(
          scratch.keys + page * kPageSlots * head_dim, head_dim,
          block.queries + r * head_dim,
          scratch.logits + r * kAttendChunkSlots + page * kPageSlots);
    }
  });
}

void ChunkSoftmax(const AttendPrefillArgs& args, const ChunkSlots& chunk,
                  const Scratch& scratch, uint32_t r, Block* block) {
  const PrefillRows<kBlockRows>& rows = block->rows;
  float* logits = scratch.logits + r * kAttendChunkSlots;
  uint16_t* p = scratch.p + r * kAttendChunkSlots;
  if (rows.visible[r] <= chunk.first) {
    Fill(logits, chunk.n_padded(), 0.0f);
    for (uint32_t i = 0; i < chunk.n_padded(); ++i) p[i] = 0;
  } else {
    const uint32_t n_valid =
        AtMost(rows.visible[r] - chunk.first, chunk.n_padded());
    const float rescale = block->softmax[r].AddChunk<Exp2>(
        logits, n_valid, chunk.n_padded(),
        [&](uint32_t i, Simd::F32 weights) { StoreRounded(p + i, weights); });
    if (rescale != 1.0f) {
      Multiply(block->o + r * args.run.head_dim, args.run.head_dim, rescale);
    }
  }
  KeepRow(args, rows.observed[r], chunk.first, chunk.n_padded(), logits,
          block->max_logit(r));
}

void ChunkValues(const ChunkSlots& chunk, const Scratch& scratch,
                 const Block& block, uint32_t head_dim) {
  for (uint32_t slot = 0; slot < chunk.n_slots; slot += kValueSlots) {
    const uint32_t n_slots = AtMost(chunk.n_slots - slot, kValueSlots);
    const uint16_t* values = scratch.values + slot * head_dim;
    for (uint32_t r = 0; r < block.rows.n_rows; r += kOutputRows) {
      const uint16_t* p = scratch.p + r * kAttendChunkSlots + slot;
      float* o = block.o + r * head_dim;
      ForColumns<4>(head_dim, [&]<int kVectors>(uint32_t column) {
        AddPairValues<kVectors>(values + 2 * column, n_slots, head_dim, p,
                                o + column);
      });
    }
  }
}

// Rows [first_row, first_row + kPrefillRows), as far as there are any.
template <KvType kType>
void AttendRows(const AttendPrefillArgs& args, uint32_t first_row) {
  const uint32_t head_dim = args.run.head_dim;
  const uint32_t n_rows =
      AtMost(args.n_queries * args.group - first_row, kPrefillRows);
  const uint32_t n_blocks = (n_rows + kBlockRows - 1) / kBlockRows;
  const Scratch scratch(args);
  Block blocks[kBlocks];
  for (uint32_t i = 0; i < n_blocks; ++i) {
    blocks[i].Begin(args, scratch, first_row, i);
  }
  const uint32_t n_visible = blocks[n_blocks - 1].rows.n_visible;
  for (uint32_t first = 0; first < n_visible; first += kAttendChunkSlots) {
    PairChunk<kType>(args.run, ChunkSlots(first, n_visible), scratch);
    for (uint32_t i = 0; i < n_blocks; ++i) {
      Block& block = blocks[i];
      if (block.rows.n_visible <= first) continue;
      const ChunkSlots chunk(first, block.rows.n_visible);
      ChunkLogits(chunk, scratch, block, head_dim);
      for (uint32_t r = 0; r < block.rows.n_rows; ++r) {
        ChunkSoftmax(args, chunk, scratch, r, &block);
      }
      ChunkValues(chunk, scratch, block, head_dim);
    }
  }
  for (uint32_t i = 0; i < n_blocks; ++i) {
    const Block& block = blocks[i];
    for (uint32_t r = 0; r < block.rows.n_rows; ++r) {
      FinishRow(args, block.rows, r, block.o + r * head_dim, block.max_logit(r),
                Simd::SumOf(block.softmax[r].sum));
    }
  }
}

template <KvType kType>
void AttendPrefillBF16(const AttendPrefillArgs& args) {
  const uint32_t n_rows = args.n_queries * args.group;
  for (uint32_t row = 0; row < n_rows; row += kPrefillRows) {
    AttendRows<kType>(args, row);
  }
}

}  // namespace

void AddAvx512BF16Prefill(KernelTable* table) {
  const auto add = [&]<KvType kType>() {
    table->attend_prefill_bf16[static_cast<size_t>(kType)] =
        AttendPrefillBF16<kType>;
  };
  add.template operator()<KvType::kF16>();
  add.template operator()<KvType::kBF16>();
  add.template operator()<KvType::kInt8>();
  table->attend_prefill_mixed_bf16 = AttendPrefillBF16<KvType::kF16>;
}

}  // namespace lkv
