// The reference executor: the forward pass as one reads it in a paper, in f32,
// from weights as the file's own format defines them. It is the truth that the
// fast executor is measured against; speed matters only as far as tests of
// 1,000 tokens must end.
//
// Cost: 4 bytes per weight of memory; about 10 ms per token for 135M weights.
#pragma once

#include <memory>

#include "gguf/gguf_file.h"
#include "lookaheadkv/status.h"
#include "model/executor.h"

namespace lkv {

// Dequantises all weights of a model file; the file is not read afterwards.
// kCorrupt: as ReadArchitecture.
Result<std::unique_ptr<Executor>> MakeReferenceExecutor(const GgufFile& file);

}  // namespace lkv
