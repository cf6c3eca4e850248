// `lkv run`: one prompt, one answer, and what it cost.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/generation_report.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/prompt_arguments.h"

namespace lkv::cli {

class RunVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  struct Inputs;   // everything that can be wrong before the model is loaded
  struct Request;  // the prompt as the model's vocabulary has it
  Result<Inputs> ReadInputs() const;
  Result<Request> ReadRequest(const Inputs& inputs,
                              const Tokenizer& tokenizer) const;
  // sessions: nullptr when none was asked for.
  Result<std::unique_ptr<Sequence>> Start(Engine& engine, Sessions* sessions,
                                          const Request& request,
                                          SessionUse* use) const;
  ExitCode Answer(Engine& engine, Sessions* sessions, const Inputs& inputs,
                  const Request& request, Output& out,
                  const Interrupt& interrupt) const;

  ModelArguments model_;
  ConfigArguments config_;
  PromptArguments prompt_;
  SamplerArguments sampler_;
  std::string session_;  // empty: none
  uint32_t max_new_tokens_ = 256;
  bool ignore_eos_ = false;
  bool measure_hits_ = false;
  bool explain_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
