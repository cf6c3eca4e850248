#include "cli/open_engine.h"

#include <string>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/output.h"

namespace lkv::cli {

Result<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options,
                                           Interrupt& interrupt) {
  RemarkOnThreads(options.n_threads);
  Progress progress("loading");
  progress.Show(options.model_path);
  interrupt.EndAtOnce();
  auto engine = Engine::Open(options);
  interrupt.SetFlag();
  progress.Erase();
  if (engine.ok()) {
    for (const std::string& note : (*engine)->weight_notes()) {
      PrintError(options.model_path + ": " + note);
    }
  }
  return engine;
}

}  // namespace lkv::cli
