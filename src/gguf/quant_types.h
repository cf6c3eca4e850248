// What this build knows of ggml's tensor types by number.
#pragma once

#include <cstdint>

#include "gguf/gguf_file.h"

namespace lkv {

// Whether a file may store tensors of this type: ggml knows it and Dequantize
// can read it. Takes any number.
bool IsStorageType(uint32_t raw_type);

GgufType NamedType(uint32_t raw_type);

}  // namespace lkv
