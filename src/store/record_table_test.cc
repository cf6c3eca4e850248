#include "store/record_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace lkv {
namespace {

using State = RecordState;

// How to reach each state from kFilling.
const std::map<State, std::vector<State>> kWays = {
    {State::kFilling, {}},
    {State::kUnwritten, {State::kUnwritten}},
    {State::kWriting, {State::kUnwritten, State::kWriting}},
    {State::kResident, {State::kUnwritten, State::kWriting, State::kResident}},
    {State::kOnDisk,
     {State::kUnwritten, State::kWriting, State::kResident, State::kOnDisk}},
    {State::kFetching,
     {State::kUnwritten, State::kWriting, State::kResident, State::kOnDisk,
      State::kFetching}},
    {State::kArrived,
     {State::kUnwritten, State::kWriting, State::kResident, State::kOnDisk,
      State::kFetching, State::kArrived}},
    {State::kLost,
     {State::kUnwritten, State::kWriting, State::kResident, State::kOnDisk,
      State::kFetching, State::kLost}},
};

const std::map<State, std::set<State>> kSuccessors = {
    {State::kFilling, {State::kUnwritten}},
    {State::kUnwritten, {State::kWriting}},
    {State::kWriting, {State::kUnwritten, State::kResident}},
    {State::kResident, {State::kOnDisk}},
    {State::kOnDisk, {State::kFetching}},
    {State::kFetching, {State::kArrived, State::kOnDisk, State::kLost}},
    {State::kArrived, {State::kResident, State::kOnDisk}},
    {State::kLost, {}},
};

const std::set<State> kReadable = {State::kUnwritten, State::kWriting,
                                   State::kResident};

RecordId AddIn(RecordTable& table, State state) {
  const RecordId id = table.Add(5);
  for (const State step : kWays.at(state)) table.Move(id, step);
  return id;
}

TEST(RecordTableTest, EveryAllowedMoveGoes) {
  for (const auto& [from, successors] : kSuccessors) {
    for (const State to : successors) {
      RecordTable table(1);
      const RecordId id = AddIn(table, from);
      ASSERT_EQ(table.state(id), from);
      table.Move(id, to);
      EXPECT_EQ(table.state(id), to);
    }
  }
}

TEST(RecordTableDeathTest, EveryOtherMoveStops) {
  for (const auto& [from, successors] : kSuccessors) {
    RecordTable table(1);
    const RecordId id = AddIn(table, from);
    for (uint32_t to = 0; to < kRecordStates; ++to) {
      if (successors.contains(State(to))) continue;
      EXPECT_DEATH(table.Move(id, State(to)), "CHECK failed")
          << static_cast<uint32_t>(from) << " to " << to;
    }
  }
}

TEST(RecordTableDeathTest, OnlyWhatIsReadableIsPinned) {
  for (const auto& [state, way] : kWays) {
    RecordTable table(1);
    const RecordId id = AddIn(table, state);
    EXPECT_EQ(table.IsReadable(id), kReadable.contains(state));
    if (kReadable.contains(state)) {
      table.Pin(id);
      EXPECT_EQ(table.n_pins(id), 1u);
    } else {
      EXPECT_DEATH(table.Pin(id), "CHECK failed");
    }
  }
}

TEST(RecordTableDeathTest, APinnedRecordKeepsItsFrame) {
  RecordTable table(1);
  const RecordId id = AddIn(table, State::kResident);
  table.Pin(id);
  table.Pin(id);
  table.Unpin(id);
  EXPECT_DEATH(table.Move(id, State::kOnDisk), "CHECK failed");
  EXPECT_DEATH((void)table.Release(id), "CHECK failed");
  table.Unpin(id);
  EXPECT_DEATH(table.Unpin(id), "CHECK failed");
  table.Move(id, State::kOnDisk);
}

TEST(RecordTableTest, APinLastsWhileTheDiskIsWrittenTo) {
  RecordTable table(1);
  const RecordId id = AddIn(table, State::kUnwritten);
  table.Pin(id);
  table.Move(id, State::kWriting);
  table.Move(id, State::kResident);
  EXPECT_EQ(table.n_pins(id), 1u);
}

TEST(RecordTableDeathTest, OnlyWhatHasAFrameSaysWhich) {
  for (const auto& [state, way] : kWays) {
    RecordTable table(1);
    const RecordId id = AddIn(table, state);
    if (state == State::kOnDisk || state == State::kLost) {
      EXPECT_DEATH((void)table.frame(id), "CHECK failed");
    } else {
      EXPECT_EQ(table.frame(id), 5u);
    }
  }
}

TEST(RecordTableDeathTest, ARecordIsFreeAfterItsLastHolder) {
  RecordTable table(1);
  const RecordId id = table.Add(0);
  table.Share(id);
  EXPECT_FALSE(table.Release(id));
  EXPECT_DEATH(table.Remove(id), "CHECK failed");
  EXPECT_TRUE(table.Release(id));
  EXPECT_DEATH((void)table.Release(id), "CHECK failed");
  table.Remove(id);
  EXPECT_EQ(table.n_used(), 0u);
  EXPECT_EQ(table.state(id), State::kFree);
  EXPECT_DEATH(table.Remove(id), "CHECK failed");
  EXPECT_DEATH(table.Share(id), "CHECK failed");
  EXPECT_DEATH(table.Move(id, State::kUnwritten), "CHECK failed");
}

TEST(RecordTableDeathTest, HoldsNoMoreThanItsCapacityAndUsesIdsAgain) {
  RecordTable table(3);
  std::vector<RecordId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(table.Add(0));
  EXPECT_DEATH(table.Add(0), "CHECK failed");
  for (const int i : {1, 0}) {
    ASSERT_TRUE(table.Release(ids[i]));
    table.Remove(ids[i]);
  }
  const std::set<RecordId> again = {table.Add(0), table.Add(0)};
  EXPECT_EQ(again, (std::set<RecordId>{ids[0], ids[1]}));
  EXPECT_DEATH((void)table.state(RecordId{3}), "CHECK failed");
}

TEST(RecordTableTest, FailuresAreCountedUntilOneFetchSucceeds) {
  RecordTable table(1);
  const RecordId id = AddIn(table, State::kFetching);
  EXPECT_EQ(table.CountFailure(id), 1u);
  EXPECT_EQ(table.CountFailure(id), 2u);
  table.Move(id, State::kArrived);
  EXPECT_EQ(table.CountFailure(id), 1u);
}

}  // namespace
}  // namespace lkv
