#include "cli/text_files.h"

#include <utility>

#include "cli/file_arguments.h"
#include "cli/prompt_arguments.h"

namespace lkv::cli {

Result<std::vector<TextFile>> ReadTextFiles(
    const std::vector<std::string>& paths) {
  if (Status s = CheckEachOnce(paths); !s.ok()) return s;
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    auto text = ReadWholeFile(path);
    if (!text.ok()) return text.status();
    if (text->empty()) {
      return InvalidArgument(path + ": is empty; give a text to measure on");
    }
    files.push_back({path, *std::move(text)});
  }
  return files;
}

std::vector<TokenizedText> Tokenize(const Tokenizer& tokenizer,
                                    const std::vector<TextFile>& files) {
  std::vector<TokenizedText> texts;
  for (const TextFile& file : files) {
    texts.push_back({file.path, tokenizer.Tokenize(
                                    file.contents, Tokenizer::Start::kAsTrained,
                                    Tokenizer::Special::kAsText)});
  }
  return texts;
}

}  // namespace lkv::cli
