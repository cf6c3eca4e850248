// When a lane is worked on: lane i in the steps that end with n_tokens = i
// modulo kPageTokens, so that the work of all lanes spreads evenly over steps
// and each has its turn once a page. A chunk of a prompt is every lane's turn.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace lkv {

// `n_new` of the sequence's n_tokens came in this step.
inline constexpr bool HasTurn(uint32_t lane, uint32_t n_tokens,
                              uint32_t n_new) {
  return n_new > 1 || n_tokens % kPageTokens == lane % kPageTokens;
}

}  // namespace lkv
