#include "model/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// Stored quants are unsigned; the tile's meaning subtracts this again.
constexpr int kOffset = 128;
// Weights of a "K" block, and of its groups of 32.
constexpr size_t kSuperBlock = 256;
constexpr size_t kGroups = kSuperBlock / 32;

uint16_t ReadU16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The products of two stored scales are exact in f32 (11 + 6 bits), so this is
// the only rounding: 2^-11 relative while the product is a normal f16.
uint16_t ScaleProduct(uint16_t f16, int factor) {
  return F32ToF16(F16ToF32(f16) * static_cast<float>(factor));
}

// The nearest whole number, for |x| < 2^22, by two additions: unlike the
// library's function they are done 4 to 16 at a time.
float Round(float x) {
  constexpr float kShift = 1.5f * (1 << 23);
  return (x + kShift) - kShift;
}

// Sum over 16 values of the squared error that a step would leave.
float SquaredError(const float* values, float step) {
  const float inverse = 1 / step;
  float squares[16];
  for (size_t c = 0; c < 16; ++c) {
    const float error = values[c] - step * Round(values[c] * inverse);
    squares[c] = error * error;
  }
  float sum = 0;
  for (float square : squares) sum += square;
  return sum;
}

// The f16 step that carries 16 values best in -127..127.
//
// Most types without a reader of their own put small whole numbers times a
// scale into a block (the grids of IQ2 and IQ3, ternary and FP4 values). If
// the peak is p such steps, it is 64..127 steps of a whole part of that scale,
// so one of 64 candidates meets all values; the search ends there.
uint16_t BestScale(const float* values) {
  float peak = 0, squares = 0;
  for (size_t c = 0; c < 16; ++c) {
    peak = std::max(peak, std::abs(values[c]));
    squares += values[c] * values[c];
  }
  if (peak == 0) return 0;
  // Rounded up, so that the peak never needs more than 127 steps: a scale
  // rounded down by the coarse f16 below 6e-5 would clip it.
  uint16_t best = F32ToF16(peak / 127);
  if (F16ToF32(best) * 127 < peak) ++best;
  float best_error = SquaredError(values, F16ToF32(best));
  // What rounding an exact step to f16 may cost.
  const float good_enough = squares * 0x1p-22f;
  for (int n_steps = 126; n_steps >= 64 && best_error > good_enough;
       --n_steps) {
    const uint16_t scale = F32ToF16(peak / n_steps);
    const float step = F16ToF32(scale);
    if (step * 127 < peak) continue;
    const float error = SquaredError(values, step);
    if (error < best_error) {
      best_error = error;
      best = scale;
    }
  }
  return best;
}

}  // namespace

// 18 bytes: f16 scale, 16 bytes in the tile's own order. value = d (q - 8).
Block4 ReadQ4_0(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 18 * i;
  Block4 out;
  out.scale = ReadU16(block);
  out.minimum = ScaleProduct(out.scale, -8);
  std::memcpy(out.quants, block + 2, sizeof(out.quants));
  return out;
}

// 20 bytes: f16 scale, f16 minimum, quants as above. value = d q + m.
Block4 ReadQ4_1(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 20 * i;
  Block4 out;
  out.scale = ReadU16(block);
  out.minimum = ReadU16(block + 2);
  std::memcpy(out.quants, block + 4, sizeof(out.quants));
  return out;
}

// 144 bytes: f16 d, f16 dmin, 12 bytes with 8 scales and 8 minimums of 6 bits,
// 128 bytes where 32 bytes hold group 2 g in their low and group 2 g + 1 in
// their high halves. value = d scale q - dmin minimum.
Block4 ReadQ4_K(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 144 * (i / kGroups);
  const size_t group = i % kGroups;

  // Groups 0..3 keep both numbers in the low 6 bits of two bytes; groups 4..7
  // have 4 bits in a byte of their own and borrow those bytes' upper 2.
  const uint8_t* packed = block + 4;
  int scale, minimum;
  if (group < 4) {
    scale = packed[group] & 63;
    minimum = packed[group + 4] & 63;
  } else {
    scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4);
    minimum = (packed[group + 4] >> 4) | (packed[group] >> 6 << 4);
  }
  Block4 out;
  out.scale = ScaleProduct(ReadU16(block), scale);
  out.minimum = ScaleProduct(ReadU16(block + 2), -minimum);

  const uint8_t* quants = block + 16 + 32 * (group / 2);
  const int shift = group % 2 == 0 ? 0 : 4;
  for (size_t j = 0; j < 16; ++j) {
    const int low = (quants[j] >> shift) & 15;
    const int high = (quants[j + 16] >> shift) & 15;
    out.quants[j] = static_cast<uint8_t>(low | (high << 4));
  }
  return out;
}

