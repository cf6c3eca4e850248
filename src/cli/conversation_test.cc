#include "cli/conversation.h"

#include <gtest/gtest.h>

#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

class ConversationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.model_path = TestModelPath();
    auto opened = Engine::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = opened->release();
  }
  static void TearDownTestSuite() { delete engine_; }

  static ConversationOptions Options() {
    ConversationOptions options;
    options.max_tokens = 512;
    options.max_reply_tokens = 6;
    options.system = "Be brief.";
    return options;
  }

  // All bytes of the tokens, template markers included.
  static std::string TextOf(std::span<const int32_t> tokens) {
    std::string text;
    for (int32_t token : tokens) {
      text +=
          engine_->tokenizer().TokenBytes(token, Tokenizer::Special::kParse);
    }
    return text;
  }

  static Engine* engine_;
};
Engine* ConversationTest::engine_ = nullptr;

TEST_F(ConversationTest, AppendedTurnsReadLikeTheWholeChatInOneGo) {
  Conversation talk(*engine_, Options());
  ASSERT_TRUE(talk.Say("Hello there.", {}).ok());
  ASSERT_TRUE(talk.Say("And one more?", {}).ok());
  ASSERT_TRUE(talk.Say("Bye.", {}).ok());
  ASSERT_EQ(talk.messages().size(), 6u);

  std::vector<ChatMessage> messages = {{"system", "Be brief."}};
  messages.insert(messages.end(), talk.messages().begin(),
                  talk.messages().end() - 1);
  const auto whole =
      engine_->tokenizer().TokenizeChat(messages, Tokenizer::Reply::kBegin);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(TextOf(talk.tokens()),
            TextOf(whole->tokens) + talk.messages().back().content);
}

TEST_F(ConversationTest, LaterTurnsComputeOnlyWhatIsNew) {
  Conversation talk(*engine_, Options());
  ASSERT_TRUE(talk.Say("Hello there.", {}).ok());
  const uint32_t n_cached = talk.sequence()->n_tokens();
  uint32_t n_read = 0;
  Conversation::Hooks hooks;
  hooks.progress = [&](uint32_t, uint32_t total) { n_read = total; };
  ASSERT_TRUE(talk.Say("Bye.", hooks).ok());
  EXPECT_LT(n_read, n_cached);
  // A reply cut by its length leaves the last drawn token for the next turn.
  EXPECT_LE(talk.tokens().size() - talk.sequence()->n_tokens(), 1u);
}

TEST_F(ConversationTest, ATurnCancelledWhileReadIsForgotten) {
  Conversation talk(*engine_, Options());
  ASSERT_TRUE(talk.Say("Hello there.", {}).ok());
  Conversation::Hooks hooks;
  hooks.cancelled = [] { return true; };
  const auto cancelled = talk.Say("Never mind.", hooks);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->stop_reason, StopReason::kCancelled);
  EXPECT_EQ(talk.messages().size(), 2u);

  ASSERT_TRUE(talk.Say("Bye.", {}).ok());
  EXPECT_NE(TextOf(talk.tokens()).find("Hello there."), std::string::npos);
  EXPECT_EQ(TextOf(talk.tokens()).find("Never mind."), std::string::npos);
}

// 128 KiB are eight pieces; too many tokens in the end, but not for certain.
TEST_F(ConversationTest, CancelledWhileLongWordsAreTokenisedNothingIsLost) {
  ConversationOptions options = Options();
  options.max_tokens = 8192;
  options.cache.budget = {Budget::Kind::kTokens, 1.0, 512};
  Conversation talk(*engine_, options);
  ASSERT_TRUE(talk.Say("Hello there.", {}).ok());
  const uint32_t n_cached = talk.sequence()->n_tokens();
  std::string many;
  while (many.size() < (128 << 10)) many += "word ";
  uint32_t n_asked = 0;
  Conversation::Hooks hooks;
  hooks.cancelled = [&] { return ++n_asked == 2; };
  const auto cancelled = talk.Say(many, hooks);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status().message();
  EXPECT_EQ(cancelled->stop_reason, StopReason::kCancelled);
  EXPECT_EQ(n_asked, 2u);
  EXPECT_EQ(talk.messages().size(), 2u);
  EXPECT_EQ(talk.sequence()->n_tokens(), n_cached);
  EXPECT_TRUE(talk.Say("Bye.", {}).ok());
}

TEST_F(ConversationTest, WordsThatCannotFitAreRefusedUnread) {
  Conversation talk(*engine_, Options());
  Conversation::Hooks hooks;
  hooks.cancelled = [] {
    ADD_FAILURE() << "tokenises";
    return true;
  };
  const auto refused = talk.Say(std::string(16 << 20, 'x'), hooks);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("these words need at least"),
            std::string::npos)
      << refused.status().message();
}

TEST_F(ConversationTest, WordsThatDoNotFitAreRefusedAndTheChatGoesOn) {
  Conversation talk(*engine_, Options());
  std::string many;
  for (int i = 0; i < 600; ++i) many += "word ";
  const auto refused = talk.Say(many, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("512"), std::string::npos);
  EXPECT_TRUE(talk.messages().empty());
  EXPECT_TRUE(talk.Say("Hello.", {}).ok());
}

TEST_F(ConversationTest, TheCheckFindsWhatNoWordsCouldCure) {
  EXPECT_TRUE(Conversation(*engine_, Options()).Check().ok());
  ConversationOptions small = Options();
  small.cache.budget = {Budget::Kind::kTokens, 1.0, 10};
  ConversationOptions broken = Options();
  broken.sampler.grammar = "root ::= (";
  for (const ConversationOptions& options : {small, broken}) {
    EXPECT_EQ(Conversation(*engine_, options).Check().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(ConversationTest, AShareOfTheBudgetGrowsWithTheTurns) {
  ConversationOptions options = Options();
  options.max_tokens = 2000;
  options.cache.budget = {Budget::Kind::kShare, 0.25};
  options.cache.recent_tokens = 16;
  options.cache.pin_system = false;
  Conversation talk(*engine_, options);
  const uint64_t bytes_per_token =
      engine_->architecture().kv_shape().bytes_per_token(KvType::kF16);
  uint64_t budget_before = 0;
  for (const char* what : {"sea", "forest", "desert"}) {
    std::string words = "Tell me about this:";
    for (int i = 0; i < 300; ++i) words += std::string(" ") + what;
    uint32_t n_read = 0;
    uint32_t n_before =
        talk.sequence() == nullptr ? 0 : talk.sequence()->n_tokens();
    Conversation::Hooks hooks;
    // Within the turn too: a listener sees every moment at which text comes.
    hooks.on_text = [&](std::string_view) {
      const SequenceStats now = talk.sequence()->stats();
      EXPECT_LE(now.resident_bytes, now.budget_bytes);
      return true;
    };
    hooks.progress = [&](uint32_t, uint32_t total) { n_read = total; };
    const auto reply = talk.Say(words, hooks);
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    EXPECT_EQ(
        reply->kv.budget_bytes,
        (n_before + n_read + options.max_reply_tokens) * bytes_per_token / 4);
    EXPECT_GT(reply->kv.budget_bytes, budget_before);
    EXPECT_LE(reply->kv.resident_bytes_max, reply->kv.budget_bytes);
    EXPECT_GT(reply->kv.evicted_tokens, 0u);
    budget_before = reply->kv.budget_bytes;
  }
}

}  // namespace
}  // namespace lkv::cli
