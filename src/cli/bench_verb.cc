#include "cli/bench_verb.h"

namespace lkv::cli {

void BenchVerb::AddTo(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  bench->footer("Example:\n  lkv bench speed --depth 0,2048 --budget full,25%");
  speed_.AddTo(*bench);
  kernels_.AddTo(*bench);
  io_.AddTo(*bench);
  policies_.AddTo(*bench);
  window_.AddTo(*bench);
  sessions_.AddTo(*bench);
  bench_ = bench;
}

ExitCode BenchVerb::Run(Output& out, Interrupt& interrupt) const {
  if (bench_->got_subcommand("speed")) return speed_.Run(out, interrupt);
  if (bench_->got_subcommand("kernels")) return kernels_.Run(out, interrupt);
  if (bench_->got_subcommand("io")) return io_.Run(out, interrupt);
  if (bench_->got_subcommand("window")) return window_.Run(out, interrupt);
  if (bench_->got_subcommand("sessions")) return sessions_.Run(out, interrupt);
  return policies_.Run(out, interrupt);
}

}  // namespace lkv::cli
