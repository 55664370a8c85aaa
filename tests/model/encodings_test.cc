// Every way in which a tensor's values may stand in a model, for every element type.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

// Where values of a type stand when they are not raw: the field, and how a number of it is written.
struct Encoding {
  int dtype;
  int field;
  enum Form { kVarint, kFloat, kDouble } form;
  std::size_t bytes;  // of one number
};
constexpr Encoding kEncodings[] = {
    {1, 4, Encoding::kFloat, 4},    {2, 5, Encoding::kVarint, 1},   {3, 5, Encoding::kVarint, 1},   {4, 5, Encoding::kVarint, 2},
    {5, 5, Encoding::kVarint, 2},   {6, 5, Encoding::kVarint, 4},   {7, 7, Encoding::kVarint, 8},   {9, 5, Encoding::kVarint, 1},
    {10, 5, Encoding::kVarint, 2},  {11, 10, Encoding::kDouble, 8}, {12, 11, Encoding::kVarint, 4}, {13, 11, Encoding::kVarint, 8},
    {16, 5, Encoding::kVarint, 2},  {17, 5, Encoding::kVarint, 1},  {18, 5, Encoding::kVarint, 1},  {19, 5, Encoding::kVarint, 1},
    {20, 5, Encoding::kVarint, 1},  {21, 5, Encoding::kVarint, 1},  {22, 5, Encoding::kVarint, 1},  {23, 5, Encoding::kVarint, 1},
    {24, 5, Encoding::kVarint, 1},  {25, 5, Encoding::kVarint, 1},  {26, 5, Encoding::kVarint, 1},  {14, 4, Encoding::kFloat, 4},
    {15, 10, Encoding::kDouble, 8},
};
constexpr bool is_signed(int dtype) { return dtype == 3 || dtype == 5 || dtype == 6 || dtype == 7; }

// Twelve numbers of a type, as the bytes of a tensor: small ones, and both ends of the range.
std::string raw_values(const Encoding& e) {
  std::string bytes;
  for (int i = 0; i < 12; ++i) {
    std::uint64_t v = static_cast<std::uint64_t>(e.dtype == 9 ? i % 2
                                                 : i == 5     ? -1
                                                 : i == 7     ? INT64_MIN >> (64 - 8 * e.bytes)
                                                              : 10 * i);
    if (e.form == Encoding::kFloat) v = std::bit_cast<std::uint32_t>(static_cast<float>(i) - 2.5f);
    if (e.form == Encoding::kDouble) v = std::bit_cast<std::uint64_t>(static_cast<double>(i) - 2.5);
    bytes.append(reinterpret_cast<const char*>(&v), e.bytes);
  }
  return bytes;
}

// Number `i` as the wire has it, without a tag.
std::string wire_number(const Encoding& e, const std::string& raw, int i) {
  const std::string bytes = raw.substr(static_cast<std::size_t>(i) * e.bytes, e.bytes);
  if (e.form != Encoding::kVarint) return bytes;
  std::uint64_t v = 0;
  std::memcpy(&v, bytes.data(), e.bytes);
  const int unused = 64 - 8 * static_cast<int>(e.bytes);
  if (is_signed(e.dtype)) v = static_cast<std::uint64_t>(static_cast<std::int64_t>(v << unused) >> unused);
  return Proto::encode_varint(v);
}
unsigned wire_type(const Encoding& e) { return e.form == Encoding::kVarint ? 0 : e.form == Encoding::kFloat ? 5 : 1; }

// The first `loose` numbers one by one, the others packed.
Proto typed(const Encoding& e, Proto tensor, const std::string& raw, int loose) {
  std::string packed;
  for (int i = 0; i < 12; ++i) {
    if (i < loose) {
      tensor.tag(static_cast<std::uint64_t>(e.field), wire_type(e)).raw(wire_number(e, raw, i));
    } else {
      packed += wire_number(e, raw, i);
    }
  }
  return packed.empty() ? tensor : tensor.bytes(static_cast<std::uint64_t>(e.field), packed);
}

Proto head(int dtype, std::int64_t elements) { return Proto().varint(1, elements).varint(2, dtype).bytes(8, "t"); }

std::string read_values(const Proto& tensor, int shift = 0) {
  OnnxWriter w;
  w.graph().bytes(2, std::string(static_cast<std::size_t>(shift), 'n'));
  const Model m = load_bytes(w.add_initializer(tensor).add_output("t", 0).serialize());
  const Weight& weight = *m.graph.values[0].constant;
  EXPECT_TRUE(weight.aligned);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight.data.get()) % dtype_alignment(weight.desc.dtype), 0u);
  return std::string(weight.as<char>(), weight.size_bytes);
}

