// Prefill attention of the vector sets: many query tokens, causal. Include
// after avx2_simd.h or avx512_simd.h.
//
// Bound by arithmetic. A row is a (query, head) pair; kF32Rows rows walk
// the slots together, so that a page is converted to f32 once for all of them
// and each load of keys or values feeds several rows. Every row's arithmetic
// depends on its own query and the slots only: a row sums dimension by
// dimension and slot by slot, and slots beyond its view have probability 0,
// which leaves sums as they are. So results do not depend on how a prompt is
// cut into chunks.
#pragma once

#include "kernels/simd_cold_pages.h"
#include "kernels/simd_exp.h"
#include "kernels/simd_int8_pages.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// Rows that are computed together.
template <uint32_t kRows>
struct PrefillRows {
  uint32_t first_row;
  uint32_t n_rows;     // rows that count
  uint32_t n_visible;  // slots that the last row sees
  uint32_t visible[kRows];
  const float* q[kRows];    // rows past n_rows repeat the last one
  int64_t observed[kRows];  // kept row of p, or -1

  PrefillRows() = default;
  PrefillRows(const AttendPrefillArgs& args, uint32_t first_row)
      : first_row(first_row),
        n_rows(AtMost(args.n_queries * args.group - first_row, kRows)) {
    uint32_t j = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t row = first_row + AtMost(r, n_rows - 1);
      const uint32_t query = row / args.group;
      const uint32_t head = row % args.group;
      while (j < args.n_observed && args.observed[j] < query) ++j;
      visible[r] = args.n_visible + query;
      q[r] = args.q + query * args.q_stride + size_t{head} * args.run.head_dim;
      const bool is_observed = j < args.n_observed && args.observed[j] == query;
      observed[r] =
          is_observed ? static_cast<int64_t>(j) * args.group + head : -1;
    }
    n_visible = visible[kRows - 1];
  }
};

// kF32Rows logits of one chunk (24 x 256 floats) fit into a 32 KiB first-level
// cache.
constexpr uint32_t kF32Rows = 24;
static_assert(kPrefillRows % kF32Rows == 0);
static_assert(kF32Rows <= kPrefillScratchRows);  // and with it all parts below

// A block of rows and its parts of the scratch.
struct PrefillBlock : PrefillRows<kF32Rows> {
  float* logits;  // [kF32Rows, kAttendChunkSlots]
  float* o;       // [kF32Rows, head_dim]
  float* page;    // [2 pages of keys or values] in f32

  PrefillBlock(const AttendPrefillArgs& args, uint32_t first_row)
      : PrefillRows(args, first_row),
        logits(args.scratch),
        o(logits + kF32Rows * kAttendChunkSlots),
        page(o + kF32Rows * args.run.head_dim) {
    Fill(o, kF32Rows * args.run.head_dim, 0.0f);
  }
};

template <KvType kType>
inline void ConvertHalves(const uint16_t* from, uint32_t n, float* to) {
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    Simd::Store(to + i, LoadHalf<kType>(from + i));
  }
}

// Pages of f16 runs may be cold.
template <KvType kType>
inline bool IsCold(const PageRun& run, uint32_t page) {
  return kType == KvType::kF16 && run.pages[page] == nullptr;
}

// Keys of a page as f32 [head_dim][kPageSlots].
template <KvType kType>
inline void ConvertKeys(const PageRun& run, uint32_t page, float* to) {
  if constexpr (kType == KvType::kInt8) {
    if (page < run.n_exact_pages) {
      ConvertKeys<KvType::kF16>(ExactPages(run), page, to);
    } else {
      Int8KeysToF32(Int8PageOf(run, page), run.head_dim, run.key_offset, to);
    }
  } else if (IsCold<kType>(run, page)) {
    ForColdKeys(run.cold[page], run.head_dim,
                [&](uint32_t slot, uint32_t d, const Simd::F32* keys) {
                  for (uint32_t i = 0; i < 4; ++i) {
                    Simd::Store(to + (d + i) * kPageSlots + slot, keys[i]);
                  }
                });
  } else {
    ConvertHalves<kType>(KeysOf(run, page), kPageSlots * run.head_dim, to);
  }
}

