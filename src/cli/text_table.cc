#include "cli/text_table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lkv::cli {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowestWrap = 20;

std::string Padded(const std::string& text, size_t width,
                   TextTable::Align align) {
  const std::string blanks(width - std::min(width, DisplayWidth(text)), ' ');
  return align == TextTable::Align::kLeft ? text + blanks : blanks + text;
}

void TrimRight(std::string* line) {
  line->erase(line->find_last_not_of(' ') + 1);
}

}  // namespace

size_t DisplayWidth(const std::string& text) {
  // Continuation bytes (10xxxxxx) add no character.
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> WrapText(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  lines.push_back(std::move(line));
  return lines;
}

void TextTable::AddRow(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Print(size_t width) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(DisplayWidth(columns_[c].title));
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c]));
    }
  }
  const size_t before =
      std::accumulate(widths.begin(), widths.end() - 1, size_t{0}) +
      kGap * (columns_.size() - 1);
  if (columns_.back().align == Align::kLeft &&
      before + kNarrowestWrap < width) {
    widths.back() = std::min(widths.back(), width - before);
  }

  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += std::string(kGap, ' ');
      line += Padded(cells[c], widths[c], columns_[c].align);
    }
    TrimRight(&line);
    out += line + '\n';
  };

  std::vector<std::string> titles, rules;
  for (size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    rules.emplace_back(widths[c], '-');
  }
  add_line(titles);
  add_line(rules);
  for (std::vector<std::string> row : rows_) {
    // Wrapping also joins blanks, which a map or an excerpt needs.
    const auto lines = width == kNoWrap ? std::vector<std::string>{row.back()}
                                        : WrapText(row.back(), widths.back());
    for (const std::string& part : lines) {
      row.back() = part;
      add_line(row);
      std::fill(row.begin(), row.end(), "");
    }
  }
  return out;
}

}  // namespace lkv::cli
