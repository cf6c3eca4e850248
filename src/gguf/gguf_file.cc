#include "gguf/gguf_file.h"

#include <array>
#include <cstdio>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/printable_text.h"
#include "ggml.h"
#include "gguf.h"
#include "gguf/gguf_scan.h"
#include "gguf/mapped_file.h"
#include "gguf/quant_types.h"
#include "io/crc32c.h"
#include "io/sha256.h"

namespace lkv {
namespace {

struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufContext = std::unique_ptr<gguf_context, FreeGguf>;

// One file of a model.
struct Part {
  std::string path;
  std::optional<MappedFile> file;  // absent: somebody else's memory
  std::span<const uint8_t> bytes;
  GgufContext gguf;

  bool IsTorn() const { return file && file->IsTorn(); }
  void DropPages(std::span<const uint8_t> part) const {
    if (file) file->DropPages(part);
  }
};

// ggml's log would go to stderr; what matters of it is in our Status.
void SilenceGgmlLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  });
}

Status Truncated(const std::string& path) {
  return Corrupt(path +
                 ": was truncated while it was read; fetch the file again");
}

// Reads the metadata.
Status ParsePart(Part& part) {
  const Status claims = CheckGguf(part.path, part.bytes);
  if (part.IsTorn()) return Truncated(part.path);
  if (!claims.ok()) return claims;
  part.gguf.reset(gguf_init_from_buffer(part.bytes.data(), part.bytes.size(),
                                        {.no_alloc = true, .ctx = nullptr}));
  if (part.IsTorn()) return Truncated(part.path);
  if (part.gguf == nullptr) {
    return Corrupt(part.path +
                   ": ggml cannot read it; convert the model again");
  }
  return {};
}

Result<Part> OpenPart(const std::string& path) {
  Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  Part part{
      .path = path, .file = std::move(*file), .bytes = {}, .gguf = nullptr};
  part.bytes = part.file->bytes();
  if (Status s = ParsePart(part); !s.ok()) return s;
  // The metadata was copied: 2 MiB of a small model, 10 MiB of a large one.
  part.DropPages(part.bytes.first(gguf_get_data_offset(part.gguf.get())));
  return part;
}

// Id of a key that is no array, and its type; empty when absent or an array.
struct Scalar {
  int64_t id;
  gguf_type type;
};
std::optional<Scalar> FindScalar(const gguf_context* gguf,
                                 std::string_view key) {
  int64_t id = gguf_find_key(gguf, std::string(key).c_str());
  if (id < 0) return {};
  gguf_type type = gguf_get_kv_type(gguf, id);
  if (type == GGUF_TYPE_ARRAY) return {};
  return Scalar{id, type};
}

// Element i of plain data of a type; empty unless an integer (or bool) >= 0.
std::optional<uint64_t> ReadUint(gguf_type type, const void* data, size_t i) {
  auto if_not_negative = [](int64_t value) -> std::optional<uint64_t> {
    if (value < 0) return {};
    return static_cast<uint64_t>(value);
  };
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_BOOL:
      return static_cast<const uint8_t*>(data)[i];
    case GGUF_TYPE_UINT16:
      return static_cast<const uint16_t*>(data)[i];
    case GGUF_TYPE_UINT32:
      return static_cast<const uint32_t*>(data)[i];
    case GGUF_TYPE_UINT64:
      return static_cast<const uint64_t*>(data)[i];
    case GGUF_TYPE_INT8:
      return if_not_negative(static_cast<const int8_t*>(data)[i]);
    case GGUF_TYPE_INT16:
      return if_not_negative(static_cast<const int16_t*>(data)[i]);
    case GGUF_TYPE_INT32:
      return if_not_negative(static_cast<const int32_t*>(data)[i]);
    case GGUF_TYPE_INT64:
      return if_not_negative(static_cast<const int64_t*>(data)[i]);
    default:
      return {};
  }
}

std::optional<uint64_t> UintOf(const gguf_context* gguf, std::string_view key) {
  std::optional<Scalar> found = FindScalar(gguf, key);
  if (!found || found->type == GGUF_TYPE_STRING ||
      found->type == GGUF_TYPE_BOOL) {
    return {};
  }
  return ReadUint(found->type, gguf_get_val_data(gguf, found->id), 0);
}

// "-00001-of-00005.gguf", as every writer of splits names them.
std::string SplitSuffix(uint64_t number, uint64_t count) {
  std::array<char, 64> suffix = {};
  std::snprintf(suffix.data(), suffix.size(), "-%05llu-of-%05llu.gguf",
                static_cast<unsigned long long>(number),
                static_cast<unsigned long long>(count));
  return suffix.data();
}

