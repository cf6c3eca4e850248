#include "cli/cache_map.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "cli/number_text.h"
#include "cli/text_table.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

constexpr size_t kCells = 52;       // of the map: 28 columns stay for counts
constexpr size_t kListedPages = 5;  // most and least valued
constexpr size_t kListedGaps = 5;   // longest stretches that left
constexpr size_t kExcerptWidth = 34;

struct ValuedPage {
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  PageExplanation page;
};

std::string PositionsText(uint32_t first, uint32_t n) {
  return std::to_string(first) + "-" + std::to_string(first + n - 1);
}

// "96-111", or of tokens that are not consecutive "96..240".
std::string PositionsText(std::span<const uint32_t> positions) {
  const uint32_t first = positions.front();
  const uint32_t last = positions.back();
  if (last - first + 1 == positions.size()) {
    return PositionsText(first, last - first + 1);
  }
  return std::to_string(first) + ".." + std::to_string(last);
}

std::vector<int32_t> TokensAt(std::span<const int32_t> tokens,
                              std::span<const uint32_t> positions) {
  std::vector<int32_t> found;
  for (uint32_t pos : positions) found.push_back(tokens[pos]);
  return found;
}

// held[layer][position] = KV heads of the layer that hold the position.
std::vector<std::vector<uint32_t>> CountHeld(const Sequence& sequence,
                                             const KvShape& shape) {
  std::vector<std::vector<uint32_t>> held(
      shape.n_layers, std::vector<uint32_t>(sequence.n_tokens()));
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (uint32_t pos : sequence.ResidentPositions(layer, head)) {
        ++held[layer][pos];
      }
    }
  }
  return held;
}

std::string MapText(const std::vector<std::vector<uint32_t>>& held,
                    const KvShape& shape) {
  const size_t n_tokens = held.front().size();
  std::string out = "\nWhat each layer holds of " + FormatCount(n_tokens) +
                    " tokens, mean over its KV heads\n(left: oldest; blank: "
                    "none, then . : + and # for all)\n\n";
  TextTable table({{"layer", Align::kRight},
                   {"kept", Align::kRight},
                   {"left", Align::kRight},
                   {"map"}});
  for (size_t layer = 0; layer < held.size(); ++layer) {
    const uint64_t sum =
        std::accumulate(held[layer].begin(), held[layer].end(), uint64_t{0});
    const uint64_t kept = (sum + shape.n_kv_heads / 2) / shape.n_kv_heads;
    // Bars keep blanks at the ends of the map visible.
    std::string map = "|";
    map += ShadeLine(held[layer], shape.n_kv_heads, kCells);
    map += '|';
    table.AddRow({std::to_string(layer), FormatCount(kept),
                  FormatCount(n_tokens - kept), std::move(map)});
  }
  return out + table.Print(TextTable::kNoWrap);
}

std::string PageTable(std::span<const ValuedPage> pages,
                      std::span<const int32_t> tokens,
                      const Tokenizer& tokenizer) {
  TextTable table({{"layer", Align::kRight},
                   {"head", Align::kRight},
                   {"positions", Align::kRight},
                   {"score", Align::kRight},
                   {"attention", Align::kRight},
                   {"text"}});
  for (const ValuedPage& valued : pages) {
    const PageExplanation& page = valued.page;
    table.AddRow(
        {std::to_string(valued.layer), std::to_string(valued.kv_head),
         PositionsText(page.positions), FormatSignificant(page.score),
         FormatSignificant(page.attention),
         Excerpt(TokensAt(tokens, page.positions), tokenizer, kExcerptWidth)});
  }
  return table.Print(TextTable::kNoWrap);
}

