#include "engine/admission.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/aligned_buffer.h"

namespace lkv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kPlenty = std::numeric_limits<uint64_t>::max();

bool Contains(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string_view::npos;
}

TEST(CheckFitsTest, WhatIsLeftMayBeUsedToTheLastByte) {
  const MemoryNeed need{.weight_bytes = 3 * kMiB,
                        .working_bytes = kMiB,
                        .kv_bytes = 2 * kMiB,
                        .address_bytes = 9 * kMiB};
  EXPECT_TRUE(CheckFits("m", need, {6 * kMiB, 9 * kMiB}).ok());
  EXPECT_EQ(CheckFits("m", need, {6 * kMiB - 1, kPlenty}).code(),
            StatusCode::kOutOfMemory);
  EXPECT_EQ(CheckFits("m", need, {kPlenty, 9 * kMiB - 1}).code(),
            StatusCode::kOutOfMemory);
}

TEST(CheckFitsTest, RefusalNamesEverySizeAndTheRemedy) {
  const MemoryNeed model{.weight_bytes = 96 * kMiB, .working_bytes = 5 * kMiB};
  const Status small = CheckFits("m.gguf", model, {50 * kMiB, kPlenty});
  for (const char* part : {"m.gguf", "101.0 MiB", "96.0 MiB of weights",
                           "5.0 MiB", "50.0 MiB are free", "smaller model"}) {
    EXPECT_TRUE(Contains(small, part)) << small.message();
  }
  EXPECT_FALSE(Contains(small, "KV cache")) << small.message();

  const MemoryNeed text{.kv_bytes = 7 * kMiB};
  const Status full = CheckFits("sequences", text, {6 * kMiB, kPlenty});
  EXPECT_TRUE(Contains(full, "7.0 MiB of KV cache")) << full.message();
  EXPECT_TRUE(Contains(full, "smaller budget")) << full.message();

  const MemoryNeed mapped{.weight_bytes = kMiB, .address_bytes = 8 * kMiB};
  const Status limited = CheckFits("m.gguf", mapped, {kPlenty, 5 * kMiB});
  for (const char* part : {"8.0 MiB of addresses", "5.0 MiB", "ulimit -v"}) {
    EXPECT_TRUE(Contains(limited, part)) << limited.message();
  }
}

TEST(CatchRefusedMemoryTest, NamesWhatWasRefused) {
  const Status status = CatchRefusedMemory(
      "m.gguf", []() -> Status { throw AllocationFailure(3 * kMiB); });
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  for (const char* part : {"m.gguf", "3.0 MiB", "ulimit -v"}) {
    EXPECT_TRUE(Contains(status, part)) << status.message();
  }
}

TEST(CatchRefusedMemoryTest, PlainBadAllocIsALackOfMemoryToo) {
  EXPECT_EQ(CatchRefusedMemory("m", []() -> Status { throw std::bad_alloc(); })
                .code(),
            StatusCode::kOutOfMemory);
}

TEST(CatchRefusedMemoryTest, WhatSucceedsIsPassedOn) {
  const Result<int> seven =
      CatchRefusedMemory("m", [] { return Result<int>(7); });
  EXPECT_EQ(*seven, 7);
}

}  // namespace
}  // namespace lkv
