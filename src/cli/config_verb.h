// `lkv config`: shows, checks and explains the configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/types.h"
#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/output.h"

namespace lkv::cli {

class ConfigVerb {
 public:
  void AddTo(CLI::App& app);
  // Requires that the command line named this verb.
  ExitCode Run(Output& out) const;

 private:
  ExitCode Show(Output& out) const;
  ExitCode Check(Output& out) const;
  ExitCode Explain(Output& out) const;
  ExitCode ListPresets(Output& out) const;
  struct ModelSize {
    KvShape shape;
    uint64_t weight_bytes = 0;
  };
  Result<ModelSize> ReadModelSize() const;
  ExitCode Memory(Output& out) const;

  CLI::App* verb_ = nullptr;
  ConfigArguments config_;
  std::string file_;  // check
  std::string key_;   // explain
  // memory: of a model file, or of a shape.
  std::string model_;
  uint32_t n_layers_ = 0, n_kv_heads_ = 0, head_dim_ = 0;
  std::string weights_;
  uint32_t context_ = 32768;
  std::string memory_ = "24GiB";
  bool markdown_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
