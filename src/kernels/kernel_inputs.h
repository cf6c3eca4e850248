// Inputs to run kernels on without a model: `lkv bench kernels` times them and
// instructions_bench counts their instructions. Weights and pages are the
// caller's bytes, so that a measurement decides how much memory it reads; the
// rest, what one thread needs beside them, is held here.
//
// Arguments point into their inputs. Thread rule: one inputs object per thread
// that attends; matmul threads share one and write their own row tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/types.h"
#include "kernels/activation_rows.h"
#include "kernels/kernel_table.h"

namespace lkv {

// "f16", "bf16", "int8".
const char* NameOf(KvType type);
// "tile4", "tile8", "tile8x16", "tile16_f16", "tile16_bf16".
const char* NameOf(WeightFormat format);

// Small halves, 0.25 to 0.5 as f16: weights, scales, keys and values made of
// them are ordinary numbers in any format. 2 ns each; the size must be even.
void FillWithSmallHalves(std::span<uint8_t> bytes);

struct MatmulShape {
  WeightFormat format = WeightFormat::kTile4;
  QuantizeBits bits = QuantizeBits::k8;  // of activations
  size_t n_row_tiles = 0;
  size_t n_columns = 0;  // multiple of kTileColumns
  size_t n_tokens = 0;

  size_t n_column_tiles() const { return n_columns / kTileColumns; }
  size_t matrix_bytes() const {
    return n_row_tiles * n_column_tiles() * TileBytes(format);
  }
};

class MatmulInputs {
 public:
  // Draws the activations and quantises them with the set's own kernel.
  MatmulInputs(const KernelTable& kernels, const MatmulShape& shape);

  // Its view points into it.
  MatmulInputs(const MatmulInputs&) = delete;
  MatmulInputs& operator=(const MatmulInputs&) = delete;

  // All row tiles of the matrix at `tiles`; matmul[shape.format] takes them.
  MatmulArgs Args(const uint8_t* tiles);

 private:
  MatmulShape shape_;
  ActivationRows rows_;
  ActivationRows::View view_;
  std::vector<float> y_;
};

// Attention of one lane.
struct LaneShape {
  KvType type = KvType::kF16;
  uint32_t head_dim = 0;
  uint32_t group = 0;
  uint32_t n_slots = 0;

  uint32_t n_pages() const { return CeilDiv(n_slots, kPageSlots); }
  size_t page_bytes() const { return KvPageBytes(type, head_dim); }
  // The addresses of n_pages() pages next to each other, the last one first.
  std::vector<const uint8_t*> ListPages(const uint8_t* first) const;
  // Of the pages that begin at pages[0 .. n_pages()).
  PageRun Run(const uint8_t* const* pages) const;
};

enum class KeepMass : uint8_t { kNo, kYes };

class DecodeInputs {
 public:
  explicit DecodeInputs(const LaneShape& shape);

  // attend_decode[shape.type] takes them. kYes: probabilities are kept.
  AttendDecodeArgs Args(const uint8_t* const* pages, KeepMass keep);
  // Reduces what the last attention kept.
  ReduceMassArgs MassArgs();

 private:
  LaneShape shape_;
  size_t p_stride_;
  size_t p_max_stride_;
  AlignedBuffer<float> q_, m_, l_, o_, p_, p_max_, mass_max_, mass_mean_;
};

// Cold groups of one lane.
struct ColdShape {
  uint32_t head_dim = 0;
  uint32_t group = 0;
  uint32_t n_groups = 0;

  uint32_t n_pages() const { return n_groups * kColdGroupPages; }
  size_t digest_bytes() const { return kColdDigestBytesPerDim * head_dim; }
  size_t body_bytes() const {
    return kColdBodyBytesPerDim * head_dim + kColdBodyScaleBytes;
  }
  size_t f16_bytes() const {  // of a group before it is encoded
    return kColdGroupPages * KvPageBytes(KvType::kF16, head_dim);
  }
};

class ColdInputs {
 public:
  explicit ColdInputs(const ColdShape& shape);

  // scan_cold takes them: all groups, their digests at digests[0 .. n_groups).
  ScanColdArgs ScanArgs(const uint8_t* const* digests);
  // attend_cold takes them: at most n_pages() pages, of what ScanArgs was last
  // scanned to; probabilities are kept.
  AttendColdArgs AttendArgs(std::span<const ChosenColdPage> pages);
  // encode_cold takes them: one group, its pages next to each other.
  EncodeColdArgs EncodeArgs(const uint8_t* pages);

 private:
  ColdEstimates Estimates();

  ColdShape shape_;
  size_t n_slots_;
  AlignedBuffer<float> q_, logits_, units_, offsets_, m_, l_, o_, p_, p_max_;
  AlignedBuffer<int8_t> folded_q_;
  AlignedBuffer<uint8_t> digest_, bodies_;
};

class PrefillInputs {
 public:
  // The newest n_queries slots are the queries; `observed` as in
  // AttendPrefillArgs.
  PrefillInputs(const LaneShape& shape, uint32_t n_queries,
                std::vector<uint32_t> observed);

  // attend_prefill[shape.type] takes them.
  AttendPrefillArgs Args(const uint8_t* const* pages);

 private:
  LaneShape shape_;
  uint32_t n_queries_;
  std::vector<uint32_t> observed_;
  size_t p_stride_;
  size_t p_max_stride_;
  AlignedBuffer<float> q_, out_, m_, l_, p_, p_max_, scratch_;
};

}  // namespace lkv
