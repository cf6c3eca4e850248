// A number of bytes as people read it. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace lkv {

// "17 B", "96.5 MiB": in the largest binary unit of which it is at least one.
std::string FormatBytes(uint64_t n_bytes);

}  // namespace lkv
