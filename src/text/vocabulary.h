// Loads the vocabulary of a GGUF file into libllama, without its weights.
#pragma once

#include <memory>
#include <string>

#include "llama.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct FreeLlamaModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using VocabularyModel = std::unique_ptr<llama_model, FreeLlamaModel>;

// A model of libllama that holds the vocabulary and the chat template only.
// kNotFound: the file cannot be opened; kCorrupt: no GGUF, or its vocabulary
// is damaged or of an unknown kind. The first call silences libllama's log.
Result<VocabularyModel> LoadVocabulary(const std::string& path);

}  // namespace lkv
