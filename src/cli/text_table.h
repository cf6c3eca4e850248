// TextTable: aligned columns for a terminal or a file. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lkv::cli {

class TextTable {
 public:
  enum class Align { kLeft, kRight };

  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns)
      : columns_(std::move(columns)) {}

  // Requires as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  static constexpr size_t kNoWrap = SIZE_MAX;

  // Title line, rule, rows. Columns are as wide as their widest cell and two
  // spaces apart; a last, left-aligned column is wrapped at word borders so
  // that lines stay within `width` where that leaves it 20 characters.
  std::string Print(size_t width = 80) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns that `text` takes on a terminal: UTF-8 characters, each counted once.
size_t DisplayWidth(const std::string& text);

// Breaks text at spaces into lines of at most `width`.
std::vector<std::string> WrapText(const std::string& text, size_t width);

}  // namespace lkv::cli
