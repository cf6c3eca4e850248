// Files of text that a verb measures on. They are read before the model is
// loaded, so that a wrong name is told at once, and tokenized after it.
#pragma once

#include <string>
#include <vector>

#include "eval/tokenized_text.h"
#include "lookaheadkv/status.h"
#include "text/tokenizer.h"

namespace lkv::cli {

struct TextFile {
  std::string path;
  std::string contents;
};

// All or none. Fails as ReadWholeFile and CheckEachOnce; kInvalidArgument: an
// empty file.
Result<std::vector<TextFile>> ReadTextFiles(
    const std::vector<std::string>& paths);

// Each from its beginning, as plain text, by the name of its file.
std::vector<TokenizedText> Tokenize(const Tokenizer& tokenizer,
                                    const std::vector<TextFile>& files);

}  // namespace lkv::cli
