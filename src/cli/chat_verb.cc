#include "cli/chat_verb.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/byte_text.h"
#include "base/printable_text.h"
#include "cli/active_predictor.h"
#include "cli/budget_notice.h"
#include "cli/cache_map.h"
#include "cli/generation_report.h"
#include "cli/line_reader.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"

namespace lkv::cli {
namespace {

constexpr std::string_view kHelp =
    "  /stats      what the conversation has cost so far\n"
    "  /explain    what the cache keeps of it, and why\n"
    "  /save FILE  write it to a file; without FILE, keep the session now\n"
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

// Reads lines and answers them until there are no more.
class ChatLoop {
 public:
  // session: empty, or the name under which the chat is kept when it is over
  // and, if keeps_turns, after every turn.
  ChatLoop(const Engine& engine, Conversation& conversation,
           const std::string& session, bool keeps_turns, Output& out,
           Interrupt& interrupt)
      : engine_(engine),
        conversation_(conversation),
        session_(session),
        keeps_turns_(keeps_turns),
        n_kept_(conversation.messages().size()),
        out_(out),
        interrupt_(interrupt),
        at_terminal_(StdinIsTerminal()) {}

  ExitCode Run() {
    if (at_terminal_) std::fputs("/help lists commands.\n", stderr);
    LineReader reader("> ", interrupt_);
    std::string line;
    while (!code_) {
      switch (reader.Next(&line)) {
        case LineReader::Event::kInterrupted:
          code_ = ExitCode::kInterrupted;
          break;
        case LineReader::Event::kEnd:
          Leave();
          break;
        case LineReader::Event::kTooLong:
          ++n_lines_;
          Refuse("longer than " + FormatBytes(LineReader::kLongestLine) +
                 "; split it");
          break;
        case LineReader::Event::kLine:
          ++n_lines_;
          if (line.starts_with('/')) {
            Obey(line);
          } else if (!line.empty()) {
            Answer(line);
          }
      }
    }
    if (at_terminal_) std::fputs("\n", stderr);
    PrintStats();
    Keep();
    // An answer that is not kept is lost with this process.
    if (!session_.empty() && HasNews()) return ExitCode::kFailed;
    return *code_;
  }

 private:
  bool HasNews() const { return conversation_.messages().size() > n_kept_; }
  // Keeps the session, if there is anything new of it.
  void Keep() {
    if (session_.empty() || !HasNews()) return;
    const auto saved = conversation_.Save(
        conversation_.session().empty() ? session_ : conversation_.session());
    if (!saved.ok()) {
      PrintError(saved.status().message());
      return;
    }
    n_kept_ = conversation_.messages().size();
    if (conversation_.session() != session_) {
      PrintError("session " + Quoted(session_) +
                 ": somebody else has saved or removed it meanwhile; this chat "
                 "is kept as " +
                 Quoted(conversation_.session()));
    }
    std::fputs(("session " + Quoted(conversation_.session()) + " kept: " +
                FormatCount(conversation_.messages().size(), "message") + ", " +
                FormatCount(saved->n_tokens, "token") + ", " +
                FormatBytes(saved->n_bytes) + " in " +
                FormatSeconds(saved->seconds) + "\n")
                   .c_str(),
               stderr);
  }

  // Says what came of the session when the cache was filled from it.
  void RemarkOnBeginning() const {
    const Sessions::Beginning& beginning = conversation_.beginning();
    if (beginning.cached_tokens > 0) {
      std::fputs((FormatCount(beginning.cached_tokens, "token") + " of " +
                  Quoted(beginning.session) + " in " +
                  FormatSeconds(beginning.seconds) + ", not read again\n")
                     .c_str(),
                 stderr);
    } else if (conversation_.messages().size() > 1 && !beginning.miss.empty() &&
               n_kept_ > 0) {
      std::fputs(
          ("the chat is read anew: " + beginning.miss +
           (beginning.detail.empty() ? "" : ", " + beginning.detail) + "\n")
              .c_str(),
          stderr);
    }
  }

  void Leave() { code_ = refused_ ? ExitCode::kWrongUse : ExitCode::kDone; }

  // Says why a line gets no answer. A person has seen it and asks again; a
  // script goes on and learns it from the exit code.
  void Refuse(std::string_view why) {
    const std::string where =
        at_terminal_ ? "chat" : "line " + std::to_string(n_lines_);
    PrintError(where + ": " + std::string(why));
    refused_ = !at_terminal_;
  }

  void Obey(const std::string& line) {
    if (line == "/quit") {
      Leave();
    } else if (line == "/help") {
      std::fwrite(kHelp.data(), 1, kHelp.size(), stderr);
    } else if (line == "/stats") {
      if (!last_) PrintError("/stats: nothing was answered yet; ask something");
      PrintStats();
    } else if (line == "/explain") {
      Explain();
    } else if (line == "/save" && !session_.empty()) {
      if (!HasNews()) PrintError("/save: nothing is new; say something");
      Keep();
    } else if (line == "/save" || line.starts_with("/save ")) {
      const std::string path = line.size() > 6 ? line.substr(6) : "";
      if (Status s = Save(conversation_.messages(), path); !s.ok()) {
        PrintError(s.message());
      }
    } else {
      Refuse("unknown command " + Quoted(line) + "; /help lists all");
    }
  }

