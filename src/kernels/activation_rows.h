// ActivationRows: rows of activations in the two forms that matmul kernels
// read: f32 (for 16-bit weights) and quantised (for 4- and 8-bit ones).
//
// Row i is written by one thread: fill row(i), then Finish(i). Thread rule:
// different rows from different threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/types.h"
#include "kernels/kernel_table.h"

namespace lkv {

enum class QuantizeBits : uint8_t { k8, k16 };

class ActivationRows {
 public:
  ActivationRows(const KernelTable* kernels, size_t max_rows,
                 size_t max_columns)
      : kernels_(kernels),
        f32_(max_rows * PaddedColumns(max_columns)),
        high_(max_rows * PaddedColumns(max_columns)),
        low_(max_rows * PaddedColumns(max_columns)),
        scale_(max_rows * PaddedColumns(max_columns) / kTileColumns),
        sums_(max_rows * PaddedColumns(max_columns) / kSumColumns) {}

  static constexpr size_t PaddedColumns(size_t n_columns) {
    return CeilDiv(n_columns, kTileColumns) * kTileColumns;
  }
  // Bytes per row of n_columns, all forms together.
  static constexpr size_t RowBytes(size_t n_columns) {
    const size_t stride = PaddedColumns(n_columns);
    return stride * (sizeof(float) + 2) +
           (stride / kTileColumns + stride / kSumColumns) * sizeof(float);
  }

  // A view of this buffer as rows of n_columns.
  class View {
   public:
    View(ActivationRows* rows, size_t n_columns, QuantizeBits bits)
        : rows_(rows),
          n_columns_(n_columns),
          stride_(PaddedColumns(n_columns)),
          bits_(bits) {}

    float* row(size_t i) const { return rows_->f32_.data() + i * stride_; }

    // Zeroes the padding of row i and quantises it.
    void Finish(size_t i) const {
      std::fill(row(i) + n_columns_, row(i) + stride_, 0.0f);
      Quantize(i, 0, row(i), stride_);
    }

    // Columns [first, first + kTileColumns) of row i are x: quantised or, for
    // whoever reads f32, copied. For rows that are written in parts; the
    // padding of the last part must be 0.
    void Put(size_t i, size_t first, const float* x, bool as_f32) const {
      if (as_f32) {
        std::copy_n(x, kTileColumns, row(i) + first);
      } else {
        Quantize(i, first, x, kTileColumns);
      }
    }

    QuantizedRows quantized() const {
      return {rows_->high_.data(),
              bits_ == QuantizeBits::k16 ? rows_->low_.data() : nullptr,
              rows_->scale_.data(), rows_->sums_.data(), stride_};
    }
    const float* f32() const { return rows_->f32_.data(); }
    size_t stride() const { return stride_; }

   private:
    void Quantize(size_t i, size_t first, const float* x,
                  size_t n_columns) const {
      const size_t at = i * stride_ + first;
      rows_->kernels_->quantize_row(
          x, n_columns, rows_->high_.data() + at,
          bits_ == QuantizeBits::k16 ? rows_->low_.data() + at : nullptr,
          rows_->scale_.data() + at / kTileColumns,
          rows_->sums_.data() + at / kSumColumns);
    }

    ActivationRows* rows_;
    size_t n_columns_;
    size_t stride_;
    QuantizeBits bits_;
  };

 private:
  static constexpr size_t kSumColumns = 16;  // QuantizedRows::sums

  const KernelTable* kernels_;
  AlignedBuffer<float> f32_;
  AlignedBuffer<int8_t> high_;
  AlignedBuffer<int8_t> low_;
  AlignedBuffer<float> scale_;
  AlignedBuffer<float> sums_;
};

}  // namespace lkv
