// HelpFormatter: CLI11's help, with descriptions wrapped at 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lkv::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override;
  std::string make_subcommand(const CLI::App* verb) const override;
};

}  // namespace lkv::cli
