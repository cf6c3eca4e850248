// What to say to the model and how to draw its answer: -p, -f, stdin, --chat;
// --temp and the other sampling options.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace lkv::cli {

// Whole contents of a file, or of stdin for "-"; at most 256 MiB. kNotFound
// when it cannot be read.
Result<std::string> ReadWholeFile(const std::string& path);

struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<PositionRange> pinned;
};

class PromptArguments {
 public:
  void AddTo(CLI::App& app);

  // The text from -p, -f or stdin. kInvalidArgument when it is empty or when
  // stdin is a terminal: nothing would tell the user that input is awaited.
  Result<std::string> ReadText() const;
  // The text as tokens, through the model's chat template if --chat asks so.
  // Bytes that are not UTF-8 pass through.
  Result<Prompt> Tokenize(const Tokenizer& tokenizer, const std::string& text,
                          bool pin_system) const;

 private:
  std::optional<std::string> text_, file_;
  std::string system_;
  bool chat_ = false;
};

class SamplerArguments {
 public:
  void AddTo(CLI::App& app);
  // kInvalidArgument: a number out of its range. kNotFound: the grammar file
  // cannot be read.
  Result<SamplerOptions> ToOptions(const CacheOptions& cache) const;

 private:
  SamplerOptions options_;
  std::optional<std::string> grammar_file_;
};

}  // namespace lkv::cli
