#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <signal.h>
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

TEST_P(ThreadTeamTest, EveryItemOfEveryPhaseIsDoneOnce) {
  ThreadTeam team(GetParam());
  constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 100, 0, 5};
  for (int run = 0; run < 50; ++run) {
    std::vector<std::vector<std::atomic<int>>> times_done;
    for (size_t n : kSizes) times_done.emplace_back(n);
    team.Run([&](TeamMember& me) {
      for (auto& phase : times_done) {
        me.ForEach(phase.size(), [&](size_t item) { ++phase[item]; });
      }
    });
    for (const auto& phase : times_done) {
      for (const auto& times : phase) ASSERT_EQ(times, 1);
    }
  }
}

TEST_P(ThreadTeamTest, APhaseSeesWhatTheOneBeforeWrote) {
  ThreadTeam team(GetParam());
  constexpr size_t kItems = 13;
  std::vector<int> value(kItems, 0);  // plain ints: only phases order them
  std::atomic<int> errors{0};
  for (int run = 0; run < 50; ++run) {
    team.Run([&](TeamMember& me) {
      for (int round = 1; round <= 20; ++round) {
        const int expected = run * 100 + round;
        me.ForEach(kItems, [&](size_t item) { value[item] = expected; });
        me.ForEach(kItems, [&](size_t) {
          for (int v : value) errors += v != expected;
        });
      }
    });
    for (int v : value) errors += v != run * 100 + 20;
  }
  EXPECT_EQ(errors, 0);
}

TEST_P(ThreadTeamTest, NobodyIsInsideAfterARun) {
  ThreadTeam team(GetParam());
  for (int run = 0; run < 200; ++run) {
    std::atomic<int> inside{0};
    std::atomic<uint32_t> members{0};
    team.Run([&](TeamMember& me) {
      ++inside;
      ++members;
      me.ForEach(3, [](size_t) {});
      --inside;
    });
    ASSERT_EQ(inside, 0);
    ASSERT_GE(members, 1u);
    ASSERT_LE(members, team.n_threads());
  }
}

TEST_P(ThreadTeamTest, MembersHaveIndicesOfTheirOwn) {
  ThreadTeam team(GetParam());
  for (int run = 0; run < 50; ++run) {
    std::vector<std::atomic<int>> visits(team.n_threads());
    team.Run([&](TeamMember& me) { ++visits[me.index()]; });
    ASSERT_EQ(visits[0], 1);
    for (const auto& n : visits) ASSERT_LE(n, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 3, 8));

// The count starts 20 phases before it.
TEST(ThreadTeamTest, PhasesGoOnPastTheEndOfTheirCount) {
  ThreadTeam team(3);
  for (size_t n_items : {1, 2, 5}) {  // fewer items than members, too
    std::atomic<size_t> n_done{0};
    team.Run([&](TeamMember& me) {
      for (int phase = 0; phase < 30; ++phase) {
        me.ForEach(n_items, [&](size_t) { ++n_done; });
      }
    });
    ASSERT_EQ(n_done, 30 * n_items);
  }
}

TEST(ThreadTeamTest, EndsWithoutEverRunning) { ThreadTeam team(4); }

TEST(ThreadTeamTest, AMemberThatComesLateHoldsUpNobody) {
  ThreadTeam team(2);
  for (int run = 0; run < 50; ++run) {
    std::atomic<bool> over{false};
    std::atomic<bool> late_one_is_in{false};
    std::atomic<int> n_done{0};
    team.Run([&](TeamMember& me) {
      // The late one is through with nothing before all phases are over.
      if (me.index() == 1) {
        late_one_is_in = true;
        late_one_is_in.notify_all();
        over.wait(false);
      } else {
        late_one_is_in.wait(false);
      }
      for (int phase = 0; phase < 10; ++phase) {
        me.ForEach(8, [&](size_t) { ++n_done; });
      }
      if (me.index() == 0) {
        over = true;
        over.notify_all();
      }
    });
    ASSERT_EQ(n_done, 80);
  }
}

TEST(ThreadTeamTest, ItemsOfAMemberThatIsHeldUpAreTakenByOthers) {
  ThreadTeam team(2);
  constexpr int kItems = 10;
  for (int run = 0; run < 50; ++run) {
    std::atomic<int> n_done{0};
    team.ForEach(kItems, [&](size_t item) {
      if (item == 0) {
        while (n_done < kItems - 1) std::this_thread::yield();
      }
      ++n_done;
    });
    ASSERT_EQ(n_done, kItems);
  }
}

TEST(ThreadTeamDeathTest, AnExceptionOutOfAnItemEndsTheProcess) {
  EXPECT_DEATH(
      {
        ThreadTeam team(2);
        // Of the caller: a worker's would end the process by itself.
        try {
          team.Run([](TeamMember& me) {
            if (me.index() == 0) throw 1;
          });
        } catch (int) {
        }
      },
      "terminate");
}

TEST(ThreadTeamTest, SharesCoverEverythingOnce) {
  for (size_t n : {0, 1, 7, 100}) {
    for (size_t n_items : {1, 3, 8}) {
      size_t end = 0;
      for (size_t item = 0; item < n_items; ++item) {
        const Range range = RangeOf(n, item, n_items);
        EXPECT_EQ(range.begin, end);
        end = range.end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

TEST(ThreadTeamTest, AMemberGoesOnToTheEndOfItsShareAndNoFurther) {
  const auto count_going_on = [](TeamMember& me, size_t n_items) {
    size_t n = 0;
    for (size_t item = 0; item < n_items; ++item) {
      n += me.GoesOnAfter(item, n_items);
    }
    return n;
  };
  ThreadTeam one(1);
  one.Run([&](TeamMember& me) { EXPECT_EQ(count_going_on(me, 7), 6u); });
  ThreadTeam three(3);
  three.Run([&](TeamMember& me) {
    // Shares of 2, 2 and 3 items; of none and one.
    EXPECT_EQ(count_going_on(me, 7), me.index() == 2 ? 2u : 1u);
    EXPECT_FALSE(me.GoesOnAfter(1, 7) && me.index() != 0);
    EXPECT_EQ(count_going_on(me, 2), 0u);
  });
}

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
    // Nobody is through with an item before all are begun: it takes everyone.
    std::atomic<uint32_t> n_begun{0};
    team.ForEach(kThreads, [&](size_t) {
      ++n_begun;
      while (n_begun < kThreads) std::this_thread::yield();
    });
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

// So that Ctrl-C reaches the thread that waits for input.
TEST(ThreadTeamTest, WorkersTakeNoSignalOfTheUser) {
  ThreadTeam team(3);
  std::atomic<bool> worker_came{false};
  while (!worker_came) {
    team.Run([&](TeamMember& me) {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      EXPECT_EQ(sigismember(&mask, SIGINT) == 1, me.index() != 0);
      EXPECT_EQ(sigismember(&mask, SIGBUS), 0);
      if (me.index() != 0) worker_came = true;
    });
  }
}

}  // namespace
}  // namespace lkv
