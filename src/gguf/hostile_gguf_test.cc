// What a file may say to a reader that believes it. Run under ASan and UBSan.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "gguf/gguf_file.h"
#include "testing/gguf_bytes.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 63;

// A file with one f32 tensor "t" [4, 2] and the given alignment.
GgufBytes Sound(uint32_t alignment = 32) {
  GgufBytes bytes;
  bytes.Header(1, 1)
      .Key("general.alignment", GgufBytes::kU32, alignment)
      .Tensor("t", {4, 2}, GgufBytes::kTensorF32, 0)
      .Pad(alignment == 0 ? 1 : alignment);
  for (int i = 0; i < 8; ++i) bytes.Put(1.0f);
  return bytes;
}

GgufBytes OneTensor(std::vector<uint64_t> shape, uint32_t type,
                    uint64_t offset = 0) {
  GgufBytes bytes;
  bytes.Header(1, 0).Tensor("t", std::move(shape), type, offset).Pad();
  for (int i = 0; i < 64; ++i) bytes.Put(1.0f);
  return bytes;
}

struct HostileFile {
  const char* name;
  std::string bytes;
  const char* expected;  // part of the message
};

std::vector<HostileFile> HostileFiles() {
  auto make = [] { return GgufBytes(); };
  return {
      {"Html", "<!DOCTYPE html><html>", "is not a GGUF file"},
      {"Zip", "PK\x03\x04 zip", "is not a GGUF file"},
      {"ThreeBytes", "GGU", "is not a GGUF file"},
      {"MagicOnly", "GGUF", "ends inside its header"},
      {"Version0", make().Raw("GGUF").Put(0u).Put(kHuge).Put(kHuge).bytes(),
       "version 0"},
      {"Version1", make().Raw("GGUF").Put(1u).Put(0ull).Put(0ull).bytes(),
       "version 1"},
      {"Version99", make().Raw("GGUF").Put(99u).Put(0ull).Put(0ull).bytes(),
       "version 99"},
      {"BigEndian",
       make().Raw("GGUF").Put(0x03000000u).Put(0ull).Put(0ull).bytes(),
       "big-endian"},
      {"HugeTensorCount", make().Header(kHuge, 0).bytes(), "tensors, more"},
      {"HugeKeyCount", make().Header(0, kHuge).bytes(), "keys, more"},
      {"KeyCountBeyondFile", make().Header(0, 3).bytes(), "keys, more"},
      {"HugeKeyLength",
       make().Header(0, 1).Put(kHuge).Raw("0123456789").bytes(),
       "ends inside metadata key 0"},
      {"KeyLengthWrapsAround",
       make().Header(0, 1).Put(~uint64_t{0}).Raw("0123456789").bytes(),
       "ends inside metadata key 0"},
      {"EmptyKey", make().Header(0, 1).Key("", GgufBytes::kU64, 1ull).bytes(),
       "metadata key 0 has the name ''"},
      {"KeyTwice",
       make()
           .Header(0, 2)
           .Key("k", GgufBytes::kU64, 1ull)
           .Key("k", GgufBytes::kU64, 1ull)
           .bytes(),
       "key 'k' appears twice"},
      {"UnknownKeyType",
       make()
           .Header(0, 1)
           .Key("k", static_cast<GgufBytes::Type>(77), 1ull)
           .bytes(),
       "key 'k' has the unknown type 77"},
      {"NegativeKeyType",
       make()
           .Header(0, 1)
           .Key("k", static_cast<GgufBytes::Type>(0xffffffff), 1ull)
           .bytes(),
       "unknown type"},
      {"ControlCharactersInKey",
       make()
           .Header(0, 1)
           .Key("\x1b[31mred\n", static_cast<GgufBytes::Type>(77), 1ull)
           .bytes(),
       "'\\x1b[31mred\\x0a'"},
      {"NanSetting",
       make()
           .Header(0, 1)
           .Key("eps", GgufBytes::kF32, std::nanf(""))
           .Put(0ull)
           .bytes(),
       "key 'eps' is not a finite number"},
      {"InfiniteSetting",
       make()
           .Header(0, 1)
           .Key("base", GgufBytes::kF64,
                std::numeric_limits<double>::infinity())
           .bytes(),
       "key 'base' is not a finite number"},
      {"HugeStringValue",
       make().Header(0, 1).Key("k", GgufBytes::kString, kHuge).bytes(),
       "ends inside key 'k'"},
      {"HugeArray",
       make().Header(0, 1).ArrayKey("k", GgufBytes::kU64, kHuge).bytes(),
       "ends inside key 'k'"},
      {"ArrayBytesWrapAround",
       make()
           .Header(0, 1)
           .ArrayKey("k", GgufBytes::kU64, (uint64_t{1} << 61) + 1)
           .Put(1ull)
           .bytes(),
       "ends inside key 'k'"},
      {"HugeStringArray",
       make().Header(0, 1).ArrayKey("k", GgufBytes::kString, kHuge).bytes(),
       "ends inside key 'k'"},
      {"ArrayOfArrays",
       make().Header(0, 1).ArrayKey("k", GgufBytes::kArray, 1).bytes(),
       "array of the unknown type 9"},
      {"AlignmentZero", Sound(0).bytes(), "power of two"},
      {"AlignmentOne", Sound(1).bytes(), "power of two"},
      {"AlignmentThree", Sound(24).bytes(), "power of two"},
      {"AlignmentBeyondFile",
       make()
           .Header(1, 1)
           .Key("general.alignment", GgufBytes::kU32, 0x80000000u)
           .Tensor("t", {4}, 0, 0)
           .Pad()
           .Raw(std::string(64, '\0'))
           .bytes(),
       "before the data of tensor 't'"},
      {"AlignmentAsText",
       make().Header(0, 1).StringKey("general.alignment", "32").bytes(),
       "key 'general.alignment' has type 8, but must be a u32"},
      {"TensorNameTooLong",
       make()
           .Header(1, 0)
           .Tensor(std::string(64, 'x'), {4}, 0, 0)
           .Pad()
           .Raw(std::string(64, '\0'))
           .bytes(),
       "of at most 63"},
      {"TensorNameWithNul",
       make()
           .Header(1, 0)
           .Tensor({"a\0b", 3}, {4}, 0, 0)
           .Pad()
           .Raw(std::string(64, '\0'))
           .bytes(),
       "has the name 'a\\x00b'"},
      {"TensorTwice",
       make()
           .Header(2, 0)
           .Tensor("t", {4}, 0, 0)
           .Tensor("t", {4}, 0, 32)
           .Pad()
           .Raw(std::string(64, '\0'))
           .bytes(),
       "tensor 't' appears twice"},
      {"FiveDimensions", OneTensor({2, 2, 2, 2, 2}, 0).bytes(),
       "has 5 dimensions, but at most 4"},
      {"NoElements", OneTensor({4, 0}, 0).bytes(), "no elements"},
      {"NegativeDimension", OneTensor({~uint64_t{0}}, 0).bytes(),
       "larger than the file"},
      {"ShapeWrapsAroundToZero",
       OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0).bytes(),
       "larger than the file"},
      {"ShapeWrapsAroundToSmall",
       OneTensor({(uint64_t{1} << 62) + 1, 4}, 0).bytes(),
       "larger than the file"},
      {"RowIsNoWholeBlock", OneTensor({33}, GgufBytes::kTensorQ4_0).bytes(),
       "rows of 33 elements, but Q4_0 stores 32"},
      {"UnknownTensorType", OneTensor({32}, 200).bytes(), "type number 200"},
      {"NegativeTensorType", OneTensor({32}, 0xffffffff).bytes(),
       "cannot be read"},
      {"RemovedTensorType", OneTensor({32}, 4).bytes(), "type number 4"},
      {"ActivationTensorType", OneTensor({256}, 15).bytes(), "Q8_K"},
      {"OffsetBeyondFile", OneTensor({4}, 0, kHuge).bytes(),
       "lies at offset 9223372036854775808"},
      {"OffsetOfAnother", OneTensor({4}, 0, 32).bytes(), "lies at offset 32"},
      {"DataMissing",
       make().Header(1, 0).Tensor("t", {4, 4}, 0, 0).Pad().bytes(),
       "before the data of tensor 't' is complete (it has 96 bytes, and its "
       "tensors alone take 64"},
  };
}

