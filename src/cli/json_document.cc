#include "cli/json_document.h"

namespace lkv::cli {

std::string DumpJson(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json IntervalAsJson(const std::optional<Interval>& interval) {
  if (!interval) return Json();
  return {interval->low, interval->high};
}

}  // namespace lkv::cli
