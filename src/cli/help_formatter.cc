#include "cli/help_formatter.h"

#include "cli/text_table.h"

namespace lkv::cli {
namespace {

constexpr size_t kLeft = 28;
constexpr size_t kRight = 80 - kLeft;

std::string TwoColumns(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  // A long name stands on a line of its own.
  if (out.size() + 2 > kLeft) out += '\n' + std::string(kLeft, ' ');
  if (out.size() < kLeft) out += std::string(kLeft - out.size(), ' ');
  std::string indent;
  for (const std::string& line : WrapText(text, kRight)) {
    out += indent + line + '\n';
    indent.assign(kLeft, ' ');
  }
  return out;
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option,
                                       bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  if (option->get_expected_max() > 0) name += ' ' + option->get_type_name();
  // As manual pages write it.
  if (const size_t comma = name.find(",-"); comma != name.npos) {
    name.insert(comma + 1, " ");
  }
  return TwoColumns(name, option->get_description());
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  return TwoColumns(verb->get_name(), verb->get_description());
}

}  // namespace lkv::cli
