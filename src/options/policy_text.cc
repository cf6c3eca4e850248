#include "options/policy_text.h"

#include "options/option_table.h"

namespace lkv {

Result<PolicyName> ParsePolicy(std::string_view text) {
  CacheOptions named;
  if (Status s = SetOption(*FindOption("policy"), text, &named); !s.ok()) {
    return s;
  }
  return named.policy;
}

}  // namespace lkv
