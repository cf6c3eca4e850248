// The blocks of GGUF's quantised types, read 32 weights at a time in the form
// that the kernels' tiles want: quants that only need copying, scales in f16.
//
// Each reader takes a row of the type's blocks and the number of the group of
// 32 columns in that row. The formats are ggml's; the tests compare every
// reader with ggml's own dequantisation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lkv {

// 32 weights of one row for a tile4: value = scale * quant + minimum, where
// byte j holds column j in its low and column 16 + j in its high half.
struct Block4 {
  uint8_t quants[16];
  uint16_t scale;    // f16
  uint16_t minimum;  // f16
};

// 32 weights of one row for a tile8 (where both scales are the same) or a
// tile8x16: value of column c = scale[c / 16] * (quants[c] - 128).
struct Block8 {
  uint8_t quants[32];
  uint16_t scale[2];  // f16
};

Block4 ReadQ4_0(const uint8_t* row, size_t i);
Block4 ReadQ4_1(const uint8_t* row, size_t i);
Block4 ReadQ4_K(const uint8_t* row, size_t i);

Block8 ReadQ5_0(const uint8_t* row, size_t i);
Block8 ReadQ8_0(const uint8_t* row, size_t i);
Block8 ReadIQ4_NL(const uint8_t* row, size_t i);
Block8 ReadQ3_K(const uint8_t* row, size_t i);
Block8 ReadQ6_K(const uint8_t* row, size_t i);

// 32 finite floats at x + 32 i, quantised symmetrically with a scale for each
// 16. The error is at most half a step, and a step between the peak / 127 and
// the peak / 64, whichever leaves the smallest sum of squares: nothing, but for
// the scale's rounding, where the values are whole multiples of something.
Block8 QuantizeBlock8(const float* x, size_t i);

}  // namespace lkv
