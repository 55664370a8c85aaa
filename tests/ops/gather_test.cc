// What picks and repeats elements: Gather, Transpose, Expand and Tile.
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kTable = f32({2, 3}, {1, 2, 3, 4, 5, 6});
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Gather, IndicesStandInPlaceOfTheAxis) {
  const auto rows = Op("Gather", 13).run({kTable, tensor<std::int64_t>({1, 2}, {1, -2})});
  EXPECT_EQ(rows[0].desc.shape, (Shape{1, 2, 3}));
  EXPECT_EQ(rows[0].floats(), (Floats{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(Op("Gather", 13).with("axis", -1).run({kTable, i32({2}, {2, 0})})[0].floats(), (Floats{3, 1, 6, 4}));
}

TEST(Gather, ScalarIndexRemovesTheAxis) {
  const auto y = Op("Gather", 13).with("axis", 1).run({kTable, tensor<std::int64_t>({}, {1})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2}));
  EXPECT_EQ(y[0].floats(), (Floats{2, 5}));
}

TEST(Gather, IndexOutsideTheAxisIsAnArgumentError) {
  for (const std::int64_t index : {std::int64_t{2}, std::int64_t{-3}, kMost, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(Op("Gather", 13).status({kTable, i64({index})}), EVN_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(Op("Gather", 13).status({f32({0, 3}, {}), i64({0})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("Gather", 13).run({f32({0, 3}, {}), i64({})})[0].desc.shape, (Shape{0, 3}));
}

TEST(Gather, AxisAndDtypeOfTheIndicesAreChecked) {
  EXPECT_EQ(Op("Gather", 13).with("axis", 2).status({kTable, i64({0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gather", 13).status({f32({}, {1}), i64({0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gather", 13).status({kTable, f32({1}, {0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gather", 13).with("axis", 1).infer({desc({-1, 4}), desc({-1, 2}, DType::kInt64)})[0], (Shape{-1, -1, 2}));
}

TEST(Transpose, ReversesTheAxesOrPermutesThem) {
  EXPECT_EQ(Op("Transpose", 13).run({kTable})[0].floats(), (Floats{1, 4, 2, 5, 3, 6}));
  const auto y = Op("Transpose", 13).with("perm", Ints{1, 2, 0}).run({tensor<std::uint8_t>({2, 1, 3}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(y[0].desc.shape, (Shape{1, 3, 2}));
  EXPECT_EQ(y[0].values<std::uint8_t>(), (std::vector<std::uint8_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Op("Transpose", 13).run({f32({}, {7})})[0].floats(), (Floats{7}));
  EXPECT_EQ(Op("Transpose", 13).run({f32({0, 2}, {})})[0].desc.shape, (Shape{2, 0}));
}

TEST(Transpose, PermMustNameEachAxisOnce) {
  for (const Ints& perm : {Ints{0}, Ints{0, 0}, Ints{0, 2}, Ints{0, 1, 2}, Ints{1, -1}}) {
    EXPECT_EQ(Op("Transpose", 13).with("perm", perm).status({kTable}), EVN_ERROR_INVALID_MODEL);
  }
  EXPECT_EQ(Op("Transpose", 13).with("perm", Ints{1, 0}).infer({desc({-1, 4})})[0], (Shape{4, -1}));
}

TEST(Expand, BroadcastsBothShapes) {
  const Tensor x = f32({3, 1}, {1, 2, 3});
  const auto y = Op("Expand", 13).run({x, i64({2, 1, 2})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3, 2}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(Op("Expand", 13).run({x, i64({1})})[0].desc.shape, (Shape{3, 1}));
  EXPECT_EQ(Op("Expand", 13).run({x, i64({0})})[0].desc.shape, (Shape{3, 0}));
}

TEST(Expand, ShapeMustBroadcastAndBeAList) {
  EXPECT_EQ(Op("Expand", 13).status({kTable, i64({2, 2})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("Expand", 13).status({kTable, i64({-1, 3})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Expand", 13).status({kTable, i32({2}, {2, 3})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Expand", 13).status({kTable, tensor<std::int64_t>({}, {2})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Expand, UnknownShapeListStillTellsTheRank) {
  EXPECT_EQ(Op("Expand", 13).infer({desc({2, 3, 1}), desc({2}, DType::kInt64)})[0], (Shape{-1, -1, -1}));
  EXPECT_TRUE(InferContext::is_unknown_rank(Op("Expand", 13).infer({desc({2}), desc({-1}, DType::kInt64)})[0]));
  const Tensor shape = i64({5, 1});
  EXPECT_EQ(Op("Expand", 13).infer({desc({-1, -1}), shape.desc}, {{}, known(shape)})[0], (Shape{5, -1}));
}

TEST(Tile, RepeatsAlongEachAxis) {
  const auto y = Op("Tile", 13).run({f32({2, 1}, {1, 2}), i64({2, 3})});
  EXPECT_EQ(y[0].desc.shape, (Shape{4, 3}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(Op("Tile", 13).run({kTable, i64({1, 0})})[0].desc.shape, (Shape{2, 0}));
}

TEST(Tile, RepeatsAreOneForEachAxisAndNotNegative) {
  EXPECT_EQ(Op("Tile", 13).status({kTable, i64({2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Tile", 13).status({kTable, i64({1, -1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Tile", 13).status({kTable, i64({1, kMost})}), EVN_ERROR_LIMIT);
  const Tensor repeats = i64({2, 3});
  EXPECT_EQ(Op("Tile", 13).infer({desc({-1, 4}), repeats.desc}, {{}, known(repeats)})[0], (Shape{-1, 12}));
  EXPECT_EQ(Op("Tile", 13).infer({desc({2, 4}), repeats.desc})[0], (Shape{-1, -1}));
}

}  // namespace
}  // namespace evn::test
