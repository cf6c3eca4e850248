// Where things are in a cold group (see cold_group.h), and the scale of its
// elements: the same in every kernel set. Internal linkage, so that a set's
// instructions stay in its own object.
#pragma once

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// Byte of a digest that holds the upper bits of dimension d of a slot, those of
// page i from bit 2 i on.
inline size_t ColdUpperAt(uint32_t slot, uint32_t d) {
  return (size_t{d / 4} * kPageSlots + slot) * 4 + d % 4;
}
// First byte of a digest's scales.
inline size_t ColdKeyScalesAt(uint32_t head_dim) {
  return size_t{kPageSlots} * head_dim;
}
// Byte of a body that holds the lower bits of dimension d of a slot's key, from
// bit ColdLowerShift(d) on.
inline size_t ColdLowerAt(uint32_t slot, uint32_t d) {
  return (size_t{d / 16} * kPageSlots + slot) * 4 + d % 4;
}
inline uint32_t ColdLowerShift(uint32_t d) { return d / 4 % 4 * 2; }
// Byte of a body that holds dimension d of a slot's value, from bit
// ColdValueShift(slot) on.
inline size_t ColdValueAt(uint32_t head_dim, uint32_t slot, uint32_t d) {
  return size_t{4} * head_dim + (size_t{slot / 8} * head_dim + d) * 4 +
         slot % 4;
}
inline uint32_t ColdValueShift(uint32_t slot) { return slot / 4 % 2 * 4; }
// First byte of a body's scales.
inline size_t ColdValueScalesAt(uint32_t head_dim) {
  return kColdBodyBytesPerDim * head_dim;
}

constexpr float kLargestColdLevel = 15;
constexpr float kMeanColdLevel = kLargestColdLevel / 2;
// What the lower bits of a key are taken for while they are not read.
constexpr float kUnreadLower = 1.5f;
// So a level is this and four times the upper bits less 6.
constexpr float kMeanUpperLevel = kMeanColdLevel - kUnreadLower;

// A query with folded scales is rounded to units of a power of two, of which
// the largest magnitude has at least 63.5 and at most 127: with power(x) the
// largest power of two that is not above x, unit = kFoldedShare
// power(kFoldedRoom max(largest, kSmallestFolded)).
constexpr float kSmallestFolded = 1e-30f;
constexpr float kFoldedRoom = 128.0f / 127;
constexpr float kFoldedShare = 1.0f / 64;
constexpr uint32_t kExponentBits = 0x7f800000;  // a float's

}  // namespace
}  // namespace lkv
