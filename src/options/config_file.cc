#include "options/config_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/printable_text.h"
#include "base/utf8.h"
#include "options/option_table.h"
#include "options/suggestion.h"

namespace lkv {
namespace {

constexpr std::string_view kBlock = "lookahead_kv";
// Two hundred times the longest sensible file; bounds parsing time.
constexpr size_t kMostBytes = size_t{1} << 20;

// Takes the parser's events for a document of the shape
// { lookahead_kv: { key: scalar, group: { key: scalar, ... }, ... } } and keeps
// the first complaint. A key of a group is named group.key.
// Working on events instead of a tree leaves nothing for aliases to multiply.
class BlockReader : public YAML::EventHandler {
 public:
  explicit BlockReader(std::string name) : name_(std::move(name)) {}

  const Status& status() const { return status_; }
  std::vector<FileSetting> TakeSettings() { return std::move(settings_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (depth_ == 0) return;  // an empty document
    if (expects_ == Expect::kKey) return OnKey(mark, "");
    if (depth_ == 1) return BlockDone();
    // The mark stands where a value could still have come: lines further down.
    ComplainAt(key_line_,
               Quoted(key_) + " has no value; give one or delete the line");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Complain(mark, "aliases are not used here; write the value itself");
  }

  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    if (depth_ == 0) {
      return Complain(mark, Quoted(value) + " stands where the block '" +
                                std::string(kBlock) +
                                ":' belongs; see docs/configuration.md");
    }
    if (expects_ == Expect::kKey) return OnKey(mark, value);
    if (depth_ == 1) return ComplainBlock(mark);
    if (IsOptionGroup(prefix_ + key_)) {
      return Complain(mark, Quoted(prefix_ + key_) +
                                " holds keys of its own; write them below it");
    }
    settings_.push_back({prefix_ + key_, value, key_line_});
    expects_ = Expect::kKey;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&,
                       YAML::anchor_t, YAML::EmitterStyle::value) override {
    ++depth_;
    Complain(mark, "a list stands where " + Place() + " belongs; " + Remedy());
  }
  void OnSequenceEnd() override { --depth_; }

  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    const bool has_key = expects_ != Expect::kKey;
    const bool is_group =
        depth_ >= 2 && has_key && IsOptionGroup(prefix_ + key_);
    const bool wanted = depth_ == 0 || (depth_ == 1 && has_key) || is_group;
    if (depth_ >= 2) prefix_ += key_ + ".";
    ++depth_;
    if (!wanted) {
      Complain(mark,
               "a mapping stands where " + Place() + " belongs; " + Remedy());
    }
    expects_ = Expect::kKey;
  }
  void OnMapEnd() override {
    --depth_;
    if (depth_ == 1) BlockDone();
    if (depth_ < 2) return;
    expects_ = Expect::kKey;
    prefix_.pop_back();  // the dot
    prefix_.resize(prefix_.rfind('.') + 1);
  }

 private:
  enum class Expect { kKey, kValue };

  std::string Place() const {
    return expects_ == Expect::kKey ? "a key" : "the value of " + Quoted(key_);
  }
  static std::string Remedy() { return "write one plain value per key"; }

  void BlockDone() { expects_ = Expect::kKey; }

  void OnKey(const YAML::Mark& mark, const std::string& key) {
    expects_ = Expect::kValue;
    key_ = key;
    key_line_ = mark.line + 1;
    if (depth_ == 1) {
      if (key != kBlock) {
        std::string meant = NearestWord(key, std::array{kBlock}).empty()
                                ? "move it to its own file"
                                : "did you mean '" + std::string(kBlock) + "'?";
        Complain(mark, "unknown block " + Quoted(key) +
                           ", known is only 'lookahead_kv'; " + meant);
      } else if (std::exchange(seen_block_, true)) {
        Complain(mark,
                 "the block 'lookahead_kv' stands here twice; merge both");
      }
      return;
    }
    const std::string name = prefix_ + key;
    const auto same =
        std::find_if(settings_.begin(), settings_.end(),
                     [&](const auto& s) { return s.key == name; });
    if (same != settings_.end()) {
      Complain(mark, "key " + Quoted(name) + " was already given in line " +
                         std::to_string(same->line) + "; delete one");
    }
  }

  void ComplainBlock(const YAML::Mark& mark) {
    Complain(mark,
             "the block 'lookahead_kv' holds no keys; indent them below it");
  }

  void Complain(const YAML::Mark& mark, const std::string& what) {
    ComplainAt(mark.line + 1, what);
  }
  void ComplainAt(int line, const std::string& what) {
    if (!status_.ok()) return;
    status_ = InvalidArgument(name_ + ":" + std::to_string(line) + ": " + what);
  }

  const std::string name_;
  Status status_;
  std::vector<FileSetting> settings_;
  bool seen_block_ = false;
  int depth_ = 0;  // of open mappings and lists
  Expect expects_ = Expect::kKey;
  std::string prefix_;  // of the groups that are open: "tiers.l3."
  std::string key_;
  int key_line_ = 0;
};

}  // namespace

Result<std::vector<FileSetting>> ParseConfigFile(std::string_view contents,
                                                 const std::string& name) {
  if (contents.size() > kMostBytes) {
    return InvalidArgument(name +
                           ": larger than 1 MiB; a configuration is a "
                           "few lines of YAML");
  }
  if (const size_t at = FindInvalidUtf8(contents);
      at != std::string_view::npos) {
    const auto line =
        1 + std::count(contents.begin(), contents.begin() + at, '\n');
    return InvalidArgument(name + ":" + std::to_string(line) +
                           ": not UTF-8; save the file as UTF-8");
  }
  BlockReader reader(name);
  try {
    std::istringstream stream{std::string(contents)};
    YAML::Parser parser(stream);
    bool more = parser.HandleNextDocument(reader);
    if (more && reader.status().ok() && parser.HandleNextDocument(reader)) {
      return InvalidArgument(name + ": holds two YAML documents; keep one");
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument(name + ":" + std::to_string(error.mark.line + 1) +
                           ": not YAML, " + error.msg + "; correct the line");
  }
  if (!reader.status().ok()) return reader.status();
  return reader.TakeSettings();
}

Result<std::vector<FileSetting>> ReadConfigFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return NotFound(path + ": is a folder; give a YAML file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return NotFound(path + ": " + std::strerror(errno) +
                    "; give a YAML file that can be read");
  }
  // One byte more than allowed is enough to know that it is too large.
  std::string contents(kMostBytes + 1, '\0');
  file.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  contents.resize(static_cast<size_t>(file.gcount()));
  return ParseConfigFile(contents, path);
}

}  // namespace lkv
