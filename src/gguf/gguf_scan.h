// Checks every claim of a GGUF file before ggml's reader sees it.
//
// ggml stops the process, or gives undefined behaviour, on some of what a
// hostile file can say, and explains the rest only in its log. So header,
// metadata and tensor table are walked here first with bounds checks: what
// passes can be read by ggml without surprise.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv {

// kCorrupt, naming file, key or tensor, and remedy. Pure apart from reading
// `bytes`; O(size of the metadata) time, a few words of memory per key and
// tensor. `path` serves messages only.
Status CheckGguf(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace lkv
