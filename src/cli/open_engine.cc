#include "cli/open_engine.h"

#include "cli/output.h"

namespace lkv::cli {

Result<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options,
                                           Interrupt& interrupt) {
  Progress progress("loading");
  progress.Show(options.model_path);
  interrupt.EndAtOnce();
  auto engine = Engine::Open(options);
  interrupt.SetFlag();
  return engine;
}

}  // namespace lkv::cli
