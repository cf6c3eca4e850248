// Makes cold groups of f16 pages for the vector sets. Include after avx2_simd.h
// or avx512_simd.h.
//
// Lanes are slots where keys are written and dimensions where values are, so
// that the bytes of a lane's word are put together by shifts alone.
#pragma once

#include "kernels/simd_cold_pages.h"

namespace lkv {
namespace {

// Channels or rows whose scales are found together.
constexpr uint32_t kEncodedTogether = 16;
// The smallest scale that is not 0.
constexpr float kSmallestColdScale = 0x1p-24f;

// How the elements of kEncodedTogether channels or rows become levels.
class LevelScales {
 public:
  // The least and largest elements of eight from `first` on.
  void SetRanges(uint32_t first, const Simd::F32* least,
                 const Simd::F32* largest) {
    Simd::Store(least_ + first, Simd::MinimaOf<8>(least));
    Simd::Store(largest_ + first, Simd::MaximaOf<8>(largest));
  }
  // Writes f16 scales and mins of all.
  void Finish(uint16_t* scales, uint16_t* mins) {
    for (uint32_t i = 0; i < kEncodedTogether; i += Simd::kLanes) {
      // -0 becomes 0.
      const Simd::F32 low = Simd::Add(Simd::Load(least_ + i), Simd::Zero());
      const Simd::F32 range = Simd::Sub(Simd::Load(largest_ + i), low);
      Simd::StoreF16Up(scales + i,
                       Simd::Div(range, Simd::Set(kLargestColdLevel)));
      Simd::StoreF16(mins + i, low);
      const Simd::F32 scale =
          Simd::Max(Simd::LoadF16(scales + i), Simd::Set(kSmallestColdScale));
      Simd::Store(least_ + i, low);
      Simd::Store(inverses_ + i, Simd::Div(Simd::Set(1), scale));
    }
  }
  // Of elements x of the channel or row i.
  Simd::I32 LevelsOf(Simd::F32 x, uint32_t i) const {
    return Simd::Round(
        Simd::Mul(Simd::Sub(x, Simd::Set(least_[i])), Simd::Set(inverses_[i])));
  }

 private:
  // Room for whole vectors behind the last eight.
  alignas(64) float least_[kEncodedTogether + 8];
  alignas(64) float largest_[kEncodedTogether + 8];
  alignas(64) float inverses_[kEncodedTogether];
};

// Ranges of eight channels from d on, as number `first` and after.
inline void ChannelRanges(const EncodeColdArgs& args, uint32_t d,
                          uint32_t first, LevelScales* scales) {
  Simd::F32 least[8];
  Simd::F32 largest[8];
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 8; ++j) {
    const auto keys = [&](uint32_t page, uint32_t slot) {
      return Simd::LoadF16(reinterpret_cast<const uint16_t*>(args.pages[page]) +
                           (d + j) * kPageSlots + slot);
    };
    least[j] = largest[j] = keys(0, 0);
#pragma GCC unroll 8
    for (uint32_t page = 0; page < kColdGroupPages; ++page) {
#pragma GCC unroll 8
      for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
        least[j] = Simd::Min(least[j], keys(page, slot));
        largest[j] = Simd::Max(largest[j], keys(page, slot));
      }
    }
  }
  scales->SetRanges(first, least, largest);
}

// The levels of four channels from d on, number i of `scales`: one in each byte
// of a slot's word.
inline Simd::I32 PackKeys(const uint8_t* page, uint32_t slot, uint32_t d,
                          uint32_t i, const LevelScales& scales) {
  Simd::I32 levels = Simd::ZeroIntegers();
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    const Simd::F32 keys = Simd::LoadF16(
        reinterpret_cast<const uint16_t*>(page) + (d + j) * kPageSlots + slot);
    levels =
        Simd::Or(levels, Simd::ShiftLeft(scales.LevelsOf(keys, i + j), 8 * j));
  }
  return levels;
}

