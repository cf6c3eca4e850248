#include "gguf/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

int n_signals_seen = 0;

void CountSignal(int) {
  errno = EBADF;
  ++n_signals_seen;
}

// Puts the handler of bus errors back that the test found.
class BusHandlerTest : public testing::Test {
 protected:
  BusHandlerTest() {
    n_signals_seen = 0;
    sigaction(SIGBUS, nullptr, &before_);
  }
  ~BusHandlerTest() override { sigaction(SIGBUS, &before_, nullptr); }

  static void ExpectSurvivesTruncation(const std::string& name) {
    Result<MappedFile> file = OpenOnes(name);
    ASSERT_TRUE(file.ok());
    std::filesystem::resize_file(testing::TempDir() + name, 1);
    errno = ENOTTY;
    EXPECT_EQ(file->bytes()[kBytes - 1], 0);
    EXPECT_EQ(errno, ENOTTY);
    EXPECT_TRUE(file->IsTorn());
  }

  struct sigaction before_ = {};
};

TEST_F(BusHandlerTest, AnEarlierOneSeesTheOtherErrorsAndOursStays) {
  signal(SIGBUS, CountSignal);
  Result<MappedFile> file = OpenOnes("earlier");
  ASSERT_TRUE(file.ok());
  errno = ENOTTY;
  raise(SIGBUS);
  raise(SIGBUS);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(n_signals_seen, 2);
  ExpectSurvivesTruncation("earlier_torn");
  EXPECT_EQ(n_signals_seen, 2);
}

TEST_F(BusHandlerTest, AnIgnoredSignalStaysIgnored) {
  signal(SIGBUS, SIG_IGN);
  Result<MappedFile> file = OpenOnes("ignored");
  ASSERT_TRUE(file.ok());
  raise(SIGBUS);
  ExpectSurvivesTruncation("ignored_torn");
}

struct sigaction passed_to = {};

void CountAndPassOn(int number, siginfo_t* info, void* context) {
  ++n_signals_seen;
  passed_to.sa_sigaction(number, info, context);
}

TEST_F(BusHandlerTest, ALaterOneOutlivesTheLastGuard) {
  {
    Result<MappedFile> file = OpenOnes("later");
    ASSERT_TRUE(file.ok());
    struct sigaction later = {};
    later.sa_sigaction = CountAndPassOn;
    later.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &later, &passed_to);
  }
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  EXPECT_EQ(now.sa_sigaction, CountAndPassOn);
  ExpectSurvivesTruncation("later_torn");
  EXPECT_EQ(n_signals_seen, 1) << "it passes on to ours, which is installed";
  sigaction(SIGBUS, nullptr, &now);
  EXPECT_EQ(now.sa_sigaction, CountAndPassOn);
}

TEST_F(BusHandlerTest, ADefaultOverOursIsReplacedByTheNextGuard) {
  {
    Result<MappedFile> file = OpenOnes("default");
    ASSERT_TRUE(file.ok());
    signal(SIGBUS, SIG_DFL);
  }
  ExpectSurvivesTruncation("default_torn");
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
