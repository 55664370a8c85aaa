// Sparse tensors in models.
#include <gtest/gtest.h>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

using Ints = std::vector<std::int64_t>;

Proto sparse(const Proto& values, const Proto& indices, const Ints& dims) {
  Proto p;
  p.message(1, values).message(2, indices);
  for (const std::int64_t d : dims) p.varint(3, d);
  return p;
}
Proto values_of(const std::vector<float>& v) { return tensor_proto("w", kF32, {static_cast<std::int64_t>(v.size())}, bytes_of(v)); }
Proto indices_of(const Ints& dims, const Ints& v) { return tensor_proto("", kI64, dims, bytes_of(v)); }

// One float per position.
Proto linear(const Ints& positions, const Ints& dims) {
  std::vector<float> values;
  for (std::size_t i = 0; i < positions.size(); ++i) values.push_back(static_cast<float>(i + 1));
  return sparse(values_of(values), indices_of({static_cast<std::int64_t>(positions.size())}, positions), dims);
}

OnnxWriter model_of(const Proto& tensor) {
  OnnxWriter w;
  w.graph().message(15, tensor);
  return w.add_output("w", 0);
}
evn_status status_of(const Proto& tensor, const LoadOptions& options = {}) {
  return load_status(model_of(tensor).serialize(), options);
}

template <typename T = float>
std::vector<T> dense(const Proto& tensor) {
  const Model m = load_bytes(model_of(tensor).serialize());
  EXPECT_EQ(m.graph.values[0].name, "w");
  const Weight& w = *m.graph.values[0].constant;
  return std::vector<T>(w.as<T>(), w.as<T>() + w.size_bytes / sizeof(T));
}

