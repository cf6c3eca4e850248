// GgufFile: metadata and tensors of a GGUF model, by mmap. The one adapter
// over ggml's reader and its quantisation formats; nothing above includes
// ggml headers.
//
// A model may come as one file or as splits (name-00001-of-00005.gguf): give
// the first. Everything a file claims is checked against the file's length
// before it is believed; whoever has read tensors asks CheckWhole whether the
// file still had that length. Thread rule: const calls from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lookaheadkv/status.h"

namespace lkv {

// The element types that our code treats by name. Every other ggml type loads
// too, through Dequantize.
enum class GgufType : uint32_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kOther,
};

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kOther;
  uint32_t raw_type = 0;          // ggml's number, for messages and Dequantize
  std::vector<uint64_t> shape;    // innermost (columns) first; trailing
                                  // dimensions of 1 dropped, none is 0
  const uint8_t* data = nullptr;  // inside the mapping
  size_t n_bytes = 0;
  size_t row_bytes = 0;  // bytes of one row of shape[0] elements
};

class GgufFile {
 public:
  // kNotFound: no such file or no permission; kCorrupt: not a GGUF model, or
  // one whose claims do not fit its length (for splits: of any part);
  // kOutOfMemory: no address space. Messages name file and tensor. Every tensor
  // of an opened file can be dequantised; its values are not looked at.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // One that is in memory, which must outlive it; `name` for messages.
  static Result<std::unique_ptr<GgufFile>> FromBytes(
      const std::string& name, std::span<const uint8_t> bytes);
  ~GgufFile();

  const std::string& path() const;

  // Metadata by key; empty when absent or of another type. Integers of every
  // width are converted when they are not negative; numbers are finite.
  std::optional<uint64_t> GetUint(std::string_view key) const;
  std::optional<double> GetFloat(std::string_view key) const;
  std::optional<bool> GetBool(std::string_view key) const;
  std::optional<std::string> GetString(std::string_view key) const;
  // Elements of an array; empty when absent.
  std::optional<size_t> GetArrayLength(std::string_view key) const;
  std::optional<std::vector<uint64_t>> GetUintArray(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* Find(std::string_view name) const;  // nullptr: none

  // kCorrupt, naming the file, once something was read that another process had
  // truncated since Open; it was read as zeros.
  Status CheckWhole() const;

  // SHA-256 in hexadecimal digits that tells models apart: of everything before
  // the tensors' values (metadata, vocabulary, names, shapes) and of the first
  // and last 1 KiB of each tensor. Reads 2 MB of a model of 272 tensors: 5 ms.
  std::string Fingerprint() const;

  // CRC-32C of the values of all tensors, which Fingerprint only samples. Reads
  // the whole file.
  uint32_t ValuesCrc() const;

  // Gives the mapped pages of a tensor back to the system; reading it again
  // costs I/O. For a loader that has copied what it needs.
  void DropPages(const GgufTensor& tensor) const;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Name of a type as people write it ("Q4_1"), for messages.
std::string GgufTypeName(uint32_t raw_type);

// Dequantises n elements (a multiple of the type's block) by ggml's own code;
// takes every type that a GgufTensor can have.
void Dequantize(uint32_t raw_type, const uint8_t* data, size_t n, float* out);

}  // namespace lkv
