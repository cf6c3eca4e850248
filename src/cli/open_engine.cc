#include "cli/open_engine.h"

#include <string>

#include "base/machine.h"
#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/output.h"

namespace lkv::cli {

void RemarkOnThreads(uint32_t n_threads) {
  const uint32_t n_cores = UsableCores();
  if (n_threads <= n_cores) return;
  PrintError("--threads: " + std::to_string(n_threads) + " threads share the " +
             (n_cores == 1 ? "one core" : std::to_string(n_cores) + " cores") +
             " this process may use, which slows them down; leave it out to "
             "use each core once");
}

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
  if (!engine.ok()) return InOptionNames(engine.status());
  return engine;
}

}  // namespace lkv::cli