  void Answer(const std::string& line) {
    Progress progress("reading");
    auto reply = conversation_.Say(
        line, {.on_begin =
                   [&](const SequenceOptions& asked, const SequenceStats& got) {
                     progress.Erase();
                     NoticeRaisedBudget(asked,
                                        engine_.architecture().kv_shape(), got);
                     if (!session_.empty()) RemarkOnBeginning();
                   },
               .on_text =
                   [&](std::string_view text) {
                     progress.Erase();
                     return out_.Write(text);
                   },
               .progress = [&](uint32_t done,
                               uint32_t total) { progress.Show(done, total); },
               .cancelled = [&] { return interrupt_.Requested(); }});
    progress.Erase();
    if (reply.status().code() == StatusCode::kInvalidArgument) {
      return Refuse(MessageOf(reply.status()));
    }
    if (!reply.ok()) {
      // A person can try again; a script should stop here.
      const ExitCode failure = out_.Fail(reply.status());
      if (!at_terminal_) code_ = failure;
      return;
    }
    last_ = std::move(*reply);
    if (keeps_turns_) Keep();
    if (!out_.Write("\n\n")) {
      last_.reset();  // nobody reads any more
      code_ = ExitCode::kFailed;
    } else if (interrupt_.Requested()) {
      if (!at_terminal_) code_ = ExitCode::kInterrupted;
      interrupt_.Clear();
    }
  }

  void PrintStats() const {
    if (!last_) return;
    const std::string text = ReportAsText(
        {*last_, last_->times.prefill_tokens, conversation_.cache(), {}});
    std::fputs(text.c_str(), stderr);
  }

  void Explain() const {
    if (conversation_.sequence() == nullptr) {
      return PrintError("/explain: nothing is cached yet; ask something");
    }
    const std::string text =
        CacheMap(*conversation_.sequence(), engine_.architecture().kv_shape(),
                 conversation_.tokens(), engine_.tokenizer());
    std::fputs(text.c_str(), stderr);
    const auto predictor = ActivePredictorOf(conversation_.cache(),
                                             conversation_.sequence()->stats());
    if (predictor) {
      std::fputs(
          ("\nForecast by " + predictor->name + ": " + predictor->reason + "\n")
              .c_str(),
          stderr);
    }
  }

  const Engine& engine_;
  Conversation& conversation_;
  const std::string session_;
  const bool keeps_turns_;
  size_t n_kept_;  // messages that the session on the disk has
  Output& out_;
  Interrupt& interrupt_;
  const bool at_terminal_;
  std::optional<Generation> last_;
  uint64_t n_lines_ = 0;
  bool refused_ = false;          // a message of a script
  std::optional<ExitCode> code_;  // set: the loop is over
};

}  // namespace

void ChatVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "chat", "Talk to the model; /help lists what else it understands");
  model_.AddTo(*verb, ModelArguments::Offer::kAll);
  verb->add_option("--system", system_, "System prompt")->type_name("TEXT");
  verb->add_option("-n,--new-tokens", max_reply_tokens_,
                   "Most tokens of one reply [512]")
      ->type_name("N")
      ->check(WholeNumber(1, 1u << 24));
  config_.AddTo(*verb, ConfigArguments::Offer::kAll);
  sampler_.AddTo(*verb);
  verb->add_option("--session", session_,
                   "Go on with the chat of this name, if there is one, and "
                   "keep it when leaving")
      ->type_name("NAME")
      ->check(NamesSomething());
  verb->footer(
      "The conversation may grow to --ctx, by default the length the model "
      "was\n"
      "trained for. A budget given as a share is, at every turn, a share of "
      "the\n"
      "conversation with the reply to come (-n), so it grows with the "
      "turns.\n\n"
      "From a pipe, each line is a message. One that cannot be answered is\n"
      "refused with its line number, the others are answered, and the exit\n"
      "code is 2.\n\n"
      "Example:\n"
      "  lkv chat --budget 25% --system 'Answer briefly.'\n"
      "  printf 'Hello.\\nWhat did I say?\\n' | lkv chat\n"
      "  lkv chat --session work   # tomorrow again");
}

ExitCode ChatVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  auto sampler = sampler_.ToOptions(configuration->cache());
  if (!sampler.ok()) return out.Fail(sampler.status());
  const auto options = model_.ToEngineOptions();
  if (!options.ok()) return out.Fail(options.status());
  std::unique_ptr<Sessions> sessions;
  if (!session_.empty()) {
    auto opened = Sessions::Open(configuration->cache());
    if (!opened.ok()) return out.Fail(opened.status());
    sessions = *std::move(opened);
    if (Status s = Sessions::CheckName(session_); !s.ok()) return out.Fail(s);
  }
  const auto engine = OpenEngine(*options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());

  if (!(*engine)->tokenizer().has_chat_template()) {
    return out.Fail(
        InvalidArgument("chat: the model carries no chat template; lkv run "
                        "continues plain text with it"));
  }
  ConversationOptions conversation;
  conversation.cache = configuration->cache();
  conversation.sampler = std::move(*sampler);
  conversation.system = system_;
  conversation.max_tokens =
      options->ctx_tokens > 0
          ? options->ctx_tokens
          : (*engine)->architecture().trained_context_tokens;
  conversation.max_reply_tokens = max_reply_tokens_;
  conversation.sessions = sessions.get();
  Conversation talk(**engine, std::move(conversation));
  if (Status s = talk.Check(); !s.ok()) return out.Fail(s);
  if (sessions != nullptr) {
    const auto restored = talk.Restore(session_);
    if (!restored.ok()) return out.Fail(restored.status());
    if (*restored) {
      std::fputs(("session " + Quoted(session_) + " goes on: " +
                  FormatCount(talk.messages().size(), "message") + ", " +
                  FormatCount(talk.tokens().size(), "token") + "\n")
                     .c_str(),
                 stderr);
    }
  }
  const bool keeps_turns =
      configuration->cache().sessions_durability == SessionDurability::kAlways;
  return ChatLoop(**engine, talk, session_, keeps_turns, out, interrupt).Run();
}

}  // namespace lkv::cli
