#include "base/state_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace lkv {
namespace {

struct Thing {
  uint32_t count = 0;
  double level = 0;
  bool is_set = false;
  std::vector<float> values = std::vector<float>(3);

  void ExchangeState(StateStream& stream) {
    stream.ExchangeCount(count, 7);
    stream.Exchange(level);
    stream.Exchange(is_set);
    stream.Exchange(values);
  }
};

std::vector<uint8_t> Written(Thing thing) {
  std::vector<uint8_t> bytes;
  StateStream stream(&bytes);
  thing.ExchangeState(stream);
  EXPECT_TRUE(stream.IsDone());
  return bytes;
}

constexpr size_t kBytes = sizeof(uint32_t) + sizeof(double) + 1 + 12;

TEST(StateStreamTest, WhatIsWrittenIsReadByTheSameCall) {
  const std::vector<uint8_t> bytes = Written({7, 0.5, true, {1, 2, 3}});
  EXPECT_EQ(bytes.size(), kBytes);
  Thing thing;
  StateStream stream{std::span(bytes)};
  thing.ExchangeState(stream);
  EXPECT_TRUE(stream.IsDone());
  EXPECT_EQ(thing.count, 7u);
  EXPECT_EQ(thing.level, 0.5);
  EXPECT_TRUE(thing.is_set);
  EXPECT_EQ(thing.values, (std::vector<float>{1, 2, 3}));
}

TEST(StateStreamTest, NothingShorterIsTaken) {
  const std::vector<uint8_t> bytes = Written({7, 0.5, true, {1, 2, 3}});
  for (size_t n = 0; n < bytes.size(); ++n) {
    Thing thing;
    StateStream stream{std::span(bytes).first(n)};
    thing.ExchangeState(stream);
    EXPECT_FALSE(stream.ok()) << n;
    EXPECT_EQ(thing.values, std::vector<float>(3));
  }
}

TEST(StateStreamTest, WhatIsLeftOverIsNoticed) {
  std::vector<uint8_t> bytes = Written({});
  bytes.push_back(0);
  Thing thing;
  StateStream stream{std::span<const uint8_t>(bytes)};
  thing.ExchangeState(stream);
  EXPECT_TRUE(stream.ok());
  EXPECT_FALSE(stream.IsDone());
}

TEST(StateStreamTest, AFailingWriterChangesNothing) {
  std::vector<uint8_t> bytes;
  StateStream stream(&bytes);
  stream.Fail();
  Thing thing{5, 0.5, true, {1, 2, 3}};
  thing.ExchangeState(stream);
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(thing.count, 5u);
  EXPECT_EQ(thing.level, 0.5);
  EXPECT_TRUE(thing.is_set);
}

TEST(StateStreamTest, OnlyTrueAndFalseAndEnumeratorsAreTaken) {
  enum class Color { kRed, kGreen };
  for (const uint8_t byte : {0, 1, 2, 255}) {
    const std::vector<uint8_t> bytes = {byte, 0, 0, 0};
    StateStream of_bool{std::span(bytes)};
    bool value = false;
    of_bool.Exchange(value);
    EXPECT_EQ(of_bool.ok(), byte <= 1);
    EXPECT_EQ(value, byte == 1);
    StateStream of_enum{std::span(bytes)};
    Color color = Color::kRed;
    of_enum.Exchange(color, Color::kGreen);
    EXPECT_EQ(of_enum.ok(), byte <= 1);
    EXPECT_EQ(color == Color::kGreen, byte == 1);
  }
}

TEST(StateStreamTest, ACountBeyondItsLimitIsNoneAndEndsTheReading) {
  std::vector<uint8_t> bytes = Written({7, 0.5, true, {1, 2, 3}});
  bytes[0] = 8;
  Thing thing;
  StateStream stream{std::span<const uint8_t>(bytes)};
  thing.ExchangeState(stream);
  EXPECT_FALSE(stream.ok());
  EXPECT_EQ(thing.count, 0u);
  EXPECT_EQ(thing.level, 0);
}

}  // namespace
}  // namespace lkv