TEST(Encodings, EveryTypeRawTypedPackedUnpackedAndMixed) {
  int types = 0;
  for (const Encoding& e : kEncodings) {
    const auto bits = static_cast<std::int64_t>(dtype_bits(static_cast<DType>(e.dtype)));
    const std::int64_t elements = is_complex(static_cast<DType>(e.dtype)) ? 6 : bits < 8 ? 12 * (8 / bits) : 12;
    const std::string raw = raw_values(e);
    for (const int loose : {0, 1, 5, 12})
      EXPECT_EQ(read_values(typed(e, head(e.dtype, elements), raw, loose)), raw) << e.dtype << ", " << loose;
    for (int shift = 0; shift < 8; ++shift)
      EXPECT_EQ(read_values(head(e.dtype, elements).bytes(9, raw), shift), raw) << e.dtype << ", " << shift;
    ++types;
  }
  int stored = 0;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) stored += dtype != kStr && dtype_bits(static_cast<DType>(dtype)) != 0;
  EXPECT_EQ(types, stored);
}

TEST(Encodings, OneNumberTooFewOrTooMany) {
  for (const Encoding& e : kEncodings) {
    const auto bits = static_cast<std::int64_t>(dtype_bits(static_cast<DType>(e.dtype)));
    const std::string raw = raw_values(e);
    if (is_complex(static_cast<DType>(e.dtype))) continue;  // of two numbers each
    for (const std::int64_t numbers : {11, 13}) {
      const std::int64_t elements = bits < 8 ? numbers * (8 / bits) : numbers;
      const auto status = [](const Proto& t) {
        return read_status(OnnxWriter().add_initializer(t).add_output("t", 0).serialize());
      };
      EXPECT_EQ(status(typed(e, head(e.dtype, elements), raw, 3)), EVN_ERROR_INVALID_MODEL) << e.dtype;
      EXPECT_EQ(status(head(e.dtype, elements).bytes(9, raw)), EVN_ERROR_INVALID_MODEL) << e.dtype;
    }
  }
}

// ---------------------------------------------------------------------------------------------- files above 2 and 4 GB --

// Memory that is taken page by page as it is touched.
std::shared_ptr<char> reserve(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  return std::shared_ptr<char>(static_cast<char*>(p), [bytes](char* q) { ::munmap(q, bytes); });
}

TEST(Encodings, AModelMayHaveMoreThanFourGigabytes) {
  constexpr std::int64_t kElements = 1'200'000'000;  // of float: 4.8 GB
  constexpr std::size_t kRaw = 4 * static_cast<std::size_t>(kElements);
  // The graph ends with the big tensor, whose bytes come last but for the last number of all.
  const std::string tensor_start = head(kF32, kElements).tag(9, 2).raw(Proto::encode_varint(kRaw)).str();
  OnnxWriter small;
  small.add_node("Identity", {"t"}, {"y"}).add_output("y");
  const std::string graph_start =
      small.graph().str() + Proto().tag(5, 2).raw(Proto::encode_varint(tensor_start.size() + kRaw)).str() + tensor_start;
  Proto start;
  start.varint(1, 8)
      .message(8, Proto().bytes(1, "").varint(2, 17))
      .bytes(6, "123")
      .tag(7, 2)
      .raw(Proto::encode_varint(graph_start.size() + kRaw));
  const std::string text = start.str() + graph_start;
  const std::size_t size = text.size() + kRaw;
  const std::shared_ptr<char> bytes = reserve(size + 64);
  ASSERT_NE(bytes, nullptr);
  // Where the values are aligned they stay in place, and nothing of them is touched.
  char* const begin = bytes.get() + (64 - text.size() % 64) % 64;
  std::memcpy(begin, text.data(), text.size());
  const float last = 1.5f;
  std::memcpy(begin + size - sizeof last, &last, sizeof last);
  const std::shared_ptr<const void> file(bytes, begin);
  LoadOptions options;
  options.limits.model_bytes = size - 1;
  EXPECT_THROW(load_onnx(file, size, options), Error);
  options.limits.model_bytes = size;
  const Model m = load_onnx(file, size, options);
  const Weight& t = *m.graph.values[0].constant;
  EXPECT_EQ(t.size_bytes, kRaw);
  EXPECT_EQ(t.as<float>()[kElements - 1], 1.5f);
  EXPECT_EQ(t.as<char>(), begin + text.size());
}

}  // namespace
}  // namespace evn
