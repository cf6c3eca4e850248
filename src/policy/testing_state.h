// Shared by the tests of what has a state (base/state_stream.h).
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "base/state_stream.h"

namespace lkv {

// Takes the state of one object to another one.
template <typename T>
void MoveState(T& from, T& to) {
  std::vector<uint8_t> state;
  StateStream writes(&state);
  from.ExchangeState(writes);
  StateStream reads{std::span<const uint8_t>(state)};
  to.ExchangeState(reads);
  EXPECT_TRUE(reads.IsDone());
}

}  // namespace lkv
