#include "cli/train_verb.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/stopwatch.h"
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

Json AsJson(const TrainedPredictor& trained, double seconds) {
  return {{"rows", trained.n_examples},
          {"texts", trained.n_texts},
          {"epochs", trained.n_epochs},
          {"seconds", seconds},
          {"holdout",
           {{"rows", trained.n_held_out},
            {"texts", trained.n_held_out_texts},
            {"error", trained.error},
            {"mean_error", trained.mean_error}}}};
}

std::string AsText(const TrainedPredictor& trained, const std::string& path,
                   double seconds) {
  return FormatCount(trained.n_examples, "example") + " of " +
         FormatCount(trained.n_texts - trained.n_held_out_texts, "text") +
         ", " + FormatCount(trained.n_epochs, "epoch") + ", " +
         FormatFixed(seconds, 0) + " s\n" +
         "held out: " + FormatCount(trained.n_held_out, "example") + " of " +
         FormatCount(trained.n_held_out_texts, "text") +
         "; squared error of log2 " + FormatSignificant(trained.error) +
         ", of a lane's mean " + FormatSignificant(trained.mean_error) +
         " (explained: " +
         FormatPercent(1 - trained.error / trained.mean_error) + ")\n" +
         "written: " + path + "\n";
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
      ->type_name("N");
  threads_.AddTo(*verb);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "One text in five is held out: it says when to stop. Use the result "
      "with\n"
      "--set predictor=FILE.gguf.\n\n"
      "Example:\n"
      "  lkv train --traces traces -o mine.gguf");
}

ExitCode TrainVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto kernels = ChooseKernels();
  if (!kernels.ok()) return out.Fail(kernels.status());
  const auto team = threads_.CreateTeam();
  if (!team.ok()) return out.Fail(team.status());
  // Not after minutes of work.
  if (const auto probe = LocalFileSystem().Create(output_); !probe.ok()) {
    return out.Fail(probe.status());
  }
  const auto paths = ListTraces(traces_);
  if (!paths.ok()) return out.Fail(paths.status());
  const auto traces = TraceReader::OpenAll(LocalFileSystem(), *paths);
  if (!traces.ok()) return out.Fail(traces.status());
  interrupt.SetFlag();
  const Stopwatch watch;
  Progress progress("train");
  const auto trained = TrainPredictor(
      *traces, {.seed = seed_}, **kernels, **team,
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
