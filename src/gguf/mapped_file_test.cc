#include "gguf/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace lkv {
namespace {

constexpr size_t kBytes = 1 << 20;

// A file of kBytes ones.
std::string WriteOnes(const std::string& name) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << std::string(kBytes, 1);
  return path;
}

Result<MappedFile> OpenOnes(const std::string& name) {
  return MappedFile::Open(WriteOnes(name));
}

TEST(MappedFileTest, WhatIsTruncatedMeanwhileReadsAsZerosAndIsSaid) {
  Result<MappedFile> file = OpenOnes("truncated");
  ASSERT_TRUE(file.ok());
  const std::span<const uint8_t> bytes = file->bytes();
  EXPECT_EQ(bytes[kBytes / 2], 1);
  EXPECT_FALSE(file->IsTorn());
  std::filesystem::resize_file(testing::TempDir() + "truncated", kBytes / 4);
  EXPECT_EQ(bytes[kBytes / 4 - 1], 1);
  EXPECT_FALSE(file->IsTorn());
  EXPECT_EQ(bytes[kBytes / 2], 0);
  EXPECT_TRUE(file->IsTorn());
  EXPECT_EQ(bytes[kBytes - 1], 0);
  EXPECT_EQ(bytes[kBytes / 4 - 1], 1) << "what is left can still be read";
}

TEST(MappedFileTest, OneTornFileDoesNotSpeakForAnother) {
  Result<MappedFile> torn = OpenOnes("torn");
  Result<MappedFile> whole = OpenOnes("whole");
  ASSERT_TRUE(torn.ok() && whole.ok());
  MappedFile moved = std::move(*torn);
  std::filesystem::resize_file(testing::TempDir() + "torn", 1);
  EXPECT_EQ(moved.bytes()[kBytes - 1], 0);
  EXPECT_TRUE(moved.IsTorn());
  EXPECT_FALSE(whole->IsTorn());
}

TEST(MappedFileTest, TheHandlerOfBusErrorsIsGivenBack) {
  struct sigaction before = {}, during = {}, after = {};
  sigaction(SIGBUS, nullptr, &before);
  {
    Result<MappedFile> file = OpenOnes("handler");
    ASSERT_TRUE(file.ok());
    sigaction(SIGBUS, nullptr, &during);
  }
  sigaction(SIGBUS, nullptr, &after);
  EXPECT_NE(during.sa_sigaction, before.sa_sigaction);
  EXPECT_EQ(after.sa_sigaction, before.sa_sigaction);
}

TEST(MappedFileDeathTest, BusErrorsElsewhereStillEndTheProcess) {
  Result<MappedFile> file = OpenOnes("elsewhere");
  ASSERT_TRUE(file.ok());
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        Result<MappedFile> guarded = OpenOnes("guarded");
        raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace lkv
