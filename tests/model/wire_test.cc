#include "model/wire.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/os/os.h"
#include "tests/model/onnx_writer.h"

namespace evn {
namespace {

using test::Proto;
using wire::Bytes;
using wire::Count;
using wire::Field;
using wire::Kind;

// The bytes keep their exact size; `file` looks at them.
struct Block {
  explicit Block(const std::string& bytes, std::uint64_t depth = 64, std::uint64_t deadline = UINT64_MAX)
      : memory(test::exact_copy(bytes)),
        range{static_cast<const std::uint8_t*>(memory.get()), static_cast<const std::uint8_t*>(memory.get()) + bytes.size()},
        file(range, "t.onnx", depth, deadline) {}
  std::shared_ptr<const void> memory;
  Bytes range;
  wire::File file;
};

std::vector<Field> fields_of(const std::string& bytes) {
  static std::vector<std::unique_ptr<Block>> kept;
  kept.push_back(std::make_unique<Block>(bytes));
  std::vector<Field> fields;
  wire::Cursor cursor(kept.back()->file, kept.back()->range, "Message");
  for (Field f; cursor.next(&f);) fields.push_back(f);
  return fields;
}

evn_status status_of(const std::string& bytes) {
  try {
    fields_of(bytes);
  } catch (const Error& e) {
    return e.status;
  }
  return EVN_OK;
}

TEST(Wire, ReadsEveryWireType) {
  const auto fields = fields_of(Proto().varint(1, -1).fixed32(2, 1.5f).fixed64(3, 2.5).bytes(536870911, "abc").str());
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields[0].as_int64(), -1);
  EXPECT_EQ(fields[0].as_int32(), -1);
  EXPECT_EQ(fields[1].as_float(), 1.5f);
  EXPECT_EQ(fields[2].as_double(), 2.5);
  EXPECT_EQ(fields[3].number, 536870911u);
  EXPECT_EQ(fields[3].bytes.text(), "abc");
}

TEST(Wire, H04_VarintsEndWithinTenBytes) {
  const auto value = [](const std::string& varint) { return fields_of("\x08" + varint).at(0).value; };
  EXPECT_EQ(value("\x01"), 1u);
  EXPECT_EQ(value(std::string("\x81\x00", 2)), 1u);  // over-long, as protobuf accepts
  EXPECT_EQ(value(std::string("\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10)), 1u);
  EXPECT_EQ(value("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), UINT64_MAX);
  EXPECT_EQ(value("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), UINT64_MAX);                           // bits beyond 64 fall away
  EXPECT_EQ(status_of("\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), EVN_ERROR_INVALID_MODEL);  // 11 bytes
  EXPECT_EQ(status_of("\x08"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x08\x80"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x80"), EVN_ERROR_INVALID_MODEL);
}

TEST(Wire, H05_LengthsStayInsideTheMessage) {
  EXPECT_EQ(status_of(std::string("\x0a\x00", 2)), EVN_OK);
  EXPECT_EQ(status_of("\x0a\x01"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x0a" + Proto::encode_varint((1ull << 32) + 3) + "abc"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x0a" + Proto::encode_varint(1ull << 63) + "abc"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x0a" + Proto::encode_varint(UINT64_MAX) + "abc"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of("\x0d"
                      "abc"),
            EVN_ERROR_INVALID_MODEL);  // fixed32 cut
  EXPECT_EQ(status_of("\x09"
                      "abcdefg"),
            EVN_ERROR_INVALID_MODEL);  // fixed64 cut
}

TEST(Wire, H07_TagsOutsideTheFormatAreRefused) {
  for (const unsigned type : {3u, 4u, 6u, 7u})
    EXPECT_EQ(status_of(Proto().tag(1, type).raw("\x01\x01").str()), EVN_ERROR_INVALID_MODEL) << type;
  EXPECT_EQ(status_of(std::string("\x00\x01", 2)), EVN_ERROR_INVALID_MODEL);           // field 0
  EXPECT_EQ(status_of(Proto().varint(1ull << 29, 1).str()), EVN_ERROR_INVALID_MODEL);  // field 2^29
  EXPECT_EQ(status_of(Proto().varint(19000, 1).varint(19999, 1).str()), EVN_OK);       // reserved, harmless
}

struct Numbers {
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
};
constexpr wire::Row<Numbers> kRows[] = {
    {{1, "ints", Kind::kVarints, Count::kMany}, [](Numbers& n, const Field& f) { n.ints.push_back(f.as_int64()); }},
    {{2, "floats", Kind::kFixed32s, Count::kMany}, [](Numbers& n, const Field& f) { n.floats.push_back(f.as_float()); }},
    {{3, "once", Kind::kVarint, Count::kOnce}, nullptr},
};

Numbers read_numbers(const std::string& bytes, std::uint64_t depth = 64, std::uint64_t deadline = UINT64_MAX) {
  Block block(bytes, depth, deadline);
  Numbers numbers;
  wire::read_message(block.file, block.range, "Numbers", kRows, numbers);
  return numbers;
}

std::string message_of(const std::string& bytes) {
  try {
    read_numbers(bytes);
  } catch (const Error& e) {
    return e.message;
  }
  return "";
}

TEST(Wire, H10_RepeatedNumbersMayBePackedOrNot) {
  const std::vector<std::int64_t> want = {1, -2, 300};
  const std::string packed =
      Proto::encode_varint(1) + Proto::encode_varint(static_cast<std::uint64_t>(-2)) + Proto::encode_varint(300);
  EXPECT_EQ(read_numbers(Proto().varint(1, 1).varint(1, -2).varint(1, 300).str()).ints, want);
  EXPECT_EQ(read_numbers(Proto().bytes(1, packed).str()).ints, want);
  EXPECT_EQ(read_numbers(Proto().varint(1, 1).varint(1, -2).bytes(1, Proto::encode_varint(300)).str()).ints, want);
  EXPECT_EQ(read_numbers(Proto().bytes(2, test::bytes_of(std::vector<float>{1, 2})).fixed32(2, 3).str()).floats,
            (std::vector<float>{1, 2, 3}));
  EXPECT_NE(message_of(Proto().bytes(2, "abcde").str()).find("Numbers.floats at byte 6: a number is cut"), std::string::npos);
  EXPECT_NE(message_of(Proto().bytes(1, "\x80").str()).find("Numbers.ints"), std::string::npos);
}

TEST(Wire, ErrorsNameFileMessageFieldAndOffset) {
  EXPECT_EQ(message_of(Proto().varint(1, 5).fixed32(3, 0).str()), "t.onnx: Numbers.once at byte 2: has the wrong wire type");
  EXPECT_EQ(message_of(Proto().varint(3, 5).varint(3, 5).str()), "t.onnx: Numbers.once at byte 2: is there twice");
}

TEST(Wire, UnknownFieldsArePassedOver) {
  EXPECT_EQ(read_numbers(Proto().bytes(99, "xyz").varint(1, 7).fixed64(98, 1).str()).ints, std::vector<std::int64_t>{7});
}

TEST(Wire, DepthAndTimeAreLimited) {
  EXPECT_THROW(read_numbers("", 0), Error);
  EXPECT_NO_THROW(read_numbers("", 1));
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += Proto().varint(1, 1).str();
  try {
    read_numbers(many, 64, 1);
    FAIL() << "a deadline in the past was not seen";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
}

}  // namespace
}  // namespace evn
