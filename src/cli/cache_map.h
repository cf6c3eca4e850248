// The picture behind --explain: which tokens each layer still holds, which
// pages are worth most and least, and which stretches of text left. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/types.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lkv::cli {

// `tokens` are those of the sequence, by position; at most 80 columns wide.
std::string CacheMap(const Sequence& sequence, const KvShape& shape,
                     std::span<const int32_t> tokens,
                     const Tokenizer& tokenizer);

// One line of the map: for each of `n_cells` equal stretches of [0, n_tokens)
// a character from ' ' (nothing held) over . : + to # (all held).
// held: [n_tokens], how many of n_heads KV heads hold the position.
std::string ShadeLine(std::span<const uint32_t> held, uint32_t n_heads,
                      size_t n_cells);

// The text of a few tokens in quotes, on one line, at most `width` columns.
std::string Excerpt(std::span<const int32_t> tokens, const Tokenizer& tokenizer,
                    size_t width);

}  // namespace lkv::cli
