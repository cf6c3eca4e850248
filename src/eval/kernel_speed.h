// How fast the kernels are on this machine, beside a plain read of memory.
//
// Kernels that memory bounds read a working set far larger than any cache;
// every pass over it alternates with a streaming read of the same bytes by the
// same threads, and the ratio of the two is the figure to trust: a neighbour
// who takes the memory slows both. Kernels that arithmetic bounds are given in
// 10^9 floating-point operations per second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"

namespace lkv {

struct KernelSpeedOptions {
  std::string filter;  // only kernels whose name contains it
  uint32_t n_passes = 7;
  size_t working_set_bytes = size_t{256} << 20;  // even, at least 12 MiB
};

struct KernelSpeedRow {
  enum class Bound { kMemory, kArithmetic };
  std::string kernel;  // "matvec/tile4/x16", "decode/f16/64x3/shuffled"
  std::string isa;     // the set's name
  uint64_t n = 0;      // columns of a matrix, slots of a lane
  uint32_t n_threads = 0;
  Bound bound = Bound::kMemory;
  // Medians over the passes. Bound by memory: gb_s and the ratio to streaming
  // with its extremes. Bound by arithmetic: gflop_s. The others are 0.
  double gb_s = 0;
  double ratio_to_stream = 0;
  double ratio_min = 0;
  double ratio_max = 0;
  double gflop_s = 0;
};

// About a second per row with vector sets, ten with the scalar one. `on_row`
// sees each row as it is measured; returns early, with what there is, once
// `cancelled` says so (between passes).
std::vector<KernelSpeedRow> MeasureKernelSpeed(
    const KernelTable& kernels, ThreadTeam& team,
    const KernelSpeedOptions& options,
    const std::function<void(const KernelSpeedRow&)>& on_row,
    const std::function<bool()>& cancelled);

}  // namespace lkv
