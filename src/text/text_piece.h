// Cuts text that is too long for one call where it hurts least.
#pragma once

#include <cstddef>
#include <string_view>

namespace lkv {

// Bytes of the first piece of a text: all of it up to n_bytes_max; else cut
// after the last line end before that, or else between two UTF-8 characters.
// Requires n_bytes_max >= 4.
size_t FirstPieceEnd(std::string_view text, size_t n_bytes_max);

}  // namespace lkv