// Opens parts 2..count of a model whose first part is parts[0].
Status OpenOtherParts(uint64_t count, std::vector<Part>* parts) {
  const std::string& path = parts->front().path;
  uint64_t number = UintOf(parts->front().gguf.get(), "split.no").value_or(0);
  if (number != 0) {
    return Corrupt(path + ": is part " + std::to_string(number + 1) + " of " +
                   std::to_string(count) + " of a split model; give part 1");
  }
  const std::string suffix = SplitSuffix(1, count);
  if (!path.ends_with(suffix)) {
    return Corrupt(path + ": is the first of " + std::to_string(count) +
                   " parts of a split model, but its name does not end in " +
                   suffix + "; give the parts their names back");
  }
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  for (uint64_t i = 1; i < count; ++i) {
    Result<Part> part = OpenPart(prefix + SplitSuffix(i + 1, count));
    if (!part.ok()) return part.status();
    const gguf_context* gguf = part->gguf.get();
    if (UintOf(gguf, "split.no") != i || UintOf(gguf, "split.count") != count) {
      const auto number = [&](const char* key) {
        const std::optional<uint64_t> value = UintOf(gguf, key);
        return std::string(key) +
               (value ? " is " + std::to_string(*value) : " is missing");
      };
      return Corrupt(part->path + ": does not call itself part " +
                     std::to_string(i + 1) + " of " + std::to_string(count) +
                     " (" + number("split.no") + ", " + number("split.count") +
                     "); fetch all parts of one model");
    }
    parts->push_back(std::move(*part));
  }
  return {};
}

GgufTensor DescribeTensor(const Part& part, int64_t id) {
  const gguf_context* gguf = part.gguf.get();
  GgufTensor tensor;
  tensor.name = gguf_get_tensor_name(gguf, id);
  const ggml_type type = gguf_get_tensor_type(gguf, id);
  tensor.raw_type = static_cast<uint32_t>(type);
  tensor.type = NamedType(tensor.raw_type);
  const int64_t* shape = gguf_get_tensor_ne(gguf, id);
  size_t n_dims = GGML_MAX_DIMS;
  while (n_dims > 1 && shape[n_dims - 1] == 1) --n_dims;
  tensor.shape.assign(shape, shape + n_dims);
  tensor.data = part.bytes.data() + gguf_get_data_offset(gguf) +
                gguf_get_tensor_offset(gguf, id);
  tensor.n_bytes = gguf_get_tensor_size(gguf, id);
  tensor.row_bytes = ggml_row_size(type, shape[0]);
  return tensor;
}

}  // namespace

struct GgufFile::State {
  std::string path;
  std::vector<Part> parts;  // metadata counts in the first only
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> index;  // into tensors, by name

  const gguf_context* metadata() const { return parts.front().gguf.get(); }

  Status IndexTensors() {
    for (const Part& part : parts) {
      int64_t n_tensors = gguf_get_n_tensors(part.gguf.get());
      for (int64_t id = 0; id < n_tensors; ++id) {
        tensors.push_back(DescribeTensor(part, id));
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!index.emplace(tensors[i].name, i).second) {
        return Corrupt(path + ": tensor " + Quoted(tensors[i].name) +
                       " is in two parts; fetch all parts of one model");
      }
    }
    return {};
  }
};

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  SilenceGgmlLog();
  auto state = std::make_unique<State>();
  state->path = path;
  Result<Part> first = OpenPart(path);
  if (!first.ok()) return first.status();
  state->parts.push_back(std::move(*first));

  uint64_t n_parts = UintOf(state->metadata(), "split.count").value_or(0);
  if (n_parts > 1) {
    Status s = OpenOtherParts(n_parts, &state->parts);
    if (!s.ok()) return s;
  }
  if (Status s = state->IndexTensors(); !s.ok()) return s;
  std::optional<uint64_t> n_tensors =
      UintOf(state->metadata(), "split.tensors.count");
  if (n_tensors && *n_tensors != state->tensors.size()) {
    return Corrupt(path + ": has " + std::to_string(state->tensors.size()) +
                   " of the " + std::to_string(*n_tensors) +
                   " tensors that its key split.tensors.count speaks of; fetch "
                   "all parts of one model");
  }
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(state)));
}

