// Cuts text that libllama cannot take in one call where it hurts least, and
// long text where it does not hurt at all.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

namespace lkv {

struct PieceLimits {
  size_t bytes_max;
  // Longest run of characters of one kind: letters (and all that is not
  // ASCII), digits, white space, or other signs.
  size_t run_characters_max;
  // From this many bytes on a piece ends where it may: in front of a space
  // between two ASCII letters.
  size_t bytes_wanted = std::numeric_limits<size_t>::max();
};

// Bytes of the first piece of a text: all of it within the limits; else cut
// where a run grows too long, or after the last line end that fits, or between
// two UTF-8 characters. Requires bytes_max >= 4, run_characters_max >= 1.
// O(bytes of the piece), and O(bytes_max) for one that ends after a line end,
// which the next piece then needs not look for: O(bytes) for all of a text.
// Reads at most two bytes behind the piece, or bytes_max + 1 bytes there.
size_t FirstPieceEnd(std::string_view text, PieceLimits limits);

}  // namespace lkv
