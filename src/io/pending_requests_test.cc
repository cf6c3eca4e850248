#include "io/pending_requests.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace lkv {
namespace {

using Next = PendingRequests::Next;
using Outcome = IoCompletion::Outcome;

class PendingRequestsTest : public testing::Test {
 protected:
  uint32_t AddRead(uint64_t tag, uint32_t deadline_us = 0) {
    return pending_.Add({.tag = tag,
                         .offset = 4096,
                         .data = bytes_,
                         .n_bytes = 1024,
                         .deadline_us = deadline_us},
                        1000);
  }

  uint8_t bytes_[1024];
  PendingRequests pending_{2};
  IoCompletion completion_;
};

TEST_F(PendingRequestsTest, ARequestIsDoneWhenAllItsBytesAre) {
  const uint32_t slot = AddRead(7);
  EXPECT_EQ(pending_.n_pending(), 1u);
  ASSERT_EQ(pending_.Advance(slot, 1024, &completion_), Next::kFinished);
  EXPECT_EQ(completion_.tag, 7u);
  EXPECT_EQ(completion_.outcome, Outcome::kDone);
  EXPECT_EQ(completion_.error, 0);
  EXPECT_EQ(pending_.n_pending(), 0u);
}

TEST_F(PendingRequestsTest, AShortReadGoesOnWhereItStopped) {
  const uint32_t slot = AddRead(7);
  ASSERT_EQ(pending_.Advance(slot, 512, &completion_), Next::kAgain);
  EXPECT_EQ(pending_.Rest(slot).offset, 4096u + 512u);
  EXPECT_EQ(pending_.Rest(slot).data, bytes_ + 512);
  EXPECT_EQ(pending_.Rest(slot).n_bytes, 512u);
  ASSERT_EQ(pending_.Advance(slot, 512, &completion_), Next::kFinished);
  EXPECT_EQ(completion_.outcome, Outcome::kDone);
}

TEST_F(PendingRequestsTest, InterruptedAndPutOffCallsAreRepeated) {
  for (const int error : {EINTR, EAGAIN}) {
    const uint32_t slot = AddRead(7);
    ASSERT_EQ(pending_.Advance(slot, -error, &completion_), Next::kAgain);
    EXPECT_EQ(pending_.Rest(slot).n_bytes, 1024u);
    ASSERT_EQ(pending_.Advance(slot, 1024, &completion_), Next::kFinished);
  }
}

TEST_F(PendingRequestsTest, RepetitionsEnd) {
  for (const int64_t result : {int64_t{-EINTR}, int64_t{1}}) {
    const uint32_t slot = AddRead(7);
    uint32_t n_calls = 1;
    while (pending_.Advance(slot, result, &completion_) == Next::kAgain) {
      ++n_calls;
    }
    EXPECT_EQ(n_calls, 1 + PendingRequests::kRepetitionsMax);
    EXPECT_EQ(completion_.outcome, Outcome::kFailed);
    EXPECT_EQ(completion_.error, result < 0 ? EINTR : EIO);
  }
}

TEST_F(PendingRequestsTest, AnErrorAndTheEndOfTheFileAreReported) {
  ASSERT_EQ(pending_.Advance(AddRead(7), -EIO, &completion_), Next::kFinished);
  EXPECT_EQ(completion_.outcome, Outcome::kFailed);
  EXPECT_EQ(completion_.error, EIO);
  ASSERT_EQ(pending_.Advance(AddRead(7), 0, &completion_), Next::kFinished);
  EXPECT_EQ(completion_.error, ENODATA);
  const uint32_t write = pending_.Add(
      {.kind = IoRequest::Kind::kWrite, .data = bytes_, .n_bytes = 1}, 0);
  ASSERT_EQ(pending_.Advance(write, 0, &completion_), Next::kFinished);
  EXPECT_EQ(completion_.error, EIO);
}

TEST_F(PendingRequestsTest, WhatIsOverdueIsSaidOnceAndStaysUnderWay) {
  IoCompletion out[2];
  AddRead(8);
  const uint32_t slot = AddRead(7, 50);
  EXPECT_TRUE(pending_.is_full());
  EXPECT_EQ(pending_.TakeOverdue(1049, out), 0u);
  ASSERT_EQ(pending_.TakeOverdue(1050, out), 1u);
  EXPECT_EQ(out[0].tag, 7u);
  EXPECT_EQ(out[0].outcome, Outcome::kOverdue);
  EXPECT_FALSE(out[0].is_final());
  EXPECT_EQ(pending_.TakeOverdue(9999, out), 0u);
  EXPECT_EQ(pending_.n_pending(), 2u);
  ASSERT_EQ(pending_.Advance(slot, 1024, &completion_), Next::kFinished);
  EXPECT_TRUE(completion_.is_final());
}

TEST_F(PendingRequestsTest, OverdueOnesThatDoNotFitFollow) {
  IoCompletion out[1];
  AddRead(7, 50);
  AddRead(8, 60);
  ASSERT_EQ(pending_.TakeOverdue(1060, out), 1u);
  const uint64_t first = out[0].tag;
  ASSERT_EQ(pending_.TakeOverdue(1060, out), 1u);
  EXPECT_EQ(first + out[0].tag, 15u);
  EXPECT_EQ(pending_.TakeOverdue(1060, out), 0u);
}

using PendingRequestsDeathTest = PendingRequestsTest;

TEST_F(PendingRequestsDeathTest, MoreThanItHoldsAndAFreeSlotStop) {
  AddRead(1);
  const uint32_t slot = AddRead(2);
  EXPECT_DEATH(AddRead(3), "CHECK failed");
  ASSERT_EQ(pending_.Advance(slot, 1024, &completion_), Next::kFinished);
  EXPECT_DEATH(pending_.Advance(slot, 1024, &completion_), "CHECK failed");
}

}  // namespace
}  // namespace lkv
