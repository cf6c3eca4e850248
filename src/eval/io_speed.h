// Speed of reading single records from a disk, as the third tier does: by
// io_uring where that is allowed, and by threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lookaheadkv/status.h"

namespace lkv {

struct IoSpeedOptions {
  std::string folder;  // made if it is missing; as of OpenLocalFolder
  std::vector<uint32_t> depths = {1, 8, 32};  // reads under way, 1 to 32
  uint64_t file_bytes = uint64_t{256} << 20;  // at least 1 MiB
  // 4 bodies of head size 64 with their checksum, in whole 512 bytes; rounded
  // up where the disk asks for more.
  uint32_t read_bytes = 3584;
  uint32_t n_reads = 2000;  // of a row, at each pass
  uint32_t n_passes = 5;    // all rows take turns
};

struct IoSpeedRow {
  std::string method;       // "io_uring", "threads"
  std::string description;  // as of OpenedBlockIo
  uint32_t depth = 0;
  double reads_per_second = 0;  // median of the passes
  // Of all reads: from the submission until it is seen.
  double latency_p50_us = 0;
  double latency_p99_us = 0;
  // How long a call to submit holds its thread, a read.
  double submit_p50_us = 0;
  double submit_p99_us = 0;
  double cpu_us = 0;  // of all threads, a read
};

// Reads at random places. kInvalidArgument or kIo when the folder cannot be
// used.
Result<std::vector<IoSpeedRow>> MeasureIoSpeed(
    const IoSpeedOptions& options, const std::function<bool()>& is_cancelled);

}  // namespace lkv