TEST(Sparse, ListedElementsStandAmongZeros) {
  EXPECT_EQ(dense(linear({1, 4, 5}, {2, 3})), (std::vector<float>{0, 1, 0, 0, 2, 3}));
  EXPECT_EQ(dense(linear({}, {2, 2})), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(dense(linear({}, {0, 2})), (std::vector<float>{}));
}

TEST(Sparse, PositionsMayHaveAllDims) {
  EXPECT_EQ(dense(sparse(values_of({1, 2, 3}), indices_of({3, 2}, {0, 1, 1, 1, 1, 2}), {2, 3})),
            (std::vector<float>{0, 1, 0, 0, 2, 3}));
  EXPECT_EQ(dense(sparse(values_of({7}), indices_of({1, 1}, {2}), {4})), (std::vector<float>{0, 0, 7, 0}));
}

TEST(Sparse, ElementsOfAllWidths) {
  const std::string one(1, '\x11'), two("\x11\x22", 2), eight("abcdefgh", 8);
  EXPECT_EQ(dense<std::uint8_t>(sparse(tensor_proto("w", kU8, {1}, one), indices_of({1}, {2}), {3})),
            (std::vector<std::uint8_t>{0, 0, 0x11}));
  EXPECT_EQ(dense<std::uint16_t>(sparse(tensor_proto("w", kU16, {1}, two), indices_of({1}, {1}), {2})),
            (std::vector<std::uint16_t>{0, 0x2211}));
  EXPECT_EQ(dense<std::int64_t>(sparse(tensor_proto("w", kI64, {1}, eight), indices_of({1}, {0}), {2})),
            (std::vector<std::int64_t>{0x6867666564636261, 0}));
  constexpr int kUint4 = 21;
  EXPECT_EQ(dense<std::uint8_t>(sparse(tensor_proto("w", kUint4, {2}, "\x5a"), indices_of({2}, {1, 4}), {5})),
            (std::vector<std::uint8_t>{0xa0, 0x00, 0x05}));
}

TEST(Sparse, ItsTypeAndNameAreThoseOfAnInitializer) {
  OnnxWriter w = model_of(linear({0}, {2}));
  w.add_initializer("w", {1}, std::vector<float>{1});
  EXPECT_EQ(load_status(w.serialize()), EVN_ERROR_INVALID_MODEL);  // twice
  EXPECT_EQ(load_status(OnnxWriter(model_of(linear({0}, {2}))).add_input("w", kI64, {2}).serialize()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(Proto().varint(1, 1).varint(2, kF32).bytes(9, "abcd"), indices_of({1}, {0}), {1})),
            EVN_ERROR_INVALID_MODEL);  // no name
}

TEST(Sparse, AConstantMayBeSparse) {
  OnnxWriter w;
  const Attr value(Proto().bytes(1, "sparse_value").message(22, linear({2}, {3})).varint(20, 11));
  w.add_node("Constant", {}, {"y"}, {value}, "constant").add_output("y");
  Model m = load_bytes(w.serialize());
  validate_model(m, {});
  EXPECT_EQ(m.graph.values[0].constant->as<float>()[2], 1.0f);
  EXPECT_TRUE(m.graph.nodes.empty());
}

TEST(Sparse, H33_PositionsAreInsideSortedAndSingle) {
  EXPECT_EQ(status_of(linear({0, 5}, {2, 3})), EVN_OK);
  EXPECT_EQ(status_of(linear({0, 6}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({-1}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({INT64_MIN}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({INT64_MAX}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({3, 1}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({1, 1}, {2, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({0}, {0, 3})), EVN_ERROR_INVALID_MODEL);
  const auto pair = [](std::int64_t row, std::int64_t column) {
    return status_of(sparse(values_of({1}), indices_of({1, 2}, {row, column}), {2, 3}));
  };
  EXPECT_EQ(pair(1, 2), EVN_OK);
  EXPECT_EQ(pair(0, 3), EVN_ERROR_INVALID_MODEL);  // though row-major it would be inside
  EXPECT_EQ(pair(1, -1), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(pair(2, 0), EVN_ERROR_INVALID_MODEL);
}

TEST(Sparse, H33_PartsMustFitEachOther) {
  EXPECT_EQ(status_of(Proto()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), indices_of({2}, {0, 1}), {4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), indices_of({1, 2}, {0, 1}), {4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), indices_of({}, {0}), {4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), indices_of({1}, {0}), {})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), indices_of({1}, {0}), {-4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(tensor_proto("w", kF32, {1, 1}, "abcd"), indices_of({1}, {0}), {4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(sparse(values_of({1}), tensor_proto("", kI32, {1}, "\1\0\0\0"), {4})), EVN_ERROR_INVALID_MODEL);
}

TEST(Sparse, H33_ValuesAreNoStrings) {
  for (const bool is_empty : {false, true}) {
    Proto values;
    values.varint(1, is_empty ? 0 : 1).varint(2, kStr).bytes(8, "w");
    if (!is_empty) values.bytes(6, "a text that is no number");
    const Error e =
        read_error(model_of(sparse(values, indices_of({is_empty ? 0 : 1}, is_empty ? Ints{} : Ints{1}), {2})).serialize());
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
    EXPECT_NE(std::string(e.message).find("SparseTensorProto.values"), std::string::npos) << e.message;
    EXPECT_NE(std::string(e.message).find("are strings"), std::string::npos) << e.message;
  }
}

TEST(Sparse, H33_ItIsNotExternal) {
  Proto values;
  values.varint(1, 1).varint(2, kF32).bytes(8, "w").varint(14, 1).message(13, Proto().bytes(1, "location").bytes(2, "x.bin"));
  EXPECT_EQ(status_of(sparse(values, indices_of({1}, {0}), {1})), EVN_ERROR_INVALID_MODEL);
}

TEST(Sparse, AClaimOfManyElementsIsLimited) {
  EXPECT_EQ(status_of(linear({}, {INT64_MAX, 4})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({}, {1ll << 61, 1})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(linear({}, {1ll << 40})), EVN_ERROR_LIMIT);
  LoadOptions options;
  options.limits.tensor_bytes = 1000;
  EXPECT_EQ(status_of(linear({}, {200}), options), EVN_OK);
  EXPECT_EQ(status_of(linear({}, {300}), options), EVN_ERROR_LIMIT);
  EXPECT_EQ(status_of(linear({}, Ints(9, 1))), EVN_ERROR_LIMIT);
}

}  // namespace
}  // namespace evn
