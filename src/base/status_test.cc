#include "lookaheadkv/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace lkv {
namespace {

TEST(StatusTest, DefaultIsOkAndHasNoMessage) {
  Status s;
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(s.code(), StatusCode::kOk);
  EXPECT_EQ(s.message(), "");
}

TEST(StatusTest, CopyKeepsCodeAndMessage) {
  Status a = Corrupt("model.gguf: truncated; download it again");
  Status b = a;
  EXPECT_FALSE(b.ok());
  EXPECT_EQ(b.code(), StatusCode::kCorrupt);
  EXPECT_EQ(b.message(), "model.gguf: truncated; download it again");
}

TEST(ResultTest, HoldsMoveOnlyValue) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r.status().ok());
  std::unique_ptr<int> taken = std::move(r).value();
  EXPECT_EQ(*taken, 7);
}

TEST(ResultTest, HoldsFailure) {
  Result<int> r = NotFound("x: missing; create it");
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), StatusCode::kNotFound);
}

TEST(ResultDeathTest, ValueOfFailureStopsTheProcess) {
  Result<int> r = NotFound("x: missing; create it");
  EXPECT_DEATH(static_cast<void>(r.value()), "");
}

TEST(ResultDeathTest, SuccessWithoutValueStopsTheProcess) {
  EXPECT_DEATH(Result<int>{Status()}, "");
}

}  // namespace
}  // namespace lkv