// Keys of 16 channels from d on.
inline void EncodeKeys(const EncodeColdArgs& args, uint32_t d) {
  const Simd::I32 pairs = Simd::SetInteger(kLowerPairs);
  LevelScales scales;
  ChannelRanges(args, d, 0, &scales);
  ChannelRanges(args, d + 8, 8, &scales);
  auto* const f16 =
      reinterpret_cast<uint16_t*>(args.digest + ColdKeyScalesAt(args.head_dim));
  scales.Finish(f16 + d, f16 + args.head_dim + d);
  for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
    Simd::I32 upper[4] = {Simd::ZeroIntegers(), Simd::ZeroIntegers(),
                          Simd::ZeroIntegers(), Simd::ZeroIntegers()};
#pragma GCC unroll 4
    for (uint32_t page = 0; page < kColdGroupPages; ++page) {
      Simd::I32 lower = Simd::ZeroIntegers();
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
        const Simd::I32 levels =
            PackKeys(args.pages[page], slot, d + 4 * i, 4 * i, scales);
        upper[i] = Simd::Or(
            upper[i],
            Simd::ShiftLeft(Simd::And(Simd::ShiftRight(levels, 2), pairs),
                            2 * page));
        lower =
            Simd::Or(lower, Simd::ShiftLeft(Simd::And(levels, pairs), 2 * i));
      }
      Simd::StoreIntegers(args.bodies[page] + ColdLowerAt(slot, d), lower);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      Simd::StoreIntegers(args.digest + ColdUpperAt(slot, d + 4 * i), upper[i]);
    }
  }
}

// Ranges of the values of eight slots from `slot` on.
inline void RowRanges(const uint16_t* values, uint32_t head_dim, uint32_t slot,
                      LevelScales* scales) {
  Simd::F32 least[8];
  Simd::F32 largest[8];
  for (uint32_t j = 0; j < 8; ++j) {
    const uint16_t* const row = values + (slot + j) * head_dim;
    least[j] = largest[j] = Simd::LoadF16(row);
    for (uint32_t d = Simd::kLanes; d < head_dim; d += Simd::kLanes) {
      const Simd::F32 x = Simd::LoadF16(row + d);
      least[j] = Simd::Min(least[j], x);
      largest[j] = Simd::Max(largest[j], x);
    }
  }
  scales->SetRanges(slot, least, largest);
}

inline void EncodeValues(const uint8_t* page, uint32_t head_dim,
                         uint8_t* body) {
  const auto* const values =
      reinterpret_cast<const uint16_t*>(page) + kPageSlots * head_dim;
  LevelScales scales;
  RowRanges(values, head_dim, 0, &scales);
  RowRanges(values, head_dim, 8, &scales);
  auto* const f16 =
      reinterpret_cast<uint16_t*>(body + ColdValueScalesAt(head_dim));
  scales.Finish(f16, f16 + kPageSlots);
  for (uint32_t first = 0; first < kPageSlots; first += 8) {
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      Simd::I32 levels = Simd::ZeroIntegers();
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t slot = first + i;
        const Simd::I32 of_slot =
            scales.LevelsOf(Simd::LoadF16(values + slot * head_dim + d), slot);
        levels = Simd::Or(
            levels, Simd::ShiftLeft(of_slot, i % 4 * 8 + ColdValueShift(i)));
      }
      Simd::StoreIntegers(body + ColdValueAt(head_dim, first, d), levels);
    }
  }
}

inline void EncodeCold(const EncodeColdArgs& args) {
  for (uint32_t d = 0; d < args.head_dim; d += kEncodedTogether) {
    EncodeKeys(args, d);
  }
  for (uint32_t page = 0; page < kColdGroupPages; ++page) {
    EncodeValues(args.pages[page], args.head_dim, args.bodies[page]);
  }
}

}  // namespace
}  // namespace lkv
