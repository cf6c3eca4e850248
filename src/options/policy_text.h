// The text form of a policy's name: "lookahead". Pure.
#pragma once

#include <string_view>

#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// Accepts what the key `policy` takes. kInvalidArgument otherwise: the key, the
// text and all names, without a place: the caller knows it.
Result<PolicyName> ParsePolicy(std::string_view text);

}  // namespace lkv