// Values of the first n_slots slots of a page as f32 [n_slots][head_dim].
template <KvType kType>
inline void ConvertValues(const PageRun& run, uint32_t page, uint32_t n_slots,
                          float* to) {
  if constexpr (kType == KvType::kInt8) {
    if (page < run.n_exact_pages) {
      ConvertValues<KvType::kF16>(ExactPages(run), page, n_slots, to);
    } else {
      Int8ValuesToF32(Int8PageOf(run, page), run.head_dim, n_slots, to);
    }
  } else if (IsCold<kType>(run, page)) {
    ForColdValues(
        run.cold[page], run.head_dim, n_slots,
        [&](uint32_t slot, uint32_t d, Simd::F32 low, Simd::F32 high) {
          float* const row = to + slot * run.head_dim + d;
          Simd::Store(row, low);
          if (slot + 1 < n_slots) Simd::Store(row + run.head_dim, high);
        });
  } else {
    ConvertHalves<kType>(ValuesOf(run, page), n_slots * run.head_dim, to);
  }
}

// Loops over arrays of registers are unrolled by request, as in
// simd_decode_halves.h.

// Logits of Simd::kLogitRows rows over kPages converted pages of keys.
template <int kPages>
inline void RowLogits(const float* keys, uint32_t head_dim,
                      const float* const* q, float* logits) {
  constexpr int kVectors = kPages * kPageVectors;
  const float* rows[Simd::kLogitRows];
  Simd::F32 sums[Simd::kLogitRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < Simd::kLogitRows; ++r) {
    rows[r] = q[r];
    for (Simd::F32& sum : sums[r]) sum = Simd::Zero();
  }
  for (uint32_t d = 0; d < head_dim; ++d) {
    Simd::F32 k[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      k[v] = Simd::Load(keys + (v / kPageVectors * head_dim + d) * kPageSlots +
                        v % kPageVectors * Simd::kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Simd::kLogitRows; ++r) {
      const Simd::F32 q_of_d = Simd::Set(rows[r][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Simd::MulAdd(k[v], q_of_d, sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Simd::kLogitRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Simd::Store(logits + r * kAttendChunkSlots + v * Simd::kLanes,
                  sums[r][v]);
    }
  }
}

template <KvType kType, int kPages>
inline void PagesLogits(const PageRun& run, uint32_t page,
                        const PrefillBlock& block, float* logits) {
  const uint32_t n = kPageSlots * run.head_dim;
  for (int i = 0; i < kPages; ++i) {
    ConvertKeys<kType>(run, page + i, block.page + i * n);
  }
  for (uint32_t r = 0; r < block.n_rows; r += Simd::kLogitRows) {
    RowLogits<kPages>(block.page, run.head_dim, block.q + r,
                      logits + r * kAttendChunkSlots);
  }
}

// Adds p times n_slots converted rows of values to kVectors vectors of the
// output of Simd::kOutputRows rows.
template <int kVectors>
inline void AddRowValues(const float* values, uint32_t n_slots,
                         uint32_t head_dim, const float* p, float* o) {
  Simd::F32 sums[Simd::kOutputRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < Simd::kOutputRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sums[r][c] = Simd::Load(o + r * head_dim + c * Simd::kLanes);
    }
  }
  for (uint32_t slot = 0; slot < n_slots; ++slot) {
    Simd::F32 v[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      v[c] = Simd::Load(values + slot * head_dim + c * Simd::kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Simd::kOutputRows; ++r) {
      const Simd::F32 weight = Simd::Set(p[r * kAttendChunkSlots + slot]);
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        sums[r][c] = Simd::MulAdd(v[c], weight, sums[r][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Simd::kOutputRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      Simd::Store(o + r * head_dim + c * Simd::kLanes, sums[r][c]);
    }
  }
}

// Adds the values of n_slots slots (at most two pages) from page `page` on.
template <KvType kType>
inline void PagesValues(const PageRun& run, uint32_t page, uint32_t n_slots,
                        const PrefillBlock& block, const float* p) {
  const uint32_t head_dim = run.head_dim;
  // Only slots in view: what lies behind them may be NaN.
  for (uint32_t i = 0; i < n_slots; i += kPageSlots) {
    ConvertValues<kType>(run, page + i / kPageSlots,
                         AtMost(n_slots - i, kPageSlots),
                         block.page + i * head_dim);
  }
  for (uint32_t r = 0; r < block.n_rows; r += Simd::kOutputRows) {
    const float* p_of_rows = p + r * kAttendChunkSlots;
    float* o = block.o + r * head_dim;
    ForColumns<4>(head_dim, [&]<int kVectors>(uint32_t column) {
      AddRowValues<kVectors>(block.page + column, n_slots, head_dim, p_of_rows,
                             o + column);
    });
  }
}

// Keeps an observed row's probabilities of one chunk.
inline void KeepRow(const AttendPrefillArgs& args, int64_t observed,
                    uint32_t first, uint32_t n_padded, const float* p,
                    float max) {
  if (observed < 0) return;
  const size_t kept = static_cast<size_t>(observed);
  __builtin_memcpy(args.p + kept * args.p_stride + first, p,
                   n_padded * sizeof(float));
  args.p_max[kept * args.p_max_stride + first / kAttendChunkSlots] = max;
}

// Softmax of one row over one chunk that starts at slot `first`.
inline void ChunkSoftmax(const AttendPrefillArgs& args,
                         const PrefillBlock& block, uint32_t r, uint32_t first,
                         uint32_t n_padded, RunningSoftmax* softmax) {
  float* logits = block.logits + r * kAttendChunkSlots;
  if (block.visible[r] <= first) {
    Fill(logits, n_padded, 0.0f);
  } else {
    uint32_t n_valid = AtMost(block.visible[r] - first, n_padded);
    float rescale = softmax->AddChunk(logits, n_valid, n_padded);
    if (rescale != 1.0f) {
      Multiply(block.o + r * args.run.head_dim, args.run.head_dim, rescale);
    }
  }
  KeepRow(args, block.observed[r], first, n_padded, logits, softmax->max);
}

// Writes the results of row r of a block: its output, not yet divided by the
// sum, and its attention state.
template <uint32_t kRows>
inline void FinishRow(const AttendPrefillArgs& args,
                      const PrefillRows<kRows>& block, uint32_t r,
                      const float* o, float max, float sum) {
  const uint32_t head_dim = args.run.head_dim;
  const uint32_t row = block.first_row + r;
  args.m[row] = max;
  args.l[row] = sum;
  float* out = args.out + row / args.group * args.out_stride +
               size_t{row % args.group} * head_dim;
  const Simd::F32 divisor = Simd::Set(sum);
  for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
    Simd::Store(out + d, Simd::Div(Simd::Load(o + d), divisor));
  }
  if (block.observed[r] < 0) return;
  // What lies behind the block's view.
  const size_t kept = static_cast<size_t>(block.observed[r]);
  const uint32_t n_seen = PagesFor(block.n_visible) * kPageSlots;
  const uint32_t n_padded = PagesFor(args.run.n_slots) * kPageSlots;
  Fill(args.p + kept * args.p_stride + n_seen, n_padded - n_seen, 0.0f);
  for (uint32_t c = (n_seen + kAttendChunkSlots - 1) / kAttendChunkSlots;
       c * kAttendChunkSlots < n_padded; ++c) {
    args.p_max[kept * args.p_max_stride + c] = max;
  }
}

template <KvType kType>
void AttendBlock(const AttendPrefillArgs& args, uint32_t first_row) {
  const PageRun& run = args.run;
  const PrefillBlock block(args, first_row);
  RunningSoftmax softmax[kF32Rows];
  for (uint32_t first = 0; first < block.n_visible;
       first += kAttendChunkSlots) {
    const uint32_t n_slots = AtMost(block.n_visible - first, kAttendChunkSlots);
    const uint32_t n_pages = PagesFor(n_slots);
    const uint32_t first_page = first / kPageSlots;
    uint32_t i = 0;
    for (; i + Simd::kLogitPages <= n_pages; i += Simd::kLogitPages) {
      PagesLogits<kType, Simd::kLogitPages>(run, first_page + i, block,
                                            block.logits + i * kPageSlots);
    }
    for (; i < n_pages; ++i) {
      PagesLogits<kType, 1>(run, first_page + i, block,
                            block.logits + i * kPageSlots);
    }
    for (uint32_t r = 0; r < block.n_rows; ++r) {
      ChunkSoftmax(args, block, r, first, n_pages * kPageSlots, &softmax[r]);
    }
    for (i = 0; i < n_pages; i += 2) {
      PagesValues<kType>(run, first_page + i,
                         AtMost(n_slots - i * kPageSlots, 2 * kPageSlots),
                         block, block.logits + i * kPageSlots);
    }
  }
  for (uint32_t r = 0; r < block.n_rows; ++r) {
    FinishRow(args, block, r, block.o + r * run.head_dim, softmax[r].max,
              Simd::SumOf(softmax[r].sum));
  }
}

template <KvType kType>
void AttendPrefill(const AttendPrefillArgs& args) {
  const uint32_t n_rows = args.n_queries * args.group;
  for (uint32_t row = 0; row < n_rows; row += kF32Rows) {
    AttendBlock<kType>(args, row);
  }
}

}  // namespace
}  // namespace lkv
