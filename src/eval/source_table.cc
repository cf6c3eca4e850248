#include "eval/source_table.h"

#include "base/byte_text.h"
#include "base/check.h"

namespace lkv {

DemoOptions SourceTableOptions() {
  DemoOptions options;
  options.question.clear();
  options.shows_whole_reading = false;
  options.context_tokens = 1024;
  options.forced_tokens = 2048;
  return options;
}

Result<Budget> BudgetThatSaves(double saved, uint64_t weight_bytes,
                               uint64_t kv_bytes) {
  CHECK(saved > 0 && saved < 1);
  const double all_bytes = static_cast<double>(weight_bytes + kv_bytes);
  const auto saved_bytes = static_cast<uint64_t>(saved * all_bytes);
  if (saved_bytes >= kv_bytes) {
    return InvalidArgument("budget: of " + FormatBytes(weight_bytes) +
                           " of weights and " + FormatBytes(kv_bytes) +
                           " of KV together none saves " +
                           FormatBytes(saved_bytes) + "; name a --budget");
  }
  return Budget{.kind = Budget::Kind::kBytes, .amount = kv_bytes - saved_bytes};
}

double SavedMemory(const DemoRow& row, uint64_t full_kv_bytes,
                   uint64_t weight_bytes) {
  return 1 - static_cast<double>(weight_bytes + row.kv.resident_bytes_max) /
                 static_cast<double>(weight_bytes + full_kv_bytes);
}

}  // namespace lkv
