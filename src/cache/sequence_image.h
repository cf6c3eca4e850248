// SequenceImage: a sequence as it is kept outside of the cache, to go on with
// it later: its state, in bytes, and its payload, in pieces.
//
// A piece holds the pages of a range of places of all lanes, lane by lane; a
// lane that has fewer pages has fewer in it. So the beginning of a text of
// which nothing has left lies in the first pieces. Pieces of coarse copies
// (tiers) follow, which hold groups likewise. What the pieces are follows from
// the layout.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/state_stream.h"
#include "base/types.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct SequenceLayout {
  KvType type = KvType::kF16;
  uint32_t n_exact_pages = 0;  // of each lane, f16 whatever the type
  // Tokens from the first on of which every lane still has every one, at its
  // place: what a shorter text may take.
  uint32_t complete_tokens = 0;
  std::vector<uint32_t> n_pages;   // [n_lanes]
  std::vector<uint32_t> n_groups;  // [n_lanes] of coarse copies

  explicit SequenceLayout(uint32_t n_lanes)
      : n_pages(n_lanes), n_groups(n_lanes) {}
  void ExchangeState(StateStream& stream);
  size_t PageBytes(const KvShape& shape, uint32_t index) const {
    return shape.page_bytes(index < n_exact_pages ? KvType::kF16 : type);
  }
};

// What comes first in the state, and can be read without a sequence.
struct ImageHead {
  uint32_t n_tokens = 0;
  // As they were when it was saved (SequenceOptions).
  uint32_t prompt_tokens = 0;
  uint32_t max_new_tokens = 0;
  Budget budget;
  std::vector<PositionRange> pinned;
  SequenceLayout layout;
  // Whether the rest of the state follows. There are policies whose state
  // cannot leave the process; then only complete_tokens are of use.
  bool has_rest = false;

  explicit ImageHead(uint32_t n_lanes) : layout(n_lanes) {}
  void ExchangeState(StateStream& stream);
};

// kCorrupt: these bytes are no state of a sequence of this shape.
Result<ImageHead> ReadImageHead(const KvShape& shape,
                                std::span<const uint8_t> state);

struct ImagePiece {
  enum class Kind : uint8_t { kPages, kColdGroups };
  Kind kind;
  uint32_t first, end;  // places in each lane
  uint64_t n_bytes;
};

// About 2 MiB each, which is what disks like; one place of all lanes, if that
// is more.
std::vector<ImagePiece> PiecesOf(const KvShape& shape,
                                 const SequenceLayout& layout);

}  // namespace lkv
