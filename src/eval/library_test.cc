// The public interface on the real model.
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "lookaheadkv/engine.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

Model& SharedModel() {
  static Model model = [] {
    Result<Model> opened = Model::Open(TestModelPath(), {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return *std::move(opened);
  }();
  return model;
}

Session NewSession(uint32_t max_tokens) {
  SessionOptions options;
  options.max_tokens = max_tokens;
  Result<Session> session = SharedModel().NewSession(options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return *std::move(session);
}

Reply GenerateOrFail(Session& session, std::string_view prompt,
                     const GenerateOptions& options) {
  Result<Reply> reply = session.Generate(prompt, options, {}, {});
  EXPECT_TRUE(reply.ok()) << reply.status().message();
  return reply.ok() ? *std::move(reply) : Reply{};
}

TEST(LibraryTest, GeneratesAndReportsMemoryAndHits) {
  SessionOptions options;
  options.max_tokens = 1200;
  options.cache.budget = {Budget::Kind::kTokens, 1, 300};
  Result<Session> session = SharedModel().NewSession(options);
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::string prompt;
  for (int i = 0; i < 50; ++i) {
    prompt += "Line " + std::to_string(i) + " of a long list. ";
  }
  GenerateOptions generate;
  generate.max_new_tokens = 9;
  generate.ignore_eos = true;
  std::string seen;
  Result<Reply> reply = session->Generate(prompt, generate,
                                          [&](std::string_view text) {
                                            seen += text;
                                            return true;
                                          },
                                          {});
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->stop, Reply::Stop::kLength);
  EXPECT_EQ(reply->generated_tokens, 9u);
  EXPECT_EQ(reply->text, seen);
  EXPECT_GT(reply->prefill_tokens_per_second, 0);
  EXPECT_GT(reply->decode_tokens_per_second, 0);

  const SessionMemory memory = session->memory();
  EXPECT_LE(memory.resident_bytes_max, memory.budget_bytes);
  EXPECT_LT(memory.resident_bytes, memory.full_bytes);
  EXPECT_GT(memory.evicted_tokens, 0u);
  Result<HitRates> hits = session->MeasureHitRates();
  ASSERT_TRUE(hits.ok()) << hits.status().message();
  EXPECT_GT(hits->mass, 0);
  EXPECT_LT(hits->mass, 1);
  EXPECT_GT(hits->sampled_steps, 0u);
}

TEST(LibraryTest, PlainTurnsReadAsOneText) {
  GenerateOptions none;
  none.max_new_tokens = 0;
  GenerateOptions some;
  some.max_new_tokens = 6;
  // The cut falls between words, where tokens end.
  Session whole = NewSession(64);
  const Reply expected =
      GenerateOrFail(whole, "The sun rises in the east and sets in the", some);
  Session split = NewSession(64);
  GenerateOrFail(split, "The sun rises in the east", none);
  const Reply reply = GenerateOrFail(split, " and sets in the", some);
  EXPECT_EQ(reply.text, expected.text);
}

TEST(LibraryTest, LaterMessagesContinueTheChatAsTheTemplateWouldHaveIt) {
  const std::string first_message = "Name one colour of the rainbow.";
  const std::string second_message = "Name another one.";
  Session session = NewSession(512);
  GenerateOptions options;
  options.form = PromptForm::kChat;
  options.max_new_tokens = 16;
  const Reply first = GenerateOrFail(session, first_message, options);
  const Reply second = GenerateOrFail(session, second_message, options);
  // The same conversation, read in one go.
  EngineOptions engine_options;
  engine_options.model_path = TestModelPath();
  Result<std::unique_ptr<Engine>> engine = Engine::Open(engine_options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const ChatMessage messages[] = {{"user", first_message},
                                  {"assistant", first.text},
                                  {"user", second_message}};
  Result<TokenizedChat> chat =
      (*engine)->tokenizer().TokenizeChat(messages, Tokenizer::Reply::kBegin);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  Request request;
  request.prompt = chat->tokens;
  request.max_new_tokens = 16;
  Result<Generation> expected = (*engine)->Generate(request, {}, {}, {});
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  EXPECT_EQ(second.text, expected->text);
  EXPECT_EQ(first.prompt_tokens + first.generated_tokens + second.prompt_tokens,
            chat->tokens.size());
}

TEST(LibraryTest, ForksAnswerAsSessionsThatReadTheDocumentThemselves) {
  std::string document;
  for (int i = 0; i < 40; ++i) {
    document += "Room " + std::to_string(i) + " is painted in colour " +
                std::to_string(i * 7 % 40) + ". ";
  }
  const char* const questions[] = {"Room 3 is painted", "The next room"};
  const GenerateOptions none = {.max_new_tokens = 0};
  const GenerateOptions some = {.max_new_tokens = 10};
  const auto read = [&] {
    Session session = NewSession(1024);
    GenerateOrFail(session, document, none);
    return session;
  };
  Session parent = read();
  Result<Session> fork = parent.Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_GT(fork->memory().shared_bytes, 0u);
  Session* const forks[] = {&parent, &*fork};
  for (size_t i = 0; i < std::size(forks); ++i) {
    Session alone = read();
    const Reply expected = GenerateOrFail(alone, questions[i], some);
    EXPECT_EQ(GenerateOrFail(*forks[i], questions[i], some).text,
              expected.text);
    // It repeats what the fork's parent had read, too.
    Result<HitRates> hits = forks[i]->MeasureHitRates();
    ASSERT_TRUE(hits.ok()) << hits.status().message();
    EXPECT_EQ(hits->mass, 1);
  }
}

TEST(LibraryTest, AForkedChatGoesOnFromTheLastReply) {
  GenerateOptions options;
  options.form = PromptForm::kChat;
  options.max_new_tokens = 8;  // cut within the reply: a token is pending
  const auto begin = [&] {
    Session session = NewSession(512);
    GenerateOrFail(session, "Name three colours of the rainbow.", options);
    return session;
  };
  Session alone = begin();
  Session parent = begin();
  Result<Session> fork = parent.Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_EQ(GenerateOrFail(*fork, "And three animals?", options).text,
            GenerateOrFail(alone, "And three animals?", options).text);
}

TEST(LibraryTest, ASessionCancelledInAPromptCannotBeForked) {
  Session session = NewSession(64);
  Result<Reply> reply = session.Generate(
      "Once upon a time", {.max_new_tokens = 8}, {}, [] { return true; });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(session.Fork().status().code(), StatusCode::kInvalidArgument);
}

TEST(LibraryTest, FullSessionSaysSo) {
  Session session = NewSession(32);
  GenerateOptions options;
  options.max_new_tokens = 40;
  EXPECT_EQ(
      session.Generate("Once upon a time", options, {}, {}).status().code(),
      StatusCode::kInvalidArgument);
}

TEST(LibraryTest, SessionCancelledInAPromptTakesNoMore) {
  Session session = NewSession(64);
  Result<Reply> reply = session.Generate(
      "Once upon a time", {.max_new_tokens = 8}, {}, [] { return true; });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->stop, Reply::Stop::kCancelled);
  EXPECT_EQ(
      session.Generate("and", {.max_new_tokens = 8}, {}, {}).status().code(),
      StatusCode::kInvalidArgument);
}

TEST(LibraryTest, AChatCancelledInItsFirstMessageTakesNoMore) {
  Session session = NewSession(200);
  GenerateOptions chat;
  chat.form = PromptForm::kChat;
  chat.max_new_tokens = 8;
  ASSERT_TRUE(session.Generate("Hello", chat, {}, [] { return true; }).ok());
  EXPECT_EQ(session.Generate("Hello", chat, {}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

// Within a step the cache holds half of it; between the tokens of a reply the
// session has not noted it yet.
TEST(LibraryTest, FromItsOwnCallbacksASessionCanNotBeUsed) {
  Session session = NewSession(200);
  int n_asked = 0;
  const auto expect_busy = [&] {
    ++n_asked;
    EXPECT_EQ(session.Fork().status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(session.Generate("and", {}, {}, {}).status().code(),
              StatusCode::kInvalidArgument);
  };
  Result<Reply> reply = session.Generate(
      "Once upon a time", {.max_new_tokens = 4, .ignore_eos = true},
      [&](std::string_view) {
        expect_busy();
        return true;
      },
      [&] {
        expect_busy();
        return false;
      });
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->generated_tokens, 4u);
  EXPECT_GT(n_asked, 8);
  EXPECT_TRUE(session.Fork().ok()) << "afterwards it can";
}

TEST(LibraryDeathTest, UseOfWhatWasMovedFromStopsWithItsName) {
  Session session = NewSession(64);
  Session moved = std::move(session);
  EXPECT_DEATH(session.memory(), "a session that was moved from");  // NOLINT
  EXPECT_DEATH(session.Generate("a", {}, {}, {}).ok(),
               "a session that was moved from");
  EXPECT_DEATH(session.MeasureHitRates().ok(), "a session that was moved from");
  session = std::move(moved);
  EXPECT_GT(session.memory().budget_bytes, 0u);

  Model model = *Model::Open(TestModelPath(), {});
  Model other = std::move(model);
  EXPECT_DEATH(model.weight_bytes(), "a model that was moved from");  // NOLINT
  EXPECT_DEATH(model.trained_context_tokens(), "a model that was moved from");
  EXPECT_DEATH(model.NewSession({}).ok(), "a model that was moved from");
}

TEST(LibraryTest, ASavedSessionGoesOnInAnotherProcess) {
  const TempFolder folder;
  SessionOptions options;
  options.max_tokens = 1200;
  options.cache.budget = {Budget::Kind::kTokens, 1, 300};
  options.cache.sessions_path = folder.File("sessions");
  GenerateOptions generate;
  generate.max_new_tokens = 12;
  generate.ignore_eos = true;
  generate.temperature = 0;
  std::string prompt;
  for (int i = 0; i < 50; ++i) {
    prompt += "Line " + std::to_string(i) + " of a long list. ";
  }
  Result<Session> session = SharedModel().NewSession(options);
  ASSERT_TRUE(session.ok()) << session.status().message();
  EXPECT_EQ(session->Save("empty").code(), StatusCode::kInvalidArgument);
  GenerateOrFail(*session, prompt, generate);
  const Status saved = session->Save("list");
  ASSERT_TRUE(saved.ok()) << saved.message();
  const Reply expected = GenerateOrFail(*session, "And now? ", generate);

  EXPECT_EQ(SharedModel().RestoreSession("other", options).status().code(),
            StatusCode::kNotFound);
  SessionOptions shorter = options;
  shorter.max_tokens = 100;
  EXPECT_EQ(SharedModel().RestoreSession("list", shorter).status().code(),
            StatusCode::kInvalidArgument);
  for (const bool other_policy : {false, true}) {
    SessionOptions now = options;
    if (other_policy) now.cache.policy = PolicyName::kLru;
    Result<Session> restored = SharedModel().RestoreSession("list", now);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    const Reply reply = GenerateOrFail(*restored, "And now? ", generate);
    EXPECT_EQ(reply.prompt_tokens, expected.prompt_tokens);
    EXPECT_TRUE(other_policy || reply.text == expected.text) << reply.text;
    EXPECT_GT(restored->memory().evicted_tokens, 0u);
    EXPECT_TRUE(restored->MeasureHitRates().ok());
  }
}

}  // namespace
}  // namespace lkv
