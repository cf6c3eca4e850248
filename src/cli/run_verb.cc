#include "cli/run_verb.h"

#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/printable_text.h"
#include "cli/budget_notice.h"
#include "cli/cache_map.h"
#include "cli/generation_report.h"
#include "cli/json_document.h"
#include "cli/open_engine.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/transcript.h"
#include "eval/hit_rate.h"

namespace lkv::cli {

struct RunVerb::Inputs {
  CacheOptions cache;
  std::string text;
  SamplerOptions sampler;
  EngineOptions engine;
};

struct RunVerb::Request {
  std::vector<int32_t> prompt;
  SequenceOptions admission;
};

void RunVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("run", "Answer one prompt");
  model_.AddTo(*verb, ModelArguments::Offer::kAll);
  prompt_.AddTo(*verb);
  verb->add_option("-n,--new-tokens", max_new_tokens_,
                   "Most tokens to generate; 0 only reads the prompt [256]")
      ->type_name("N")
      ->check(WholeNumber(0, 1u << 24));
  verb->add_flag("--ignore-eos", ignore_eos_,
                 "Generate all N tokens, past the end of the text");
  config_.AddTo(*verb, ConfigArguments::Offer::kAll);
  sampler_.AddTo(*verb);
  verb->add_option("--session", session_,
                   "Read only what no session has of the prompt, and keep it "
                   "with the answer under this name")
      ->type_name("NAME")
      ->check(NamesSomething());
  verb->add_flag("--measure-hits", measure_hits_,
                 "Afterwards, repeat the run beside a full cache and say how "
                 "much of its attention was kept");
  verb->add_flag("--explain", explain_,
                 "Afterwards, show what the cache kept and why");
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Example:\n"
      "  lkv run --budget 25% -f long.txt -n 128\n"
      "  echo 'Why is the sky blue?' | lkv run --chat --json\n"
      "  lkv run --session book -f book.txt -n 0   # reads it once\n"
      "  cat book.txt question.txt | lkv run --session answer");
}

Result<RunVerb::Inputs> RunVerb::ReadInputs() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  auto sampler = sampler_.ToOptions(configuration->cache());
  if (!sampler.ok()) return sampler.status();
  auto engine = model_.ToEngineOptions();
  if (!engine.ok()) return engine.status();
  auto text = prompt_.ReadText();
  if (!text.ok()) return text.status();
  return Inputs{configuration->cache(), std::move(*text), std::move(*sampler),
                std::move(*engine)};
}

ExitCode RunVerb::Run(Output& out, Interrupt& interrupt) const {
  auto inputs = ReadInputs();
  if (!inputs.ok()) return out.Fail(inputs.status());
  std::unique_ptr<Sessions> sessions;
  if (!session_.empty()) {
    auto opened = Sessions::Open(inputs->cache);
    if (!opened.ok()) return out.Fail(opened.status());
    sessions = *std::move(opened);
    if (Status s = Sessions::CheckName(session_); !s.ok()) return out.Fail(s);
  }
  // So that a prompt that is too long, or needs too much memory, is refused
  // before the weights are loaded.
  Request request;
  inputs->engine.first_sequence =
      [&](const Tokenizer& tokenizer,
          uint32_t ctx_tokens) -> Result<SequenceOptions> {
    if (Status s = CheckTextLength(tokenizer, inputs->text, ctx_tokens);
        !s.ok()) {
      return s;
    }
    auto read = ReadRequest(*inputs, tokenizer);
    if (!read.ok()) return read.status();
    request = std::move(*read);
    return request.admission;
  };
  const auto engine = OpenEngine(inputs->engine, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());
  return Answer(**engine, sessions.get(), *inputs, request, out, interrupt);
}

Result<RunVerb::Request> RunVerb::ReadRequest(
    const Inputs& inputs, const Tokenizer& tokenizer) const {
  auto prompt =
      prompt_.Tokenize(tokenizer, inputs.text, inputs.cache.pin_system);
  if (!prompt.ok()) return prompt.status();
  Request request;
  request.admission.cache = inputs.cache;
  request.admission.prompt_tokens =
      static_cast<uint32_t>(prompt->tokens.size());
  request.admission.max_new_tokens = max_new_tokens_;
  request.admission.pinned = std::move(prompt->pinned);
  request.prompt = std::move(prompt->tokens);
  return request;
}

