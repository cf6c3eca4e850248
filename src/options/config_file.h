// The YAML file: its `lookahead_kv:` block as a flat list of key and text, with
// line numbers. Values are not judged here. The one user of yaml-cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lookaheadkv/status.h"

namespace lkv {

struct FileSetting {
  std::string key;
  std::string text;
  int line = 0;  // from 1, of the key
};

// Parses the contents of a configuration file; `name` stands in messages as
// "<name>:<line>: ...". An empty file and an empty block set nothing.
// kInvalidArgument: not UTF-8, not YAML, another top-level key, a key given
// twice, a value that is not plain (list, mapping, alias, nothing).
Result<std::vector<FileSetting>> ParseConfigFile(std::string_view contents,
                                                 const std::string& name);

// Reads the file and parses it. kNotFound: missing, a directory, or not
// readable; kInvalidArgument: larger than 1 MiB, or as above.
Result<std::vector<FileSetting>> ReadConfigFile(const std::string& path);

}  // namespace lkv
