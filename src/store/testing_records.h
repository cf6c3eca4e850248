// Records whose bytes follow from a number, for tests of stores.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "io/block_io.h"
#include "store/record_store.h"

namespace lkv {

// The 4 bodies of a group at head_dim 64.
inline constexpr uint32_t kTestRecordBytes = 4 * 832;

inline RecordStore::Options TestRecordOptions() {
  return {.record_bytes = kTestRecordBytes,
          .n_frames = 40,
          .disk_bytes_max = 8 << 20,
          .read_alignment = 512,
          .segment_bytes = 16 * 4096};  // 18 records
}

inline std::unique_ptr<RecordStore> CreateStore(
    BlockIo& io, const RecordStore::Options& options = TestRecordOptions()) {
  auto store = RecordStore::Create(options, io);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return *std::move(store);
}

inline void FillWith(uint64_t number, uint8_t* bytes) {
  std::mt19937_64 random(number);
  for (uint32_t i = 0; i < kTestRecordBytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes + i, &word, sizeof(word));
  }
}
inline bool HoldsNumber(uint64_t number, const uint8_t* bytes) {
  uint8_t expected[kTestRecordBytes];
  FillWith(number, expected);
  return std::memcmp(bytes, expected, kTestRecordBytes) == 0;
}

// None when there is no frame.
inline std::optional<RecordId> PutNumber(RecordStore& store, uint64_t number) {
  const std::optional<RecordId> id = store.Open();
  if (!id.has_value()) return id;
  FillWith(number, store.fill_data(*id));
  store.Seal(*id);
  return id;
}

}  // namespace lkv
