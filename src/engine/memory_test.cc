// Peak memory of a whole process, so it has a binary of its own.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

// The most memory this process ever had resident, in bytes.
uint64_t PeakResidentBytes() {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word) {
    uint64_t kib = 0;
    if (word == "VmHWM:" && in >> kib) return kib * 1024;
  }
  return 0;
}

TEST(MemoryTest, PeakIsWeightsAndBudgetAndSixtyFourMebibytes) {
  EngineOptions options;
  options.model_path = TestModelPath();
  Result<std::unique_ptr<Engine>> opened = Engine::Open(options);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Engine& engine = **opened;
  const uint64_t after_load_bytes = PeakResidentBytes();

  Request request;
  std::string text;
  for (int i = 0; i < 700; ++i) {
    text += "Entry " + std::to_string(i * 7919 % 1000) + " is in order. ";
  }
  request.prompt = engine.tokenizer().Tokenize(
      text, Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
  ASSERT_GE(request.prompt.size(), 6000u);
  request.prompt.resize(6000);
  request.max_new_tokens = 32;
  request.ignore_eos = true;
  request.cache.budget = {Budget::Kind::kShare, 0.25, 0};
  Result<Generation> g = engine.Generate(request, {}, {}, {});
  ASSERT_TRUE(g.ok()) << g.status().message();

  EXPECT_LE(g->kv.resident_bytes_max, g->kv.budget_bytes);
  const uint64_t peak_bytes = PeakResidentBytes();
  RecordProperty("peak_mib", static_cast<int>(peak_bytes >> 20));
  EXPECT_LE(peak_bytes,
            engine.weight_bytes() + g->kv.budget_bytes + (uint64_t{64} << 20))
      << "weights " << engine.weight_bytes() << ", budget "
      << g->kv.budget_bytes << ", after loading " << after_load_bytes;
}

// A chat that may become long, at its first words.
TEST(MemoryTest, WhatALongTextWouldNeedIsNotTakenForAShortOne) {
  EngineOptions options;
  options.model_path = TestModelPath();
  options.ctx_tokens = 1 << 20;
  options.allow_beyond_trained = true;
  Result<std::unique_ptr<Engine>> opened = Engine::Open(options);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Engine& engine = **opened;
  const uint64_t after_load_bytes = PeakResidentBytes();

  const std::vector<int32_t> prompt =
      engine.tokenizer().Tokenize("Hello there.", Tokenizer::Start::kAsTrained,
                                  Tokenizer::Special::kAsText);
  for (const double share : {0.25, 1.0}) {
    SequenceOptions chat;
    chat.cache.budget = {Budget::Kind::kShare, share, 0};
    chat.prompt_tokens = static_cast<uint32_t>(prompt.size());
    chat.max_new_tokens = 16;
    chat.max_tokens = options.ctx_tokens;
    Result<std::unique_ptr<Sequence>> sequence = engine.Start(chat);
    ASSERT_TRUE(sequence.ok()) << sequence.status().message();
    Turn turn;
    turn.prompt = prompt;
    turn.max_new_tokens = 16;
    Result<Generation> g = engine.Continue(**sequence, turn, {}, {}, {});
    ASSERT_TRUE(g.ok()) << g.status().message();
    EXPECT_LE(PeakResidentBytes(),
              after_load_bytes + g->kv.budget_bytes + (uint64_t{16} << 20));
  }
}

}  // namespace
}  // namespace lkv
