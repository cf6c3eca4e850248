#include "gguf/gguf_scan.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/printable_text.h"
#include "ggml.h"
#include "gguf.h"
#include "gguf/quant_types.h"

namespace lkv {
namespace {

constexpr uint32_t kVersionMin = 2;
constexpr uint32_t kVersionMax = 3;
// The format's own rule. It also keeps f32 data and f16 scales aligned.
constexpr uint64_t kAlignmentMin = 8;
// The smallest that one entry can take in the file.
constexpr uint64_t kKeyValueBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorInfoBytesMin = 8 + 4 + 4 + 8;

// Bytes of a scalar by gguf_type; 0: not a scalar.
uint64_t ScalarBytes(uint32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

// Reads forward; every read says whether the bytes were there.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  bool Read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool ReadString(std::string_view* text) {
    uint64_t n_bytes = 0;
    if (!Read(&n_bytes) || left() < n_bytes) return false;
    *text = {reinterpret_cast<const char*>(bytes_.data()) + position_, n_bytes};
    position_ += n_bytes;
    return true;
  }
  bool Skip(uint64_t n_bytes) {
    if (left() < n_bytes) return false;
    position_ += n_bytes;
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

class Scan {
 public:
  Scan(const std::string& path, std::span<const uint8_t> bytes)
      : path_(path), n_file_bytes_(bytes.size()), cursor_(bytes) {}

  Status Run() {
    if (Status s = CheckHeader(); !s.ok()) return s;
    for (uint64_t i = 0; i < n_keys_; ++i) {
      if (Status s = CheckKeyValue(i); !s.ok()) return s;
    }
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      if (Status s = CheckTensorInfo(i); !s.ok()) return s;
    }
    return CheckDataFits();
  }

 private:
  Status Damaged(const std::string& what) const {
    return Corrupt(path_ + ": " + what + "; fetch the file again");
  }
  Status EndsIn(const std::string& part) const {
    return Damaged("the file ends inside " + part + " (it has " +
                   std::to_string(n_file_bytes_) + " bytes)");
  }

  Status CheckHeader() {
    std::array<char, 4> magic = {};
    if (!cursor_.Read(&magic) ||
        std::memcmp(magic.data(), GGUF_MAGIC, magic.size()) != 0) {
      return Corrupt(path_ + ": is not a GGUF file (it starts with " +
                     Quoted({magic.data(), magic.size()}) +
                     "); give a GGUF model file");
    }
    uint32_t version = 0;
    if (!cursor_.Read(&version) || !cursor_.Read(&n_tensors_) ||
        !cursor_.Read(&n_keys_)) {
      return EndsIn("its header");
    }
    if ((version & 0xffff) == 0 && version != 0) {
      return Corrupt(path_ +
                     ": is a big-endian GGUF file; convert it to "
                     "little-endian");
    }
    if (version < kVersionMin || version > kVersionMax) {
      return Corrupt(path_ + ": has GGUF version " + std::to_string(version) +
                     ", but 2 and 3 can be read; convert the model again");
    }
    if (n_keys_ > cursor_.left() / kKeyValueBytesMin) {
      return Damaged("claims " + std::to_string(n_keys_) +
                     " metadata keys, more than its " +
                     std::to_string(n_file_bytes_) + " bytes have room for");
    }
    if (n_tensors_ > cursor_.left() / kTensorInfoBytesMin) {
      return Damaged("claims " + std::to_string(n_tensors_) +
                     " tensors, more than its " +
                     std::to_string(n_file_bytes_) + " bytes have room for");
    }
    return {};
  }

  Status CheckKeyValue(uint64_t index) {
    std::string_view key;
    uint32_t type = 0;
    if (!cursor_.ReadString(&key)) {
      return EndsIn("metadata key " + std::to_string(index));
    }
    const std::string name = "key " + Quoted(key);
    if (key.empty() || key.find('\0') != key.npos) {
      return Damaged("metadata key " + std::to_string(index) +
                     " has the name " + Quoted(key) +
                     ", but must have one without NUL bytes");
    }
    if (!keys_.insert(key).second) return Damaged(name + " appears twice");
    if (!cursor_.Read(&type)) return EndsIn(name);

    if (key == GGUF_KEY_GENERAL_ALIGNMENT) return CheckAlignment(type);
    if (type == GGUF_TYPE_ARRAY) return CheckArray(name);
    if (type == GGUF_TYPE_STRING) {
      std::string_view text;
      return cursor_.ReadString(&text) ? Status() : EndsIn(name);
    }
    if (ScalarBytes(type) == 0) {
      return Damaged(name + " has the unknown type " + std::to_string(type));
    }
    if (type == GGUF_TYPE_FLOAT32) return CheckFinite<float>(name);
    if (type == GGUF_TYPE_FLOAT64) return CheckFinite<double>(name);
    return cursor_.Skip(ScalarBytes(type)) ? Status() : EndsIn(name);
  }

  // No setting of a model is infinite or NaN, and such a value would pass
  // every later comparison unseen.
  template <typename T>
  Status CheckFinite(const std::string& name) {
    T value = 0;
    if (!cursor_.Read(&value)) return EndsIn(name);
    if (!std::isfinite(value)) return Damaged(name + " is not a finite number");
    return {};
  }

  Status CheckAlignment(uint32_t type) {
    uint32_t alignment = 0;
    const std::string name = "key '" GGUF_KEY_GENERAL_ALIGNMENT "'";
    if (type != GGUF_TYPE_UINT32) {
      return Damaged(name + " has type " + std::to_string(type) +
                     ", but must be a u32, type " +
                     std::to_string(GGUF_TYPE_UINT32));
    }
    if (!cursor_.Read(&alignment)) return EndsIn(name);
    if (alignment < kAlignmentMin || (alignment & (alignment - 1)) != 0) {
      return Damaged(name + " is " + std::to_string(alignment) +
                     ", but must be a power of two from 8");
    }
    alignment_ = alignment;
    return {};
  }

  Status CheckArray(const std::string& name) {
    uint32_t type = 0;
    uint64_t n_elements = 0;
    if (!cursor_.Read(&type) || !cursor_.Read(&n_elements)) return EndsIn(name);
    if (type == GGUF_TYPE_STRING) {
      for (uint64_t i = 0; i < n_elements; ++i) {
        std::string_view text;
        if (!cursor_.ReadString(&text)) return EndsIn(name);
      }
      return {};
    }
    const uint64_t element_bytes = ScalarBytes(type);
    if (element_bytes == 0) {
      return Damaged(name + " is an array of the unknown type " +
                     std::to_string(type));
    }
    if (n_elements > cursor_.left() / element_bytes) return EndsIn(name);
    cursor_.Skip(n_elements * element_bytes);
    return {};
  }

  Status CheckTensorInfo(uint64_t index) {
    std::string_view tensor_name;
    uint32_t n_dims = 0;
    uint32_t type = 0;
    uint64_t offset = 0;
    if (!cursor_.ReadString(&tensor_name)) {
      return EndsIn("the name of tensor " + std::to_string(index));
    }
    const std::string name = "tensor " + Quoted(tensor_name);
    if (tensor_name.size() >= GGML_MAX_NAME ||
        tensor_name.find('\0') != tensor_name.npos) {
      return Damaged("tensor " + std::to_string(index) + " has the name " +
                     Quoted(tensor_name) +
                     ", but must have one without NUL bytes, of at most " +
                     std::to_string(GGML_MAX_NAME - 1));
    }
    if (!tensor_names_.insert(tensor_name).second) {
      return Damaged(name + " appears twice");
    }
    if (!cursor_.Read(&n_dims)) return EndsIn(name);
    if (n_dims > GGML_MAX_DIMS) {
      return Damaged(name + " has " + std::to_string(n_dims) +
                     " dimensions, but at most " +
                     std::to_string(GGML_MAX_DIMS) + " are possible");
    }
    std::array<uint64_t, GGML_MAX_DIMS> shape = {1, 1, 1, 1};
    for (uint32_t i = 0; i < n_dims; ++i) {
      if (!cursor_.Read(&shape[i])) return EndsIn(name);
    }
    if (!cursor_.Read(&type) || !cursor_.Read(&offset)) return EndsIn(name);
    return PlaceTensor(name, shape, type, offset);
  }

  // Adds the tensor to the data section, which holds all tensors in order.
  Status PlaceTensor(const std::string& name,
                     const std::array<uint64_t, GGML_MAX_DIMS>& shape,
                     uint32_t type, uint64_t offset) {
    if (!IsStorageType(type)) {
      return Corrupt(path_ + ": " + name + " has type " + GgufTypeName(type) +
                     ", which cannot be read; convert the model again");
    }
    const auto ggml = static_cast<ggml_type>(type);
    const auto block = static_cast<uint64_t>(ggml_blck_size(ggml));
    if (shape[0] % block != 0) {
      return Damaged(name + " has rows of " + std::to_string(shape[0]) +
                     " elements, but " + GgufTypeName(type) + " stores " +
                     std::to_string(block) + " together");
    }
    // No tensor is larger than the file, so no product below overflows.
    uint64_t n_bytes = ggml_type_size(ggml);
    for (size_t i = 0; i < shape.size(); ++i) {
      const uint64_t factor = i == 0 ? shape[0] / block : shape[i];
      if (factor == 0) return Damaged(name + " has no elements");
      if (factor > n_file_bytes_ / n_bytes) {
        return Damaged(name + " is larger than the file (" +
                       std::to_string(n_file_bytes_) + " bytes)");
      }
      n_bytes *= factor;
    }
    if (offset != n_data_bytes_) {
      return Damaged(name + " lies at offset " + std::to_string(offset) +
                     " of the data instead of " +
                     std::to_string(n_data_bytes_));
    }
    last_tensor_ = name;
    data_end_ = n_data_bytes_ + n_bytes;
    n_data_bytes_ = PadUp(data_end_);
    // The sum of many tensors that fit singly must not wrap around either.
    if (data_end_ > n_file_bytes_) return DataMissing();
    return {};
  }

  Status CheckDataFits() const {
    if (n_tensors_ == 0) return {};
    const uint64_t data_begin = PadUp(cursor_.position());
    if (data_begin > n_file_bytes_ || data_end_ > n_file_bytes_ - data_begin) {
      return DataMissing();
    }
    return {};
  }

  Status DataMissing() const {
    return Damaged("the file ends before the data of " + last_tensor_ +
                   " is complete (it has " + std::to_string(n_file_bytes_) +
                   " bytes, and its tensors alone take " +
                   std::to_string(data_end_) + ")");
  }

  uint64_t PadUp(uint64_t offset) const {
    return (offset + alignment_ - 1) / alignment_ * alignment_;
  }

  const std::string& path_;
  const uint64_t n_file_bytes_;
  Cursor cursor_;
  uint64_t n_keys_ = 0;
  uint64_t n_tensors_ = 0;
  uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
  uint64_t data_end_ = 0;      // of the tensors so far, within the data
  uint64_t n_data_bytes_ = 0;  // the same, padded: where the next one lies
  std::string last_tensor_;
  std::unordered_set<std::string_view> keys_;
  std::unordered_set<std::string_view> tensor_names_;
};

}  // namespace

Status CheckGguf(const std::string& path, std::span<const uint8_t> bytes) {
  return Scan(path, bytes).Run();
}

}  // namespace lkv
