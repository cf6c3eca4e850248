#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
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

TEST(ThreadTeamTest, EndsWithoutEverRunning) { ThreadTeam team(4); }

// Sanitizers map memory of their own for every thread and end the process when
// they get none.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadTeamDeathTest, RefusedThreadIsAStatus) {
  const auto create_without_addresses = [] {
    constexpr rlimit kNoMoreAddresses = {.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_AS, &kNoMoreAddresses);
    const Status status = ThreadTeam::Create(8).status();
    std::cerr << status.message() << std::endl;
    std::_Exit(status.code() == StatusCode::kOutOfMemory ? 0 : 1);
  };
  EXPECT_EXIT(create_without_addresses(), testing::ExitedWithCode(0),
              "refuses thread 2 of 8.*use fewer threads");
}
#endif

// The states of this process's threads, the calling one excepted, as /proc
// names them: R runs, S sleeps.
std::string StatesOfOtherThreads() {
  std::string states;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    // "<tid> (<name>) <state> ...", and the name may hold anything.
    const size_t name_end = line.rfind(')');
    if (name_end != std::string::npos) states += line.at(name_end + 2);
  }
  return states;
}

TEST(ThreadTeamTest, IdleMembersSleepAndWakeForTheNextRun) {
  constexpr uint32_t kThreads = 4;
  // Far beyond the 100 us of spinning, on however busy a machine.
  constexpr int kMaxPolls = 50'000;
  ThreadTeam team(kThreads);
  for (int run = 0; run < 3; ++run) {
    std::atomic<uint32_t> done{0};
    team.Run([&](TeamMember&) { ++done; });
    ASSERT_EQ(done, kThreads);
    std::string states;
    int polls = 0;
    do {
      states = StatesOfOtherThreads();
      std::this_thread::yield();
    } while (states.find_first_not_of('S') != std::string::npos &&
             ++polls < kMaxPolls);
    ASSERT_GE(states.size(), kThreads - 1);
    ASSERT_EQ(states.find_first_not_of('S'), std::string::npos) << states;
  }
}

}  // namespace
}  // namespace lkv
