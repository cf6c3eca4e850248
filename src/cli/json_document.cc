#include "cli/json_document.h"

#include "options/budget_text.h"

namespace lkv::cli {

std::string DumpJson(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json IntervalAsJson(const std::optional<Interval>& interval) {
  if (!interval) return Json();
  return {interval->low, interval->high};
}

Json BudgetAsJson(const Budget& budget) {
  if (budget.kind == Budget::Kind::kShare) return budget.share;
  return FormatBudget(budget);
}

}  // namespace lkv::cli
