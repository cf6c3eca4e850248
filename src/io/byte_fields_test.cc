#include "io/byte_fields.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(ByteFieldsTest, ReadsWhatWasAppended) {
  std::vector<uint8_t> bytes;
  AppendField(bytes, uint32_t{0x01020304});
  AppendField(bytes, std::string_view("novel"));
  AppendField(bytes, uint64_t{7});
  AppendField(bytes, std::string_view(""));
  AppendBytes(bytes, std::vector<uint8_t>{8, 9});
  EXPECT_EQ(bytes[0], 4) << "the lowest byte comes first";
  FieldReader fields(bytes);
  EXPECT_EQ(fields.Read<uint32_t>(), 0x01020304u);
  EXPECT_EQ(fields.ReadText(), "novel");
  EXPECT_EQ(fields.Read<uint64_t>(), 7u);
  EXPECT_EQ(fields.ReadText(), "");
  std::vector<uint8_t> raw(2);
  fields.ReadBytes(raw);
  EXPECT_EQ(raw, (std::vector<uint8_t>{8, 9}));
  EXPECT_TRUE(fields.ok());
  EXPECT_EQ(fields.n_left(), 0u);
}

TEST(ByteFieldsTest, RemembersThatBytesWereMissing) {
  const std::vector<uint8_t> bytes = {1, 2, 3};
  FieldReader fields(bytes);
  EXPECT_EQ(fields.Read<uint32_t>(), 0u);
  EXPECT_FALSE(fields.ok());
  EXPECT_EQ(fields.Read<uint8_t>(), 0u) << "nothing is read behind a gap";
  std::vector<uint8_t> raw(1);
  fields.ReadBytes(raw);
  EXPECT_EQ(raw[0], 0u);
}

TEST(ByteFieldsTest, ReadsNoTextLongerThanTheBytes) {
  std::vector<uint8_t> bytes;
  AppendField(bytes, uint32_t{1000});
  bytes.push_back('x');
  FieldReader fields(bytes);
  EXPECT_EQ(fields.ReadText(), "");
  EXPECT_FALSE(fields.ok());
}

}  // namespace
}  // namespace lkv