// 22 bytes: f16 scale, 32 fifth bits, 16 bytes of lower bits as in Q4_0.
// value = d (q - 16).
Block8 ReadQ5_0(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 22 * i;
  uint32_t fifth_bits;
  std::memcpy(&fifth_bits, block + 2, sizeof(fifth_bits));
  const uint8_t* low_bits = block + 6;
  Block8 out;
  out.scale[0] = out.scale[1] = ReadU16(block);
  for (size_t c = 0; c < 32; ++c) {
    const int low = c < 16 ? low_bits[c] & 15 : low_bits[c - 16] >> 4;
    const int fifth = (fifth_bits >> c) & 1;
    out.quants[c] = static_cast<uint8_t>((low | (fifth << 4)) - 16 + kOffset);
  }
  return out;
}

// 34 bytes: f16 scale, 32 signed bytes.
Block8 ReadQ8_0(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 34 * i;
  Block8 out;
  out.scale[0] = out.scale[1] = ReadU16(block);
  for (size_t c = 0; c < 32; ++c) {
    // Adding 128 to a signed byte is flipping its top bit.
    out.quants[c] = block[2 + c] ^ 0x80;
  }
  return out;
}

// 18 bytes as Q4_0, where a quant is an index into unevenly spaced steps.
Block8 ReadIQ4_NL(const uint8_t* row, size_t i) {
  static constexpr int8_t kSteps[16] = {
      -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const uint8_t* block = row + 18 * i;
  Block8 out;
  out.scale[0] = out.scale[1] = ReadU16(block);
  for (size_t j = 0; j < 16; ++j) {
    const uint8_t byte = block[2 + j];
    out.quants[j] = static_cast<uint8_t>(kSteps[byte & 15] + kOffset);
    out.quants[16 + j] = static_cast<uint8_t>(kSteps[byte >> 4] + kOffset);
  }
  return out;
}

// 110 bytes: 256 third bits (bit g of byte c % 32: column c of group g; unset
// = minus 4), 64 bytes of two lower bits (groups 0..3 share 32 bytes, 4..7 the
// next), 12 bytes with 16 scales of 6 bits, f16 d. value = d (scale - 32) q.
Block8 ReadQ3_K(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 110 * (i / kGroups);
  const size_t group = i % kGroups;
  const uint8_t* third_bits = block;
  const uint8_t* low_bits = block + 32 + 32 * (group / 4);
  const uint8_t* packed = block + 96;
  const uint16_t d = ReadU16(block + 108);

  Block8 out;
  for (size_t half = 0; half < 2; ++half) {
    // Scale s: 4 bits in one half of byte s % 8, 2 bits in byte 8 + s % 4.
    const size_t s = 2 * group + half;
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
    out.scale[half] = ScaleProduct(d, (low | (high << 4)) - 32);
  }
  const size_t shift = 2 * (group % 4);
  for (size_t c = 0; c < 32; ++c) {
    const int low = (low_bits[c] >> shift) & 3;
    const int third = (third_bits[c] >> group) & 1;
    out.quants[c] = static_cast<uint8_t>(low + 4 * third - 4 + kOffset);
  }
  return out;
}

// 210 bytes: 128 bytes of four lower bits, 64 bytes of two upper bits, 16
// signed scales, f16 d. 128 columns, four groups, share 64 and 32 bytes.
// value = d scale (q - 32).
Block8 ReadQ6_K(const uint8_t* row, size_t i) {
  const uint8_t* block = row + 210 * (i / kGroups);
  const size_t group = i % kGroups;
  const size_t quarter = group % 4;
  const uint8_t* low_bits = block + 64 * (group / 4) + 32 * (quarter % 2);
  const size_t low_shift = quarter < 2 ? 0 : 4;
  const uint8_t* high_bits = block + 128 + 32 * (group / 4);
  const size_t high_shift = 2 * quarter;
  const uint8_t* scales = block + 192 + 2 * group;
  const uint16_t d = ReadU16(block + 208);

  Block8 out;
  for (size_t half = 0; half < 2; ++half) {
    out.scale[half] = ScaleProduct(d, static_cast<int8_t>(scales[half]));
  }
  for (size_t c = 0; c < 32; ++c) {
    const int low = (low_bits[c] >> low_shift) & 15;
    const int high = (high_bits[c] >> high_shift) & 3;
    out.quants[c] = static_cast<uint8_t>((low | (high << 4)) - 32 + kOffset);
  }
  return out;
}

Block8 QuantizeBlock8(const float* x, size_t i) {
  Block8 out;
  for (size_t half = 0; half < 2; ++half) {
    const float* values = x + 32 * i + 16 * half;
    const uint16_t scale = BestScale(values);
    // An infinite scale (a peak beyond 8e6) makes all quants 0.
    const float inverse = scale == 0 ? 0 : 1 / F16ToF32(scale);
    out.scale[half] = scale;
    for (size_t c = 0; c < 16; ++c) {
      const int steps = static_cast<int>(Round(values[c] * inverse));
      out.quants[16 * half + c] = static_cast<uint8_t>(steps + kOffset);
    }
  }
  return out;
}

}  // namespace lkv
