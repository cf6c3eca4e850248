// `lkv tune`: its verb on a small model of random weights, its report, its
// page.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/tune_page.h"
#include "cli/tune_report.h"
#include "testing/child_process.h"
#include "testing/count_text.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using Words = std::vector<std::string>;

// A search that ended with the challenger as the best: `unit page` at 25 % on
// six windows.
TuneReport SomeReport() {
  TuneReport report;
  report.setup.space = MakeTuningSpace([](std::string_view) { return false; });
  report.n_texts = 2;
  report.seconds = 61;
  const std::vector<uint32_t> defaults(report.setup.space.size(), 0);
  std::vector<uint32_t> pages = defaults;
  pages[0] = 1;
  TuningResult& result = report.result;
  const auto add = [&](const std::vector<uint32_t>& choices, double share,
                       double kl, double agreement) {
    TuningTrial trial{
        .candidate = {choices, share}, .figures = {}, .kl_ratio = share};
    for (uint32_t w = 0; w < 6; ++w) {
      trial.figures.push_back(
          {{.kl_mean = kl * (1 + 0.1 * w),
            .top1_agreement = agreement - 0.002 * w,
            .resident_bytes_mean = share * (8 << 20),
            .resident_bytes_max = static_cast<uint64_t>(share * (8 << 20)),
            .full_bytes = 8 << 20}});
    }
    result.frontier.push_back(result.trials.size());
    result.trials.push_back(std::move(trial));
  };
  add(defaults, 0.25, 0.1, 0.93);
  add(pages, 0.25, 0.05, 0.97);
  add(defaults, 0.5, 0.06, 0.965);
  result.best = 1;
  result.is_reached = true;
  result.windows = {0, 1, 2, 3, 4, 5};
  for (uint32_t w = 0; w < 6; ++w) {
    report.window_names.push_back("<a>.txt at " + std::to_string(w));
  }
  result.duel = {.challenger = pages,
                 .share = 0.25,
                 .kl_ratio = 0.5,
                 .kl_ratio_ci95 = Interval{0.4, 0.6},
                 .is_won = true};
  result.n_choosing = 2;
  result.n_tried = 3;
  result.n_runs = 18;
  return report;
}