class HostileGgufTest : public ::testing::TestWithParam<HostileFile> {};

TEST_P(HostileGgufTest, IsRefusedWithItsReason) {
  TempFolder folder;
  const std::string path = folder.File("hostile.gguf");
  WriteBytes(path, GetParam().bytes);
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kCorrupt);
  const std::string message(file.status().message());
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
  EXPECT_EQ(message.find(path + ": "), 0u) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no remedy: " << message;
}

INSTANTIATE_TEST_SUITE_P(Table, HostileGgufTest,
                         ::testing::ValuesIn(HostileFiles()),
                         [](const auto& info) { return info.param.name; });

TEST(TruncatedGgufTest, EveryShorterLengthIsRefused) {
  TempFolder folder;
  const std::string path = folder.File("cut.gguf");
  const std::string sound = Sound().bytes();
  WriteBytes(path, sound);
  ASSERT_TRUE(GgufFile::Open(path).ok());
  for (size_t n = 0; n < sound.size(); ++n) {
    WriteBytes(path, sound.substr(0, n));
    Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
    ASSERT_FALSE(file.ok()) << n;
    EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << n;
  }
}

// Every byte replaced by values that often break readers: whatever opens must
// be readable to its last byte.
TEST(TruncatedGgufTest, OneWrongByteNeverReachesOutsideTheFile) {
  TempFolder folder;
  const std::string path = folder.File("flipped.gguf");
  const std::string sound = Sound().bytes();
  for (size_t i = 0; i < sound.size(); ++i) {
    for (uint8_t value : {0x00, 0x7f, 0xff}) {
      std::string bytes = sound;
      bytes[i] = static_cast<char>(value);
      WriteBytes(path, bytes);
      Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
      if (!file.ok()) continue;
      for (const GgufTensor& tensor : (*file)->tensors()) {
        volatile uint8_t last = tensor.data[tensor.n_bytes - 1];
        (void)last;
      }
    }
  }
}