std::string PagesText(const Sequence& sequence, const KvShape& shape,
                      std::span<const int32_t> tokens,
                      const Tokenizer& tokenizer) {
  std::vector<ValuedPage> valued;
  std::array<uint64_t, 5> n_by_protection = {};
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (const PageExplanation& page : sequence.Explain(layer, head)) {
        ++n_by_protection[static_cast<size_t>(page.protection)];
        if (page.protection == PageProtection::kNone) {
          valued.push_back({layer, head, page});
        }
      }
    }
  }
  const auto count = [&](PageProtection protection) {
    return FormatCount(n_by_protection[static_cast<size_t>(protection)]);
  };
  TextTable reasons({{"pages", Align::kRight}, {"why they stay"}});
  reasons.AddRow({count(PageProtection::kSink), "the first tokens"});
  reasons.AddRow({count(PageProtection::kRecent), "the newest tokens"});
  reasons.AddRow({count(PageProtection::kPinned), "pinned text"});
  reasons.AddRow({count(PageProtection::kDenseLayer), "dense layers"});
  reasons.AddRow({count(PageProtection::kNone), "their score"});
  std::string out =
      "\nA page is 16 tokens of one layer and KV head\n\n" + reasons.Print();
  if (valued.empty()) return out;

  // Ties go to the oldest, as in eviction.
  std::stable_sort(valued.begin(), valued.end(),
                   [](const ValuedPage& a, const ValuedPage& b) {
                     return a.page.score > b.page.score;
                   });
  const size_t n = std::min(kListedPages, valued.size());
  const std::span<const ValuedPage> all(valued);
  out += "\nStay longest: the highest scores\n\n" +
         PageTable(all.first(n), tokens, tokenizer) +
         "\nLeave next: the lowest scores\n\n" +
         PageTable(all.last(n), tokens, tokenizer);
  return out;
}

std::string GapsText(const std::vector<std::vector<uint32_t>>& held,
                     std::span<const int32_t> tokens,
                     const Tokenizer& tokenizer) {
  struct Gap {
    uint32_t first = 0;
    uint32_t n = 0;
  };
  std::vector<Gap> gaps;
  uint64_t n_left = 0;
  for (uint32_t pos = 0; pos < held.front().size(); ++pos) {
    const bool left = std::all_of(
        held.begin(), held.end(),
        [&](const std::vector<uint32_t>& layer) { return layer[pos] == 0; });
    if (!left) continue;
    ++n_left;
    if (gaps.empty() || gaps.back().first + gaps.back().n != pos) {
      gaps.push_back({pos, 0});
    }
    ++gaps.back().n;
  }
  std::string out =
      "\nLeft every layer and head: " + FormatCount(n_left, "token");
  if (gaps.empty()) return out + "\n";
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const Gap& a, const Gap& b) { return a.n > b.n; });
  gaps.resize(std::min(kListedGaps, gaps.size()));
  out += ", the longest stretches\n\n";
  TextTable table(
      {{"positions", Align::kRight}, {"tokens", Align::kRight}, {"text"}});
  for (const Gap& gap : gaps) {
    table.AddRow(
        {PositionsText(gap.first, gap.n), FormatCount(gap.n),
         Excerpt(tokens.subspan(gap.first, gap.n), tokenizer, kExcerptWidth)});
  }
  return out + table.Print(TextTable::kNoWrap);
}

}  // namespace

std::string ShadeLine(std::span<const uint32_t> held, uint32_t n_heads,
                      size_t n_cells) {
  static constexpr std::string_view kShades = " .:+#";
  std::string line;
  n_cells = std::min(n_cells, held.size());
  for (size_t cell = 0; cell < n_cells; ++cell) {
    const size_t begin = held.size() * cell / n_cells;
    const size_t end = held.size() * (cell + 1) / n_cells;
    const uint64_t sum =
        std::accumulate(held.begin() + begin, held.begin() + end, uint64_t{0});
    const uint64_t most = (end - begin) * n_heads;
    // Blank means nothing at all and # everything; three shades between.
    size_t shade = 1 + sum * 3 / std::max<uint64_t>(most, 1);
    if (sum == 0) shade = 0;
    line += kShades[shade];
  }
  return line;
}

std::string Excerpt(std::span<const int32_t> tokens, const Tokenizer& tokenizer,
                    size_t width) {
  // No token is shorter than nothing: what is cut off need not be decoded.
  const size_t n = std::min(tokens.size(), width);
  std::string line = "\"";
  bool cut = n < tokens.size();
  Utf8Stream characters;
  std::string text = characters.Push(tokenizer.Detokenize(tokens.first(n)));
  text += characters.Finish();
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (text[i] & 0xc0) != 0x80;
    if (starts_character && DisplayWidth(line) + 4 > width) {
      cut = true;
      break;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    line += byte < 0x20 || byte == 0x7f ? ' ' : text[i];
  }
  return line + (cut ? "...\"" : "\"");
}

std::string CacheMap(const Sequence& sequence, const KvShape& shape,
                     std::span<const int32_t> tokens,
                     const Tokenizer& tokenizer) {
  if (sequence.n_tokens() == 0) return "Nothing is cached.\n";
  const auto held = CountHeld(sequence, shape);
  return MapText(held, shape) + PagesText(sequence, shape, tokens, tokenizer) +
         GapsText(held, tokens, tokenizer);
}

}  // namespace lkv::cli
