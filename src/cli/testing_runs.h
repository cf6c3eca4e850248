// The real program with the real model, for tests of verbs.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {

using Words = std::vector<std::string>;

inline Words WithModel(Words arguments) {
  arguments.insert(arguments.begin() + 1, {"-m", TestModelPath()});
  return arguments;
}

// The document of a run that is expected to succeed.
inline nlohmann::json RunJson(Words arguments,
                              const ChildOptions& options = {}) {
  arguments.push_back("--json");
  const ChildResult result = RunLkv(WithModel(std::move(arguments)), options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  return nlohmann::json::parse(result.out, nullptr, false);
}

}  // namespace lkv::cli
