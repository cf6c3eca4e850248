// The cpu executor: the forward pass on re-tiled weights, dispatched kernels
// and a thread team. One code path serves prefill chunks, single decode steps
// and batches of decoding sequences.
//
// Results depend on the input and the kernel set only: every output element is
// summed by one thread in a fixed order, so neither the number of threads nor
// the other tokens of a step change a token's result.
#pragma once

#include <cstdint>
#include <memory>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "model/executor.h"
#include "model/weights.h"

namespace lkv {

struct CpuExecutorOptions {
  const KernelTable* kernels = nullptr;  // must outlive the executor
  ThreadTeam* team = nullptr;            // borrowed, likewise
  ActivationPrecision activations = ActivationPrecision::kAuto;
  uint32_t max_step_tokens = 512;  // sizes the working memory
};

// Bytes of working memory that MakeCpuExecutor allocates, and in how many
// buffers that may be large: seven of f32, and twice the five of
// ActivationRows.
inline constexpr uint64_t kCpuExecutorBuffers = 17;
uint64_t CpuExecutorWorkingBytes(const Architecture& architecture,
                                 const CpuExecutorOptions& options);

std::unique_ptr<Executor> MakeCpuExecutor(Architecture architecture,
                                          Weights weights,
                                          const CpuExecutorOptions& options);

}  // namespace lkv
