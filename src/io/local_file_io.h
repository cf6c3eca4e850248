// Whole reads and writes of the operating system's files, and what is said to
// people when it refuses.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/descriptor.h"
#include "lookaheadkv/status.h"

namespace lkv {

// kIo: `path` "cannot be <what>".
Status FileRefused(const std::string& path, const std::string& what, int error);

// Fills `out` with the bytes from `offset` on, however often the system is
// interrupted or stops short. kCorrupt when the file ends before that.
Status ReadWhole(const Descriptor& file, const std::string& path,
                 uint64_t offset, std::span<uint8_t> out);

// Writes all bytes at *offset, which counts those that were.
Status WriteWhole(const Descriptor& file, const std::string& path,
                  uint64_t* offset, std::span<const uint8_t> bytes);

}  // namespace lkv
