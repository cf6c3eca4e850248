#include "cli/chat_verb.h"

#include <cstdio>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/cache_map.h"
#include "cli/generation_report.h"
#include "cli/line_reader.h"
#include "cli/open_engine.h"
#include "options/suggestion.h"

namespace lkv::cli {
namespace {

constexpr std::string_view kHelp =
    "  /stats      what the conversation has cost so far\n"
    "  /explain    what the cache keeps of it, and why\n"
    "  /save FILE  write it to a file\n"
    "  /help       this\n"
    "  /quit       leave, as does Ctrl-D\n"
    "Ctrl-C stops a reply; at the prompt it leaves.\n";

Status Save(const std::vector<ChatMessage>& messages, const std::string& path) {
  if (path.empty()) {
    return InvalidArgument("/save: no file named; write /save FILE");
  }
  std::ofstream file(path, std::ios::binary);
  for (const ChatMessage& message : messages) {
    file << "### " << message.role << "\n\n" << message.content << "\n\n";
  }
  file.flush();
  if (!file) {
    return IoError(path + ": cannot be written; name another file");
  }
  return {};
}

}  // namespace

void ChatVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "chat", "Talk to the model; /help lists what else it understands");
  model_.AddTo(*verb, ModelArguments::Offer::kAll);
  verb->add_option("--system", system_, "System prompt")->type_name("TEXT");
  verb->add_option("-n,--new-tokens", max_reply_tokens_,
                   "Most tokens of one reply [512]")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 24));
  config_.AddTo(*verb, ConfigArguments::Offer::kAll);
  sampler_.AddTo(*verb);
  verb->footer(
      "The conversation may grow to --ctx, by default the length the model "
      "was\n"
      "trained for. A budget given as a share is a share of that.\n\n"
      "Example:\n"
      "  lkv chat --budget 25% --system 'Answer briefly.'\n"
      "  printf 'Hello.\\nWhat did I say?\\n' | lkv chat");
}

ExitCode ChatVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return Fail(configuration.status());
  auto sampler = sampler_.ToOptions(configuration->cache());
  if (!sampler.ok()) return Fail(sampler.status());
  const auto options = model_.ToEngineOptions();
  if (!options.ok()) return Fail(options.status());
  const auto engine = OpenEngine(*options, interrupt);
  if (!engine.ok()) return Fail(engine.status());

  ConversationOptions conversation;
  conversation.cache = configuration->cache();
  conversation.sampler = std::move(*sampler);
  conversation.system = system_;
  conversation.max_tokens =
      options->ctx_tokens > 0
          ? options->ctx_tokens
          : (*engine)->architecture().trained_context_tokens;
  conversation.max_reply_tokens = max_reply_tokens_;
  Conversation talk(**engine, std::move(conversation));
  return Converse(**engine, talk, out, interrupt);
}

ExitCode ChatVerb::Converse(Engine& engine, Conversation& conversation,
                            Output& out, Interrupt& interrupt) const {
  const bool at_terminal = StdinIsTerminal();
  if (at_terminal) std::fputs("/help lists commands.\n", stderr);
  LineReader reader("> ", interrupt);
  std::optional<Generation> last;
  ExitCode code = ExitCode::kDone;
  std::string line;

  const auto print_stats = [&] {
    if (!last) return;
    std::fputs(
        ReportAsText(
            {*last, last->times.prefill_tokens, conversation.cache(), {}})
            .c_str(),
        stderr);
  };

  for (;;) {
    const LineReader::Event event = reader.Next(&line);
    if (event == LineReader::Event::kInterrupted) {
      code = ExitCode::kInterrupted;
      break;
    }
    if (event == LineReader::Event::kEnd || line == "/quit") break;
    if (line.empty()) continue;
    if (line == "/help") {
      std::fwrite(kHelp.data(), 1, kHelp.size(), stderr);
    } else if (line == "/stats") {
      print_stats();
    } else if (line == "/explain") {
      const Sequence* sequence = conversation.sequence();
      if (sequence == nullptr) continue;
      std::fputs(CacheMap(*sequence, engine.architecture().kv_shape(),
                          conversation.tokens(), engine.tokenizer())
                     .c_str(),
                 stderr);
    } else if (line == "/save" || line.starts_with("/save ")) {
      const std::string path = line.size() > 6 ? line.substr(6) : "";
      if (Status s = Save(conversation.messages(), path); !s.ok()) {
        PrintError(s.message());
      }
    } else if (line.starts_with('/')) {
      PrintError("chat: unknown command " + Quoted(line) + "; /help lists all");
    } else {
      Progress progress("reading");
      Conversation::Hooks hooks;
      hooks.on_text = [&](std::string_view text) {
        progress.Erase();
        return out.Write(text);
      };
      hooks.progress = [&](uint32_t done, uint32_t total) {
        progress.Show(done, total);
      };
      hooks.cancelled = [&] { return interrupt.Requested(); };
      auto reply = conversation.Say(line, hooks);
      progress.Erase();
      if (!reply.ok()) {
        // A person can say something else; a script should stop here.
        if (!at_terminal) return Fail(reply.status());
        PrintError(reply.status().message());
        continue;
      }
      if (!out.Write("\n\n")) return ExitCode::kFailed;
      last = std::move(*reply);
      if (interrupt.Requested()) {
        if (!at_terminal) {
          code = ExitCode::kInterrupted;
          break;
        }
        interrupt.Clear();
      }
    }
  }
  if (at_terminal) std::fputs("\n", stderr);
  print_stats();
  return code;
}

}  // namespace lkv::cli
