#include "engine/kernel_choice.h"

#include <cstdlib>
#include <string>

#include "base/printable_text.h"

namespace lkv {

Result<const KernelTable*> ChooseKernels() {
  const char* forced = std::getenv("LKV_KERNELS");
  if (const KernelTable* kernels = SelectKernels(forced)) return kernels;
  std::string known;
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    known += known.empty() ? *name : std::string(", ") + *name;
  }
  return InvalidArgument(
      "LKV_KERNELS=" + Printable(forced) +
      ": is no kernel set that this processor runs; choose one of " + known);
}

}  // namespace lkv
