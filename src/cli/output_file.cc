#include "cli/output_file.h"

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

}  // namespace lkv::cli
