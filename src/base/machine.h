// What the machine lets this process use: cores and memory, with the limits of
// its containers and of its shell. Read from /proc and /sys at the time of the
// call.
//
// Pure but for the file system; each call reads a handful of small files (50
// us). `root` is put in front of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace lkv {

// Cores this process may keep busy: its affinity mask, cut to the CPU quota of
// its control groups. At least 1.
uint32_t UsableCores(const std::string& root = "");

// Memory that this process could ever have: the machine's, cut to the limits of
// the control groups and of the process (ulimit -v, -d). Does not change while
// it runs, so decisions that must repeat may depend on it. UINT64_MAX when
// nothing can be read.
uint64_t TotalMemoryBytes(const std::string& root = "");

// Bytes this process may still fill: the kernel's MemAvailable, cut to what the
// control groups leave (file pages that the kernel would drop count as free).
// UINT64_MAX when neither can be read.
uint64_t AvailableMemoryBytes(const std::string& root = "");

// Bytes of addresses this process may still map under its own limits (ulimit
// -v, -d), filled or not. UINT64_MAX without a limit.
uint64_t AvailableAddressBytes(const std::string& root = "");

}  // namespace lkv
