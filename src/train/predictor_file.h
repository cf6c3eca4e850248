// Predictor files: a history network as GGUF, with the fingerprint of the model
// that it was trained for. Of another model it would say nonsense, so it is
// refused by name.
#pragma once

#include <memory>
#include <string>

#include "gguf/gguf_file.h"
#include "io/file_system.h"
#include "lookaheadkv/status.h"
#include "policy/history_network.h"

namespace lkv {

struct PredictorFile {
  std::string model;  // fingerprint
  HistoryNetwork network;
};

// The file appears whole or not at all. As FileSystem::Create.
Status WritePredictor(const FileSystem& file_system, const std::string& path,
                      const PredictorFile& predictor);

// Fingerprint of the model that a file's predictor is for; empty: it names
// none.
std::string ModelOfPredictor(const GgufFile& file);

// kCorrupt, naming the file: no predictor, one of another version, sizes that
// do not fit each other, numbers that are not finite.
Result<PredictorFile> ReadPredictor(const GgufFile& file);

// The network of `file` for a model. kInvalidArgument, naming the file: it was
// trained for another model. Otherwise as ReadPredictor.
Result<std::shared_ptr<const HistoryNetwork>> NetworkFor(
    const GgufFile& file, const std::string& model_fingerprint,
    uint32_t n_lanes);

}  // namespace lkv
