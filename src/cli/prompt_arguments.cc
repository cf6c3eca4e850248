#include "cli/prompt_arguments.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/arguments.h"
#include "cli/output.h"

namespace lkv::cli {
namespace {

// Some sixty million tokens, more than any model of today was trained for.
constexpr size_t kMostBytes = size_t{256} << 20;

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "stdin" : path;
  const auto refused = [&] {
    return NotFound(name + ": " + std::strerror(errno) +
                    "; give a file that can be read");
  };
  const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY);
  if (fd < 0) return refused();
  std::string contents;
  std::array<char, 65536> block;
  ssize_t n = 0;
  while (contents.size() <= kMostBytes &&
         (n = read(fd, block.data(), block.size())) > 0) {
    contents.append(block.data(), static_cast<size_t>(n));
  }
  const Status failure = n < 0 ? refused() : Status();
  if (!is_stdin) close(fd);
  if (!failure.ok()) return failure;
  if (contents.size() > kMostBytes) {
    return InvalidArgument(name + ": larger than 256 MiB; give a shorter text");
  }
  return contents;
}

void PromptArguments::AddTo(CLI::App& app) {
  auto* text = app.add_option("-p,--prompt", text_, "The prompt")
                   ->type_name("TEXT")
                   ->allow_extra_args(false);
  app.add_option("-f,--file", file_,
                 "File that holds the prompt, - for stdin (the default)")
      ->type_name("FILE")
      ->check(NamesSomething())
      ->excludes(text);
  app.add_flag("--chat", chat_,
               "Take the prompt as the user's turn of a chat, in the form of "
               "the model's template, without its default system text");
  app.add_option("--system", system_,
                 "System prompt, with --chat; default: none")
      ->type_name("TEXT");
}

Result<std::string> PromptArguments::ReadText() const {
  if (!system_.empty() && !chat_) {
    return InvalidArgument("--system: needs --chat; add it or drop --system");
  }
  const std::string path = file_.value_or("-");
  if (!text_ && !file_ && StdinIsTerminal()) {
    return InvalidArgument(
        "prompt: none given; use -p TEXT, -f FILE or pipe it in");
  }
  Result<std::string> text = text_ ? *text_ : ReadWholeFile(path);
  if (text.ok() && text->empty()) {
    return InvalidArgument(
        "prompt: is empty; give at least one character of text");
  }
  return text;
}

Result<Prompt> PromptArguments::Tokenize(const Tokenizer& tokenizer,
                                         const std::string& text,
                                         bool pin_system) const {
  Prompt prompt;
  if (!chat_) {
    prompt.tokens = tokenizer.Tokenize(text, Tokenizer::Start::kAsTrained,
                                       Tokenizer::Special::kParse);
    return prompt;
  }
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.push_back({"user", text});
  auto chat = tokenizer.TokenizeChat(messages, Tokenizer::Reply::kBegin);
  if (!chat.ok()) return chat.status();
  prompt.tokens = std::move(chat->tokens);
  if (pin_system) prompt.pinned = std::move(chat->pinned);
  return prompt;
}

void SamplerArguments::AddTo(CLI::App& app) {
  app.add_option("--temp", options_.temperature,
                 "Temperature; 0 (the default) takes the most likely token")
      ->type_name("T");
  app.add_option("--top-k", options_.top_k,
                 "Draw from the K most likely tokens; 0: all [40]")
      ->type_name("K");
  app.add_option("--top-p", options_.top_p,
                 "Draw from the likeliest tokens holding this mass; 1: all "
                 "[0.95]")
      ->type_name("P");
  app.add_option("--min-p", options_.min_p,
                 "Least probability, as a share of the likeliest [0.05]")
      ->type_name("P");
  app.add_option("--repeat-penalty", options_.repeat_penalty,
                 "Divides the odds of the last 64 tokens; 1: off [1]")
      ->type_name("R");
  app.add_option("--grammar", grammar_file_,
                 "GBNF grammar that the answer must follow")
      ->type_name("FILE")
      ->check(NamesSomething());
}

Result<SamplerOptions> SamplerArguments::ToOptions(
    const CacheOptions& cache) const {
  if (Status s = CheckSamplerNumbers(options_); !s.ok()) return s;
  SamplerOptions options = options_;
  options.seed = static_cast<uint32_t>(cache.seed);
  if (grammar_file_) {
    auto grammar = ReadWholeFile(*grammar_file_);
    if (!grammar.ok()) return grammar.status();
    if (grammar->empty()) {
      return InvalidArgument(*grammar_file_ +
                             ": is empty; give a GBNF grammar");
    }
    options.grammar = std::move(*grammar);
    options.grammar_name = *grammar_file_;
  }
  return options;
}

}  // namespace lkv::cli
