// Words of the operating system for why it refused.
#pragma once

#include <string>
#include <system_error>

namespace lkv {

// "No such file or directory" for ENOENT.
inline std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

}  // namespace lkv
