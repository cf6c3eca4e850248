#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace lkv {
namespace {

class ThreadTeamTest : public testing::TestWithParam<uint32_t> {};

TEST_P(ThreadTeamTest, EveryItemBelongsToExactlyOneMember) {
  ThreadTeam team(GetParam());
  for (size_t n : {0, 1, 2, 3, 7, 100}) {
    std::vector<std::atomic<int>> owners(n);
    team.Run([&](TeamMember& me) {
      Share share = me.ShareOf(n);
      for (size_t i = share.begin; i < share.end; ++i) ++owners[i];
    });
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(owners[i], 1) << n << " " << i;
  }
}

TEST_P(ThreadTeamTest, BarrierPublishesWhatOthersWrote) {
  ThreadTeam team(GetParam());
  const uint32_t n = team.n_threads();
  std::vector<int> value(n, 0);  // plain ints: only the barrier orders them
  std::atomic<int> errors{0};
  for (int run = 0; run < 50; ++run) {
    team.Run([&](TeamMember& me) {
      for (int round = 1; round <= 20; ++round) {
        value[me.index()] = run * 100 + round;
        me.Barrier();
        for (uint32_t i = 0; i < n; ++i) {
          if (value[i] != run * 100 + round) ++errors;
        }
        me.Barrier();
      }
    });
  }
  EXPECT_EQ(errors, 0);
}

TEST_P(ThreadTeamTest, RunReturnsAfterAllMembersAreDone) {
  ThreadTeam team(GetParam());
  for (int run = 0; run < 200; ++run) {
    std::atomic<uint32_t> done{0};
    team.Run([&](TeamMember&) { ++done; });
    ASSERT_EQ(done, team.n_threads());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 3, 8));

TEST(ThreadTeamSleepTest, IdleTeamUsesNoProcessorTime) {
  ThreadTeam team(4);
  team.Run([](TeamMember&) {});
  timespec before, after;
  // Long enough for four spinning threads to be unmistakable (0.8 s of time).
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  double used_s = static_cast<double>(after.tv_sec - before.tv_sec) +
                  1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used_s, 0.05);
}

}  // namespace
}  // namespace lkv
