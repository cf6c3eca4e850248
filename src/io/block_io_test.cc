// Both implementations do what block_io.h says.
#include "io/block_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <vector>

#include "io/io_buffer.h"
#include "io/thread_block_io.h"
#include "io/uring_block_io.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr uint32_t kCapacity = 8;
constexpr uint32_t kSecondUs = 1'000'000;
using Kind = IoRequest::Kind;
using Outcome = IoCompletion::Outcome;

enum class Implementation { kRing, kThreads };

class BlockIoTest : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    auto folder = OpenLocalFolder(temp_.File("ours"));
    ASSERT_TRUE(folder.ok());
    auto file = ScratchFile::Create(**folder);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = *std::move(file);
    auto io = GetParam() == Implementation::kRing
                  ? OpenUringBlockIo(*file_, kCapacity)
                  : OpenThreadBlockIo(*file_, kCapacity, 3);
    if (!io.ok()) GTEST_SKIP() << io.status().message();
    io_ = *std::move(io);
  }
  // Waits until all that is under way is finished.
  std::vector<IoCompletion> Finish() {
    std::vector<IoCompletion> all;
    while (io_->n_pending() > 0) {
      IoCompletion out[3];
      const size_t n = io_->Poll(out);
      all.insert(all.end(), out, out + n);
      if (n == 0) io_->Wait(kSecondUs);
    }
    return all;
  }
  IoRequest At(Kind kind, uint64_t block, IoBuffer& buffer) {
    return {.kind = kind,
            .tag = block,
            .offset = block * kIoBlockBytes,
            .data = buffer.data(),
            .n_bytes = static_cast<uint32_t>(buffer.size())};
  }

  TempFolder temp_;
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<BlockIo> io_;
};

TEST_P(BlockIoTest, WhatWasWrittenIsReadWhateverTheOrder) {
  std::mt19937_64 random(1);
  std::map<uint64_t, uint8_t> expected;
  std::vector<IoBuffer> buffers;
  for (uint32_t i = 0; i < kCapacity; ++i) buffers.emplace_back(kIoBlockBytes);
  for (int round = 0; round < 100; ++round) {
    const Kind kind = round % 2 == 0 ? Kind::kWrite : Kind::kRead;
    std::vector<IoRequest> requests;
    for (IoBuffer& buffer : buffers) {
      const uint64_t block = random() % 64;
      const bool is_under_way =
          std::any_of(requests.begin(), requests.end(),
                      [&](const IoRequest& r) { return r.tag == block; });
      if (is_under_way) continue;
      if (kind == Kind::kRead && !expected.contains(block)) continue;
      const auto byte = static_cast<uint8_t>(random());
      std::fill_n(buffer.data(), kIoBlockBytes, byte);
      if (kind == Kind::kWrite) expected[block] = byte;
      requests.push_back(At(kind, block, buffer));
    }
    if (requests.empty()) continue;
    ASSERT_EQ(io_->Submit(requests), requests.size());
    const std::vector<IoCompletion> finished = Finish();
    ASSERT_EQ(finished.size(), requests.size());
    for (const IoCompletion& completion : finished) {
      ASSERT_EQ(completion.outcome, Outcome::kDone);
    }
    for (const IoRequest& request : requests) {
      const uint8_t byte = expected[request.tag];
      ASSERT_TRUE(std::all_of(request.data, request.data + kIoBlockBytes,
                              [&](uint8_t b) { return b == byte; }))
          << "round " << round << ", block " << request.tag;
    }
  }
}

TEST_P(BlockIoTest, TakesNoMoreThanItHasRoomFor) {
  IoBuffer buffer(kIoBlockBytes);
  std::vector<IoRequest> requests(kCapacity + 3, At(Kind::kWrite, 0, buffer));
  EXPECT_EQ(io_->Submit(requests), kCapacity);
  EXPECT_EQ(io_->n_pending(), kCapacity);
  EXPECT_EQ(io_->Submit({requests.data(), 1}), 0u);
  EXPECT_EQ(Finish().size(), kCapacity);
  EXPECT_EQ(io_->Submit({requests.data(), 1}), 1u);
  EXPECT_EQ(Finish().size(), 1u);
}

TEST_P(BlockIoTest, ReadingBeyondTheEndSaysSo) {
  IoBuffer buffer(2 * kIoBlockBytes);
  ASSERT_EQ(ftruncate(file_->descriptor(), kIoBlockBytes), 0);
  const IoRequest request = At(Kind::kRead, 0, buffer);  // half of it is there
  ASSERT_EQ(io_->Submit({&request, 1}), 1u);
  const std::vector<IoCompletion> finished = Finish();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome, Outcome::kFailed);
  EXPECT_EQ(finished[0].error, ENODATA);
}

TEST_P(BlockIoTest, ErrorsOfTheSystemAreReportedPerRequest) {
  IoBuffer buffer(kIoBlockBytes);
  std::vector<IoRequest> requests = {At(Kind::kWrite, 0, buffer),
                                     At(Kind::kRead, 1, buffer)};
  // A descriptor that can only be read.
  const int read_only = open(file_->path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(ftruncate(file_->descriptor(), 2 * kIoBlockBytes), 0);
  ASSERT_GE(dup3(read_only, file_->descriptor(), O_CLOEXEC), 0);
  close(read_only);
  ASSERT_EQ(io_->Submit(requests), 2u);
  for (const IoCompletion& completion : Finish()) {
    EXPECT_EQ(completion.outcome,
              completion.tag == 0 ? Outcome::kFailed : Outcome::kDone);
    EXPECT_EQ(completion.error, completion.tag == 0 ? EBADF : 0);
  }
}

TEST_P(BlockIoTest, DestroyedWithRequestsUnderWayItWaitsForThem) {
  std::vector<IoBuffer> buffers;
  std::vector<IoRequest> requests;
  for (uint32_t i = 0; i < kCapacity; ++i) buffers.emplace_back(1 << 20);
  for (uint32_t i = 0; i < kCapacity; ++i) {
    std::fill_n(buffers[i].data(), buffers[i].size(), uint8_t{7});
    requests.push_back(At(Kind::kWrite, i * 256, buffers[i]));
  }
  ASSERT_EQ(io_->Submit(requests), kCapacity);
  io_.reset();
  buffers.clear();  // under ASan and TSan a late write would be seen
}

TEST_P(BlockIoTest, SaysHowMuchSpaceIsLeft) {
  const Result<uint64_t> free_bytes = io_->FreeBytes();
  ASSERT_TRUE(free_bytes.ok());
  const auto space = std::filesystem::space(file_->path());
  EXPECT_NEAR(static_cast<double>(*free_bytes),
              static_cast<double>(space.available), 1e9);
}

INSTANTIATE_TEST_SUITE_P(All, BlockIoTest,
                         testing::Values(Implementation::kRing,
                                         Implementation::kThreads),
                         [](const auto& info) {
                           return info.param == Implementation::kRing
                                      ? "Ring"
                                      : "Threads";
                         });

}  // namespace
}  // namespace lkv