Result<std::unique_ptr<GgufFile>> GgufFile::FromBytes(
    const std::string& name, std::span<const uint8_t> bytes) {
  SilenceGgmlLog();
  auto state = std::make_unique<State>();
  state->path = name;
  Part part{.path = name, .file = {}, .bytes = bytes, .gguf = nullptr};
  if (Status s = ParsePart(part); !s.ok()) return s;
  state->parts.push_back(std::move(part));
  if (Status s = state->IndexTensors(); !s.ok()) return s;
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(state)));
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::~GgufFile() = default;

const std::string& GgufFile::path() const { return state_->path; }

std::optional<uint64_t> GgufFile::GetUint(std::string_view key) const {
  return UintOf(state_->metadata(), key);
}

std::optional<double> GgufFile::GetFloat(std::string_view key) const {
  const gguf_context* gguf = state_->metadata();
  std::optional<Scalar> found = FindScalar(gguf, key);
  if (!found) return {};
  if (found->type == GGUF_TYPE_FLOAT32) {
    return gguf_get_val_f32(gguf, found->id);
  }
  if (found->type == GGUF_TYPE_FLOAT64) {
    return gguf_get_val_f64(gguf, found->id);
  }
  return {};
}

std::optional<bool> GgufFile::GetBool(std::string_view key) const {
  std::optional<Scalar> found = FindScalar(state_->metadata(), key);
  if (!found || found->type != GGUF_TYPE_BOOL) return {};
  return gguf_get_val_bool(state_->metadata(), found->id);
}

std::optional<std::string> GgufFile::GetString(std::string_view key) const {
  std::optional<Scalar> found = FindScalar(state_->metadata(), key);
  if (!found || found->type != GGUF_TYPE_STRING) return {};
  return gguf_get_val_str(state_->metadata(), found->id);
}

std::optional<size_t> GgufFile::GetArrayLength(std::string_view key) const {
  const gguf_context* gguf = state_->metadata();
  int64_t id = gguf_find_key(gguf, std::string(key).c_str());
  if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) return {};
  return gguf_get_arr_n(gguf, id);
}

std::optional<std::vector<uint64_t>> GgufFile::GetUintArray(
    std::string_view key) const {
  const gguf_context* gguf = state_->metadata();
  std::optional<size_t> n = GetArrayLength(key);
  if (!n) return {};
  int64_t id = gguf_find_key(gguf, std::string(key).c_str());
  gguf_type type = gguf_get_arr_type(gguf, id);
  if (type == GGUF_TYPE_STRING) return {};
  const void* data = gguf_get_arr_data(gguf, id);
  std::vector<uint64_t> values;
  values.reserve(*n);
  for (size_t i = 0; i < *n; ++i) {
    std::optional<uint64_t> value = ReadUint(type, data, i);
    if (!value) return {};
    values.push_back(*value);
  }
  return values;
}

const std::vector<GgufTensor>& GgufFile::tensors() const {
  return state_->tensors;
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  auto found = state_->index.find(name);
  if (found == state_->index.end()) return nullptr;
  return &state_->tensors[found->second];
}

Status GgufFile::CheckWhole() const {
  for (const Part& part : state_->parts) {
    if (part.IsTorn()) return Truncated(part.path);
  }
  return {};
}

std::string GgufFile::Fingerprint() const {
  constexpr size_t kSampleBytes = 1024;
  Sha256 hash;
  for (const Part& part : state_->parts) {
    const auto head = part.bytes.first(gguf_get_data_offset(part.gguf.get()));
    hash.Add(head);
    part.DropPages(head);
  }
  for (const GgufTensor& tensor : state_->tensors) {
    const std::span<const uint8_t> values(tensor.data, tensor.n_bytes);
    const size_t n = std::min(kSampleBytes, values.size());
    hash.Add(values.first(n));
    hash.Add(values.last(n));
  }
  return hash.Hex();
}

uint32_t GgufFile::ValuesCrc() const {
  uint32_t crc = 0;
  for (const GgufTensor& tensor : state_->tensors) {
    crc = Crc32c({tensor.data, tensor.n_bytes}, crc);
    DropPages(tensor);
  }
  return crc;
}

void GgufFile::DropPages(const GgufTensor& tensor) const {
  for (const Part& part : state_->parts) {
    std::span<const uint8_t> bytes = part.bytes;
    if (tensor.data >= bytes.data() &&
        tensor.data < bytes.data() + bytes.size()) {
      part.DropPages({tensor.data, tensor.n_bytes});
    }
  }
}

}  // namespace lkv