TEST(TuneReportTest, TheTextNamesTheBestWithTheNumberOfWindows) {
  const std::string text = TuneAsText(SomeReport());
  EXPECT_NE(text.find("Best: unit page at a budget of 25%: 2.0 MiB (25.0 % of "
                      "the full cache), top-1 96.5 %, KL 0.0625, n = 6 "
                      "windows\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("(95 %: 0.40 to 0.60, n = 6 windows that had no part in "
                      "its choice): it replaces the defaults."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("lookahead_kv:\n  budget: 25%\n"), std::string::npos);
  EXPECT_EQ(CountText(text, "beaten\n"), 2u);
}

TEST(TuneReportTest, WhatEndedTheSearchIsSaid) {
  TuneReport report = SomeReport();
  EXPECT_EQ(EffortText(report),
            "3 settings and budgets tried in 18 runs, 61 s");
  report.result.end = TuningResult::End::kTimeLimit;
  EXPECT_TRUE(
      EffortText(report).ends_with("; the time limit cut the search "
                                   "short"));
  EXPECT_EQ(TuneAsJson(report)["end"], "time_limit");
  report.result.end = TuningResult::End::kInterrupted;
  EXPECT_TRUE(EffortText(report).ends_with("; interrupted before it was done"));
}

TEST(TuneReportTest, WhyTheDefaultsStayIsSaid) {
  TuneReport report = SomeReport();
  report.result.duel->is_won = false;
  EXPECT_NE(DuelText(report).find("needs more memory"), std::string::npos);
  report.result.duel->kl_ratio_ci95 = Interval{0.4, 1.1};
  EXPECT_NE(DuelText(report).find("within noise: the defaults stay"),
            std::string::npos);
  report.result.duel->kl_ratio_ci95.reset();
  EXPECT_NE(DuelText(report).find("there are no 5 windows"), std::string::npos);
  report.result.duel.reset();
  EXPECT_NE(DuelText(report).find("No other setting did better"),
            std::string::npos);
  report.result.trials.erase(report.result.trials.begin() + 1);
  EXPECT_NE(DuelText(report).find("no time to try"), std::string::npos);
}

TEST(TuneReportTest, ASizeAskedForStaysASizeInTheConfiguration) {
  TuneReport report = SomeReport();
  report.problem.goal = {TuningGoal::Kind::kMemory, 0.25};
  report.memory = {.kind = Budget::Kind::kBytes, .amount = 2 << 20};
  EXPECT_NE(TuneAsConfig(report).find("  budget: 2MiB\n"), std::string::npos)
      << TuneAsConfig(report);
}

TEST(TunePageTest, ThePageNeedsNothingBesideItself) {
  const std::string page = TunePage(SomeReport());
  for (const char* outside :
       {"<script", "<link", "<img", "src=", "url(", "@import", "href="}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(CountText(page, "http"), 2u);  // the name of SVG, once a chart
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(TunePageTest, EveryPointHasAMarkWithWordsInBothChartsAndARow) {
  const std::string page = TunePage(SomeReport());
  EXPECT_EQ(CountText(page, "<svg role=\"img\""), 2u);
  EXPECT_EQ(CountText(page, "<title>defaults, budget 25%: 2.0 MiB"), 2u);
  EXPECT_EQ(CountText(page, "<title>unit page, budget 25%"), 2u);
  EXPECT_EQ(CountText(page, "<td>defaults</td>"), 2u);
  EXPECT_EQ(CountText(page, "<tr class=\"is-best\"><td>unit page</td>"), 1u);
  EXPECT_EQ(CountText(page, "class=\"best\""), 2u);
  for (const char* tag :
       {"g", "svg", "figure", "table", "tr", "td", "text", "p", "div"}) {
    const std::string name(tag);
    EXPECT_EQ(
        CountText(page, "<" + name + ">") + CountText(page, "<" + name + " "),
        CountText(page, "</" + name + ">"))
        << tag;
  }
}

// Marks and the goal lie inside the drawing of 480 by 320.
void ExpectInside(const std::string& page) {
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  for (const auto& [attribute, end] :
       {std::pair<std::string, double>{" cx=\"", 480},
        {" cy=\"", 320},
        {" x2=\"", 480},
        {" y2=\"", 320}}) {
    for (size_t at = page.find(attribute); at != page.npos;
         at = page.find(attribute, at + 1)) {
      const double value = std::stod(page.substr(at + attribute.size()));
      EXPECT_GE(value, 0) << attribute;
      EXPECT_LE(value, end) << attribute;
    }
  }
}

TEST(TunePageTest, NoFigureLeavesTheDrawing) {
  TuneReport report = SomeReport();
  ExpectInside(TunePage(report));
  report.problem.goal = {TuningGoal::Kind::kMemory, 0.9};
  ExpectInside(TunePage(report));
  for (TuningTrial& trial : report.result.trials) {
    for (auto& figures : trial.figures) {
      figures->kl_mean = trial.candidate.share < 0.3 ? 0 : 30;
      figures->top1_agreement = trial.candidate.share < 0.3 ? 1 : 0;
    }
  }
  ExpectInside(TunePage(report));
}

TEST(TuneVerbTest, ItsHelpShowsAnExampleAndFitsATerminal) {
  const ChildResult result = RunLkv({"tune", "-h"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("Example:\n  lkv tune "), std::string::npos);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(TuneVerbTest, BadInputIsNamedBeforeTheModelIsLoaded) {
  const TempFolder folder;
  const std::string text = folder.File("text");
  std::ofstream(text) << "A few words.";
  std::ofstream(folder.File("empty"));
  const struct {
    Words words;
    int exit_code;
    std::string says;
  } cases[] = {
      {{}, 2, "--file: is missing"},
      {{"-f", folder.File("none")}, 3, "none: No such file"},
      {{"-f", folder.File("empty")}, 2, "empty: is empty; give a text"},
      {{"-f", text, "--target-agreement", "0.9", "--target-memory", "25%"},
       2,
       "--target-"},
      {{"-f", text, "--target-agreement", "1.5"}, 2, "'1.5' is no share"},
      {{"-f", text, "--target-agreement", "nan"}, 2, "'nan' is no share"},
      {{"-f", text, "--target-agreement", "101%"}, 2, "'101%' is no share"},
      {{"-f", text, "--target-memory", "much"}, 2, "--target-memory: "},
      {{"-f", text, "--budget", "50%"}, 2, "give two shares"},
      {{"-f", text, "--budget", "50%,50%"}, 2, "give two shares"},
      {{"-f", text, "--minutes", "0"}, 2, "--minutes"},
      {{"-f", text, "--yaml", text}, 2, "is read, too"},
      {{"-f", text, "-o", text}, 2, "is read, too"},
      {{"-f", text, "--set", "policy=lru"}, 2, "only lookahead has settings"},
      {{"-f", text, "--set", "enabled=false"},
       2,
       "only lookahead has settings"},
      {{"-f", text, "-o", folder.File("no/such/page.html")},
       3,
       "cannot be created"},
      {{"-f", text, "--yaml", folder.File("no/such/best.yaml")},
       3,
       "cannot be created"},
      {{"-f", text, "-o", "same", "--yaml", "same"},
       2,
       "is the file of --html"},
      {{"-f", text, "-m", folder.File("model")}, 3, "model: "},
  };
  for (const auto& test : cases) {
    Words words = {"tune"};
    words.insert(words.end(), test.words.begin(), test.words.end());
    SCOPED_TRACE(testing::PrintToString(words));
    const ChildResult result = RunLkv(words);
    EXPECT_EQ(result.exit_code, test.exit_code) << result.err;
    EXPECT_NE(result.err.find(test.says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}

}  // namespace
}  // namespace lkv::cli
