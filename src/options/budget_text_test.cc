#include "options/budget_text.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(ParseBudgetTest, ReadsTheFourForms) {
  EXPECT_EQ(ParseBudget("full")->kind, Budget::Kind::kFull);

  const Budget share = *ParseBudget("6.25%");
  EXPECT_EQ(share.kind, Budget::Kind::kShare);
  EXPECT_DOUBLE_EQ(share.share, 0.0625);

  const Budget tokens = *ParseBudget("2048");
  EXPECT_EQ(tokens.kind, Budget::Kind::kTokens);
  EXPECT_EQ(tokens.amount, 2048u);

  const Budget bytes = *ParseBudget("512MiB");
  EXPECT_EQ(bytes.kind, Budget::Kind::kBytes);
  EXPECT_EQ(bytes.amount, uint64_t{512} << 20);
}

TEST(ParseBudgetTest, TellsBinaryFromDecimalUnits) {
  EXPECT_EQ(ParseBudget("1KiB")->amount, 1024u);
  EXPECT_EQ(ParseBudget("1KB")->amount, 1000u);
  EXPECT_EQ(ParseBudget("1.5GiB")->amount, 1610612736u);
  EXPECT_EQ(ParseBudget("2GB")->amount, 2000000000u);
  EXPECT_EQ(ParseBudget("3TiB")->amount, uint64_t{3} << 40);
  EXPECT_EQ(ParseBudget("700B")->amount, 700u);
}

TEST(ParseBudgetTest, RefusesEverythingElse) {
  for (const char* text : {"",
                           "%",
                           "MiB",
                           "0",
                           "0%",
                           "101%",
                           "-5",
                           "-5%",
                           "+5",
                           "1e9",
                           "0x10",
                           "nan",
                           "inf",
                           "inf%",
                           "1 MiB",
                           " 1",
                           "1 ",
                           "1.5",
                           "5.",
                           ".5",
                           "1..5",
                           "1.2.3MiB",
                           "Full",
                           "25 %",
                           "25%%",
                           "12mib",
                           "12Mib",
                           "2048 tokens",
                           "0.1B",
                           "99999999999999999999",
                           "99999999999999999999GiB",
                           "9999999TiB",
                           "1\n",
                           "\xff"}) {
    const auto budget = ParseBudget(text);
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_EQ(budget.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(budget.status().message().find("512MiB"), std::string::npos)
        << "must name the accepted forms: " << budget.status().message();
  }
}

TEST(FormatBudgetTest, GivesTextThatReadsBackTheSame) {
  for (const char* text :
       {"full", "25%", "6.25%", "33.3%", "0.1%", "100%", "12.3456789012345%",
        "0.0000000000001%", "2048", "512MiB", "1500MiB", "2GB", "1001B"}) {
    EXPECT_EQ(FormatBudget(*ParseBudget(text)), text);
  }
}

TEST(FormatBudgetTest, EveryShareReadsBackToFourteenDigits) {
  for (double share = 1; share > 1e-300; share *= 0.731) {
    const std::string text = FormatBudget({Budget::Kind::kShare, share});
    ASSERT_TRUE(ParseBudget(text).ok()) << text;
    EXPECT_NEAR(ParseBudget(text)->share / share, 1, 1e-14) << text;
  }
}

TEST(ParseShareTest, TakesSharesAlone) {
  EXPECT_EQ(*ParseShare("6.25%"), 0.0625);
  for (const char* text : {"full", "2048", "1MiB", "0%", "much"}) {
    EXPECT_EQ(ParseShare(text).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace lkv
