#include "cache/sequence_image.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "store/cold_pages.h"

namespace lkv {
namespace {

constexpr uint32_t kMostTokens = 1u << 24;  // of a text
constexpr uint32_t kMostPages = kMostTokens / kPageTokens;
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

void AddPieces(ImagePiece::Kind kind, const std::vector<uint32_t>& n_places,
               const std::function<size_t(uint32_t)>& place_bytes,
               std::vector<ImagePiece>& pieces) {
  const uint32_t most = *std::max_element(n_places.begin(), n_places.end());
  ImagePiece piece{kind, 0, 0, 0};
  for (uint32_t place = 0; place < most; ++place) {
    const auto n_lanes = static_cast<uint64_t>(
        std::count_if(n_places.begin(), n_places.end(),
                      [&](uint32_t n) { return place < n; }));
    const uint64_t n_bytes = n_lanes * place_bytes(place);
    if (piece.n_bytes > 0 && piece.n_bytes + n_bytes > kPieceBytes) {
      pieces.push_back(piece);
      piece = {kind, place, place, 0};
    }
    piece.end = place + 1;
    piece.n_bytes += n_bytes;
  }
  if (piece.n_bytes > 0) pieces.push_back(piece);
}

}  // namespace

void SequenceLayout::ExchangeState(StateStream& stream) {
  stream.Exchange(type, static_cast<KvType>(kKvTypes - 1));
  stream.ExchangeCount(n_exact_pages, kMostPages);
  stream.ExchangeCount(complete_tokens, kMostTokens);
  for (uint32_t& n : n_pages) {
    stream.ExchangeCount(n, kMostPages);
    stream.Require(PagesOf(complete_tokens) <= n);
  }
  for (uint32_t& n : n_groups) stream.ExchangeCount(n, kMostPages);
}

void ImageHead::ExchangeState(StateStream& stream) {
  stream.ExchangeCount(n_tokens, kMostTokens);
  stream.ExchangeCount(prompt_tokens, kMostTokens);
  stream.ExchangeCount(max_new_tokens, kMostTokens);
  stream.Exchange(budget.kind, Budget::Kind::kBytes);
  stream.Exchange(budget.share);
  stream.Require(std::isfinite(budget.share));
  stream.Exchange(budget.amount);
  auto n_pinned = static_cast<uint32_t>(pinned.size());
  stream.ExchangeCount(n_pinned, kMostTokens);
  for (uint32_t i = 0; i < n_pinned && stream.ok(); ++i) {
    if (stream.is_reading()) pinned.emplace_back();
    stream.Exchange(pinned[i].begin);
    stream.Exchange(pinned[i].end);
  }
  layout.ExchangeState(stream);
  stream.Exchange(has_rest);
}

Result<ImageHead> ReadImageHead(const KvShape& shape,
                                std::span<const uint8_t> state) {
  ImageHead head(shape.n_lanes());
  StateStream stream(state);
  head.ExchangeState(stream);
  if (!stream.ok() || head.layout.complete_tokens > head.n_tokens) {
    return Corrupt(
        "state: is not that of a sequence of this model; read the "
        "text anew");
  }
  return head;
}

std::vector<ImagePiece> PiecesOf(const KvShape& shape,
                                 const SequenceLayout& layout) {
  std::vector<ImagePiece> pieces;
  AddPieces(
      ImagePiece::Kind::kPages, layout.n_pages,
      [&](uint32_t index) { return layout.PageBytes(shape, index); }, pieces);
  AddPieces(
      ImagePiece::Kind::kColdGroups, layout.n_groups,
      [&](uint32_t) { return ColdPages::GroupPayloadBytes(shape.head_dim); },
      pieces);
  return pieces;
}

}  // namespace lkv
