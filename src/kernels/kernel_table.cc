#include "kernels/kernel_table.h"

#include <cstring>

#include "base/types.h"
#include "kernels/kernel_sets.h"

namespace lkv {
namespace {

// What arrays "indexed by KvType" rely on.
static_assert(static_cast<int>(KvType::kF16) == 0 &&
              static_cast<int>(KvType::kBF16) == 1 &&
              static_cast<int>(KvType::kInt8) == 2 && kKvTypes == 3);

// The sets that this processor runs, best first.
struct Sets {
  KernelTable tables[3] = {};
  const char* names[4] = {};  // ends with nullptr
  size_t n_sets = 0;

  void Add(void (*fill)(KernelTable* table)) {
    fill(&tables[n_sets]);
    // For want of products of bf16.
    for (size_t type = 0; type < kKvTypes; ++type) {
      tables[n_sets].attend_prefill_bf16[type] =
          tables[n_sets].attend_prefill[type];
    }
    tables[n_sets].attend_prefill_mixed_bf16 =
        tables[n_sets].attend_prefill_mixed;
    names[n_sets] = tables[n_sets].name;
    ++n_sets;
  }

  Sets() {
#ifdef LKV_X86_KERNELS
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni")) {
      Add(FillAvx512Kernels);
      if (__builtin_cpu_supports("avx512bf16")) {
        AddAvx512BF16Prefill(&tables[0]);
      }
    }
    // Every processor with AVX2 also converts halves (F16C).
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      Add(FillAvx2Kernels);
    }
#endif
    Add(FillScalarKernels);
  }
};

const Sets& AvailableSets() {
  static const Sets sets;
  return sets;
}

}  // namespace

const KernelTable* SelectKernels(const char* forced) {
  const Sets& sets = AvailableSets();
  if (forced == nullptr || forced[0] == '\0') return &sets.tables[0];
  for (size_t i = 0; i < sets.n_sets; ++i) {
    if (std::strcmp(sets.names[i], forced) == 0) return &sets.tables[i];
  }
  return nullptr;
}

const char* const* AvailableKernels() { return AvailableSets().names; }

}  // namespace lkv
