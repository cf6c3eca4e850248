// What the machine lets this process use: cores and memory, container limits
// included. Read from /proc and /sys at the time of the call.
//
// Pure but for the file system; each call reads a handful of small files.
#pragma once

#include <cstdint>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv {

// Cores this process may keep busy: its affinity mask, cut to the CPU quota of
// its control groups. At least 1. `root` is put in front of /proc and /sys.
uint32_t UsableCores(const std::string& root = "");

// Bytes this process may still allocate: the kernel's MemAvailable, cut to
// what the control groups leave (file pages that the kernel would drop count
// as free). UINT64_MAX when neither can be read.
uint64_t AvailableMemoryBytes(const std::string& root = "");

// kOutOfMemory with both numbers unless needed_bytes are available.
Status CheckFits(const std::string& what, uint64_t needed_bytes,
                 uint64_t available_bytes);

}  // namespace lkv
