// `lkv chat`: a conversation, from a terminal or a pipe.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/arguments.h"
#include "cli/conversation.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/prompt_arguments.h"

namespace lkv::cli {

class ChatVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  ModelArguments model_;
  ConfigArguments config_;
  SamplerArguments sampler_;
  std::string system_;
  std::string session_;  // empty: none
  uint32_t max_reply_tokens_ = 512;
};

}  // namespace lkv::cli
