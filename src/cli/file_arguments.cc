#include "cli/file_arguments.h"

#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/printable_text.h"

namespace lkv::cli {

Status CheckNotAnInput(const std::string& output,
                       std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code error;  // a file that does not exist is no other's
    if (std::filesystem::equivalent(output, input, error)) {
      return InvalidArgument(Quoted(output) +
                             ": is read, too, and would be overwritten; name "
                             "another file to write");
    }
  }
  return {};
}

Status CheckEachOnce(std::span<const std::string> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      std::error_code error;  // who reads a file says that it does not exist
      if (std::filesystem::equivalent(inputs[i], inputs[before], error)) {
        return InvalidArgument(Quoted(inputs[i]) +
                               ": is given twice; name each file once");
      }
    }
  }
  return {};
}

}  // namespace lkv::cli