Result<std::unique_ptr<Sequence>> RunVerb::Start(Engine& engine,
                                                 Sessions* sessions,
                                                 const Request& request,
                                                 SessionUse* use) const {
  if (sessions == nullptr) return engine.Start(request.admission);
  use->name = session_;
  // A chat holds words that a run does not.
  const auto note = sessions->ReadNote(engine, session_);
  if (note.ok() && ReadTranscript(note->note)) {
    return InvalidArgument("session " + Quoted(session_) +
                           ": is a chat; choose another name");
  }
  auto beginning =
      sessions->Begin(engine, request.admission, request.prompt, session_);
  if (!beginning.ok()) return beginning.status();
  use->beginning = *std::move(beginning);
  return std::move(use->beginning.sequence);
}

ExitCode RunVerb::Answer(Engine& engine, Sessions* sessions,
                         const Inputs& inputs, const Request& request,
                         Output& out, const Interrupt& interrupt) const {
  const SequenceOptions& admission = request.admission;
  SessionUse use;
  const auto sequence = Start(engine, sessions, request, &use);
  if (!sequence.ok()) return out.Fail(sequence.status());
  NoticeRaisedBudget(admission, engine.architecture().kv_shape(),
                     (*sequence)->stats());

  const uint32_t n_cached = use.beginning.cached_tokens;
  Turn turn;
  turn.prompt = std::span(request.prompt).subspan(n_cached);
  turn.max_new_tokens = max_new_tokens_;
  turn.ignore_eos = ignore_eos_;
  turn.sampler = inputs.sampler;
  Progress progress("prompt");
  const auto cancelled = [&] { return interrupt.Requested(); };
  auto generation = engine.Continue(
      **sequence, turn,
      [&](std::string_view text) {
        progress.Erase();
        return json_ || out.Write(text);
      },
      [&](uint32_t n_done) {
        progress.Show(n_cached + n_done, admission.prompt_tokens);
      },
      cancelled);
  progress.Erase();
  if (!generation.ok()) return out.Fail(generation.status());
  if (!json_ && !generation->text.ends_with('\n')) out.Write("\n");

  GenerationReport report{
      *generation, admission.prompt_tokens, inputs.cache, {}};
  ExitCode code = ExitCode::kDone;
  if (sessions != nullptr) {
    report.session = &use;
    // A prompt that was stopped half-way is of no use to anybody.
    if ((*sequence)->CheckWhole().ok()) {
      auto saved = sessions->Save(engine, **sequence, session_, {});
      if (saved.ok()) {
        use.saved = *std::move(saved);
      } else {
        PrintError(saved.status().message());
        code = ExitCode::kFailed;
      }
    }
  }
  if (measure_hits_ && !generation->tokens.empty() && !cancelled()) {
    const std::array parts = {ForcedPart{request.prompt, generation->tokens}};
    progress.Show("measuring hit rates");
    const auto hits = MeasureHitRates(engine, parts, {&admission, 1},
                                      {.cancelled = cancelled});
    progress.Erase();
    if (hits.ok()) {
      report.hit = hits->front();
    } else if (hits.status().code() != StatusCode::kCancelled) {
      return out.Fail(hits.status());
    }
  }

  // Whoever closed stdout wants no more words either.
  if (!out.Write(json_ ? DumpJson(ReportAsJson(report)) : "")) {
    return ExitCode::kFailed;
  }
  if (explain_) {
    std::vector<int32_t> tokens = request.prompt;
    tokens.insert(tokens.end(), generation->tokens.begin(),
                  generation->tokens.end());
    std::fputs(CacheMap(**sequence, engine.architecture().kv_shape(), tokens,
                        engine.tokenizer())
                   .c_str(),
               stderr);
  }
  if (!json_) {
    std::fputs("\n", stderr);
    std::fputs(ReportAsText(report).c_str(), stderr);
  }
  return cancelled() ? ExitCode::kInterrupted : code;
}

}  // namespace lkv::cli
