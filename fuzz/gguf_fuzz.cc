// libFuzzer target: any bytes as a model file. What opens is walked to its
// last byte. An empty corpus folder is seeded with small sound files first, for
// random bytes rarely get past the header.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "testing/gguf_bytes.h"

namespace {

using lkv::GgufBytes;

// Longest row that is dequantised: longer ones cost time and show nothing new.
constexpr uint64_t kRowElementsMax = 1 << 20;

std::vector<GgufBytes> Seeds() {
  GgufBytes empty;
  empty.Header(0, 0);

  GgufBytes metadata;
  metadata.Header(0, 8)
      .StringKey("general.architecture", "llama")
      .Key("general.alignment", GgufBytes::kU32, uint32_t{64})
      .Key("f", GgufBytes::kF32, 1.0f)
      .Key("b", GgufBytes::kBool, uint8_t{1})
      .Key("i", GgufBytes::kI32, int32_t{-1})
      .Key("u", GgufBytes::kU64, uint64_t{1})
      .ArrayKey("s", GgufBytes::kString, 2)
      .String("a")
      .String("b")
      .ArrayKey("n", GgufBytes::kI32, 2)
      .Put(1)
      .Put(2);

  GgufBytes tensors;
  tensors.Header(2, 0)
      .Tensor("x", {4, 2}, GgufBytes::kTensorF32, 0)
      .Tensor("y", {32}, GgufBytes::kTensorQ4_0, 32)
      .Pad()
      .Raw(std::string(64, '\x01'));

  GgufBytes part;
  part.Header(1, 2)
      .Key("split.no", GgufBytes::kU16, uint16_t{0})
      .Key("split.count", GgufBytes::kU16, uint16_t{1})
      .Tensor("x", {8}, GgufBytes::kTensorF32, 0)
      .Pad()
      .Raw(std::string(32, '\0'));
  return {empty, metadata, tensors, part};
}

void Walk(const lkv::GgufFile& file) {
  for (const char* key : {"general.architecture", "general.alignment", "f", "b",
                          "i", "u", "s", "n", "split.count"}) {
    file.GetUint(key);
    file.GetFloat(key);
    file.GetBool(key);
    file.GetString(key);
    file.GetArrayLength(key);
    file.GetUintArray(key);
  }
  std::vector<float> row;
  for (const lkv::GgufTensor& tensor : file.tensors()) {
    if (file.Find(tensor.name) != &tensor) std::abort();
    volatile uint8_t edge = tensor.data[0];
    edge = tensor.data[tensor.n_bytes - 1];
    (void)edge;
    if (tensor.shape[0] <= kRowElementsMax) {
      row.resize(tensor.shape[0]);
      lkv::Dequantize(tensor.raw_type, tensor.data, row.size(), row.data());
    }
    file.DropPages(tensor);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  namespace fs = std::filesystem;
  const std::string corpus = *argc > 1 ? (*argv)[*argc - 1] : "";
  std::error_code error;
  if (!fs::is_directory(corpus, error) || !fs::is_empty(corpus, error)) {
    return 0;
  }
  int number = 0;
  for (const GgufBytes& seed : Seeds()) {
    lkv::WriteBytes(corpus + "/seed-" + std::to_string(number++), seed.bytes());
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  static const int fd = memfd_create("gguf_fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, data, n_bytes, 0) != static_cast<ssize_t>(n_bytes)) {
    std::abort();
  }
  auto file = lkv::GgufFile::Open(path);
  if (file.ok()) Walk(**file);
  return 0;
}