// --- Things that are no files ------------------------------------------------

Status OpenStatus(const std::string& path) {
  return GgufFile::Open(path).status();
}

TEST(NotAFileTest, AMissingFileIsNotFound) {
  TempFolder folder;
  EXPECT_EQ(OpenStatus(folder.File("absent")).code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenStatus("").code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenStatus(std::string(10000, 'x')).code(), StatusCode::kNotFound);
}

TEST(NotAFileTest, AFolderIsExplained) {
  TempFolder folder;
  Status status = OpenStatus(folder.File("."));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("is a folder"), std::string_view::npos);
}

TEST(NotAFileTest, AnEmptyFileIsExplained) {
  TempFolder folder;
  WriteBytes(folder.File("empty"), "");
  EXPECT_NE(OpenStatus(folder.File("empty")).message().find("is empty"),
            std::string_view::npos);
}

TEST(NotAFileTest, AFifoWithoutAWriterDoesNotBlock) {
  TempFolder folder;
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  EXPECT_EQ(OpenStatus(folder.File("fifo")).code(), StatusCode::kCorrupt);
  EXPECT_EQ(OpenStatus("/dev/null").code(), StatusCode::kCorrupt);
}

TEST(NotAFileTest, AForbiddenFileIsNotFound) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  TempFolder folder;
  WriteBytes(folder.File("secret"), Sound().bytes());
  ASSERT_EQ(chmod(folder.File("secret").c_str(), 0), 0);
  EXPECT_EQ(OpenStatus(folder.File("secret")).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lkv
