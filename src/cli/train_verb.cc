#include "cli/train_verb.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/stopwatch.h"
#include "cli/file_arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "engine/kernel_choice.h"
#include "train/predictor_training.h"

namespace lkv::cli {
namespace {

// Files as given, folders as the traces in them.
Result<std::vector<std::string>> ListTraces(
    const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    std::error_code error;
    if (!std::filesystem::is_directory(name, error)) {
      paths.push_back(name);
      continue;
    }
    const size_t n_before = paths.size();
    for (std::filesystem::directory_iterator entry(name, error), end;
         !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".trace") {
        paths.push_back(entry->path().string());
      }
    }
    if (error) return NotFound(name + ": cannot be listed; " + error.message());
    if (paths.size() == n_before) {
      return NotFound(name +
                      ": has no file *.trace; record some with `lkv trace "
                      "record --reread`");
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Json HoldoutAsJson(const TrainedPredictor& trained) {
  Json holdout = {{"rows", trained.n_held_out},
                  {"texts", trained.n_held_out_texts},
                  {"error", trained.error},
                  {"mean_error", trained.mean_error},
                  {"budget", kHoldoutBudget}};
  const std::optional<HoldoutHits>& hits = trained.holdout.hits;
  const auto or_null = [&](double HoldoutHits::*field) {
    return hits ? Json((*hits).*field) : Json();
  };
  holdout["mass_hit"] = or_null(&HoldoutHits::mass_hit);
  holdout["ema_mass_hit"] = or_null(&HoldoutHits::ema_mass_hit);
  holdout["oracle_mass_hit"] = or_null(&HoldoutHits::oracle_mass_hit);
  holdout["random_mass_hit"] = or_null(&HoldoutHits::random_mass_hit);
  holdout["regret"] = or_null(&HoldoutHits::regret);
  holdout["why_no_hits"] = hits ? Json() : Json(trained.holdout.why_none);
  return holdout;
}

Json AsJson(const TrainedPredictor& trained, double seconds) {
  return {{"rows", trained.n_examples}, {"texts", trained.n_texts},
          {"epochs", trained.n_epochs}, {"timed_out", trained.timed_out},
          {"seconds", seconds},         {"holdout", HoldoutAsJson(trained)}};
}

std::string HoldoutAsText(const HoldoutReplay& holdout) {
  if (!holdout.hits) return "not replayed: " + holdout.why_none + "\n";
  const HoldoutHits& hits = *holdout.hits;
  return "replayed at " + FormatPercent(kHoldoutBudget) + ": mass hit " +
         FormatFixed(hits.mass_hit, 3) + ", of the average alone " +
         FormatFixed(hits.ema_mass_hit, 3) + ", oracle " +
         FormatFixed(hits.oracle_mass_hit, 3) + ", chance " +
         FormatFixed(hits.random_mass_hit, 3) + "; regret " +
         FormatFixed(hits.regret, 3) + "\n";
}

std::string AsText(const TrainedPredictor& trained, const std::string& path,
                   double seconds) {
  return FormatCount(trained.n_examples, "example") + " of " +
         FormatCount(trained.n_texts - trained.n_held_out_texts, "text") +
         ", " + FormatCount(trained.n_epochs, "epoch") +
         (trained.timed_out ? " (the time was up), " : ", ") +
         FormatFixed(seconds, 0) + " s\n" +
         "held out: " + FormatCount(trained.n_held_out, "example") + " of " +
         FormatCount(trained.n_held_out_texts, "text") +
         "; squared error of log2 " + FormatSignificant(trained.error) +
         ", of a lane's mean " + FormatSignificant(trained.mean_error) +
         " (explained: " +
         FormatPercent(1 - trained.error / trained.mean_error) + ")\n" +
         HoldoutAsText(trained.holdout) + "written: " + path + "\n";
}

}  // namespace

void TrainVerb::AddTo(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("train", "Fit a predictor of attention on traces");
  AddList(*verb, "--traces", &traces_,
          "Traces with a second reading (lkv trace record --reread), or "
          "folders of them")
      ->required();
  verb->add_option("-o,--output", output_, "The predictor")
      ->type_name("FILE.gguf")
      ->required()
      ->check(NamesSomething());
  verb->add_option("--seed", seed_,
                   "Seed of first weights and order; the same one gives the "
                   "same file [1]")
      ->type_name("N")
      ->check(WholeNumber(0, kMostSeed));
  verb->add_option("--minutes", minutes_,
                   "Time for reading traces and training: the epoch in which "
                   "it runs out is the last; default: no limit")
      ->type_name("N")
      ->check(WholeNumber(1, 1u << 16));
  threads_.AddTo(*verb);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "One text in five is held out: it says when to stop, and is replayed "
      "with a\n"
      "quarter of it kept (lkv bench policies explains mass hit and regret). "
      "Use\n"
      "the result with --set predictor=FILE.gguf.\n\n"
      "Example:\n"
      "  lkv train --traces traces -o mine.gguf");
}

ExitCode TrainVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto kernels = ChooseKernels();
  if (!kernels.ok()) return out.Fail(kernels.status());
  const auto team = threads_.CreateTeam();
  if (!team.ok()) return out.Fail(team.status());
  const auto paths = ListTraces(traces_);
  if (!paths.ok()) return out.Fail(paths.status());
  if (Status s = CheckEachOnce(*paths); !s.ok()) return out.Fail(s);
  if (Status s = CheckNotAnInput(output_, *paths); !s.ok()) return out.Fail(s);
  // Not after minutes of work.
  if (const auto probe = LocalFileSystem().Create(output_); !probe.ok()) {
    return out.Fail(probe.status());
  }
  const auto traces = TraceReader::OpenAll(LocalFileSystem(), *paths);
  if (!traces.ok()) return out.Fail(traces.status());
  interrupt.SetFlag();
  const Stopwatch watch;
  Progress progress("train");
  TrainingOptions options{.seed = seed_};
  if (minutes_) {
    options.out_of_time = [&] { return watch.Seconds() >= 60.0 * *minutes_; };
  }
  const auto trained = TrainPredictor(
      *traces, options, **kernels, **team,
      [&](const char* what, uint64_t n_done, uint64_t n_all) {
        progress.Show(n_done, n_all, what);
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!trained.ok()) return out.Fail(trained.status());
  if (Status s = WritePredictor(LocalFileSystem(), output_, trained->file);
      !s.ok()) {
    return out.Fail(s);
  }
  const double seconds = watch.Seconds();
  out.Write(json_ ? DumpJson(AsJson(*trained, seconds))
                  : AsText(*trained, output_, seconds));
  return ExitCode::kDone;
}

}  // namespace lkv::cli
