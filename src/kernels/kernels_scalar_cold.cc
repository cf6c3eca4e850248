// Reference kernels of cold groups, but for attention to their pages, which is
// in kernels_scalar_attention.cc.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernel_sets.h"
#include "kernels/scalar_folded_query.h"

namespace lkv {
namespace {

// How the elements of a channel or row become levels.
struct ColdScale {
  uint16_t scale;  // f16
  uint16_t min;    // f16
  float min_value;
  float inverse;  // 1 / scale, or 0

  ColdScale(const float* x, uint32_t n) {
    float low = x[0];
    float high = x[0];
    for (uint32_t i = 1; i < n; ++i) {
      low = std::fmin(low, x[i]);
      high = std::fmax(high, x[i]);
    }
    min_value = low + 0.0f;  // -0 becomes 0
    min = F32ToF16(min_value);
    // Rounded up, so that the highest level is kLargestColdLevel.
    const float step = (high - low) / kLargestColdLevel;
    scale = F32ToF16(step);
    if (F16ToF32(scale) < step) ++scale;
    inverse = scale == 0 ? 0 : 1 / F16ToF32(scale);
  }

  uint8_t LevelOf(float x) const {
    return static_cast<uint8_t>(std::lrint((x - min_value) * inverse));
  }
};

// Adds bits that are still 0.
void Put(uint8_t* byte, uint32_t bits, uint32_t shift) {
  *byte = static_cast<uint8_t>(*byte | bits << shift);
}

void EncodeKeys(const EncodeColdArgs& args) {
  uint8_t* scales = args.digest + ColdKeyScalesAt(args.head_dim);
  uint8_t* mins = scales + 2 * args.head_dim;
  float channel[kColdGroupSlots];
  for (uint32_t d = 0; d < args.head_dim; ++d) {
    for (uint32_t i = 0; i < kColdGroupSlots; ++i) {
      const auto* keys =
          reinterpret_cast<const uint16_t*>(args.pages[i / kPageSlots]);
      channel[i] = F16ToF32(keys[d * kPageSlots + i % kPageSlots]);
    }
    const ColdScale scale(channel, kColdGroupSlots);
    std::memcpy(scales + 2 * d, &scale.scale, sizeof(uint16_t));
    std::memcpy(mins + 2 * d, &scale.min, sizeof(uint16_t));
    for (uint32_t i = 0; i < kColdGroupSlots; ++i) {
      const uint32_t level = scale.LevelOf(channel[i]);
      const uint32_t page = i / kPageSlots;
      const uint32_t slot = i % kPageSlots;
      Put(args.digest + ColdUpperAt(slot, d), level / 4, 2 * page);
      Put(args.bodies[page] + ColdLowerAt(slot, d), level % 4,
          ColdLowerShift(d));
    }
  }
}

void EncodeValues(const uint8_t* page, uint32_t head_dim, uint8_t* body) {
  const auto* values =
      reinterpret_cast<const uint16_t*>(page) + size_t{kPageSlots} * head_dim;
  uint8_t* scales = body + ColdValueScalesAt(head_dim);
  uint8_t* mins = scales + 2 * kPageSlots;
  float row[kMaxHeadDim];
  for (uint32_t slot = 0; slot < kPageSlots; ++slot) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      row[d] = F16ToF32(values[slot * head_dim + d]);
    }
    const ColdScale scale(row, head_dim);
    std::memcpy(scales + 2 * slot, &scale.scale, sizeof(uint16_t));
    std::memcpy(mins + 2 * slot, &scale.min, sizeof(uint16_t));
    for (uint32_t d = 0; d < head_dim; ++d) {
      Put(body + ColdValueAt(head_dim, slot, d), scale.LevelOf(row[d]),
          ColdValueShift(slot));
    }
  }
}

void EncodeCold(const EncodeColdArgs& args) {
  std::memset(args.digest, 0, kColdDigestBytesPerDim * args.head_dim);
  for (uint8_t* body : args.bodies) {
    std::memset(body, 0,
                kColdBodyBytesPerDim * args.head_dim + kColdBodyScaleBytes);
  }
  EncodeKeys(args);
  for (uint32_t page = 0; page < kColdGroupPages; ++page) {
    EncodeValues(args.pages[page], args.head_dim, args.bodies[page]);
  }
}

void ScanCold(const ScanColdArgs& args) {
  const ColdEstimates& to = args.to;
  for (uint32_t i = 0; i < args.n_groups; ++i) {
    const uint8_t* const digest = args.digests[i];
    for (uint32_t g = 0; g < to.group; ++g) {
      const FoldedQuery folded(digest, to.head_dim,
                               args.q + size_t{g} * to.head_dim);
      const size_t group = args.first_group + i;
      const size_t row = group * to.group + g;
      std::memcpy(to.q + row * to.head_dim, folded.bytes, to.head_dim);
      to.units[row] = folded.unit;
      to.offsets[row] = folded.lower_offset;
      float* const logits =
          to.logits + g * to.logit_stride + group * kColdGroupSlots;
      for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
        int32_t sum = 0;
        for (uint32_t d = 0; d < to.head_dim; ++d) {
          const uint32_t byte = digest[ColdUpperAt(slot % kPageSlots, d)];
          const uint32_t upper = byte >> (2 * (slot / kPageSlots)) & 3;
          sum += folded.bytes[d] * static_cast<int32_t>(upper);
        }
        logits[slot] =
            folded.offset + folded.unit * static_cast<float>(4 * sum);
      }
    }
  }
}

void PageSums(const PageSumsArgs& args) {
  const uint32_t n_pages = args.n_groups * kColdGroupPages;
  for (uint32_t g = 0; g < args.group; ++g) {
    const float* const logits = args.logits + g * args.logit_stride;
    const float m = *std::max_element(logits, logits + n_pages * kPageSlots);
    args.m[g * args.m_stride] = m;
    float* const sums = args.sums + g * args.sum_stride;
    std::fill_n(sums, n_pages, 0.0f);
    for (uint32_t i = 0; i < n_pages * kPageSlots; ++i) {
      sums[i / kPageSlots] += std::exp(logits[i] - m);
    }
  }
}

void PageMasses(const PageMassesArgs& args) {
  const uint32_t n_runs = (args.n_pages + args.run_pages - 1) / args.run_pages;
  for (uint32_t g = 0; g < args.group; ++g) {
    float* const m = args.m + g * args.m_stride;
    const float* const sums = args.sums + g * args.sum_stride;
    const float max =
        std::max(args.other_m[g], *std::max_element(m, m + n_runs));
    for (uint32_t run = 0; run < n_runs; ++run) m[run] = std::exp(m[run] - max);
    float sum = args.other_l[g] * std::exp(args.other_m[g] - max);
    for (uint32_t i = 0; i < args.n_pages; ++i) {
      if (args.mass[i] >= 0) sum += sums[i] * m[i / args.run_pages];
    }
    for (uint32_t i = 0; i < args.n_pages; ++i) {
      if (args.mass[i] < 0) continue;
      args.mass[i] =
          std::max(args.mass[i], sums[i] * m[i / args.run_pages] / sum);
    }
  }
}

}  // namespace

void AddScalarCold(KernelTable* table) {
  table->encode_cold = EncodeCold;
  table->scan_cold = ScanCold;
  table->page_sums = PageSums;
  table->page_masses = PageMasses;
}

}  // namespace lkv
