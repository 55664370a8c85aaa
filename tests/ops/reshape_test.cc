// The same elements under another shape, and shapes as values: Reshape, Flatten, Squeeze, Unsqueeze, Shape, Size,
// Constant, ConstantOfShape.
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test::reshape_test {
namespace {

const Tensor kTable = f32({2, 6}, counting(12));

Shape reshaped(const Tensor& x, const Ints& dims, int allow_zero = 0) {
  return Op("Reshape", 14).with("allowzero", allow_zero).run({x, i64(dims)})[0].desc.shape;
}

evn_status reshape_status(const Tensor& x, const Ints& dims) { return Op("Reshape", 13).status({x, i64(dims)}); }

TEST(Reshape, ZeroCopiesAndMinusOneTakesWhatIsLeft) {
  EXPECT_EQ(reshaped(kTable, {3, -1}), (Shape{3, 4}));
  EXPECT_EQ(reshaped(kTable, {0, 2, -1}), (Shape{2, 2, 3}));
  EXPECT_EQ(reshaped(f32({1}, {4}), {}), (Shape{}));
  EXPECT_EQ(Op("Reshape", 13).run({kTable, i64({12})})[0].floats(), counting(12));
}

TEST(Reshape, WithAllowzeroZeroIsZero) {
  const Tensor empty = f32({0, 3}, {});
  EXPECT_EQ(reshaped(empty, {3, 0}, 1), (Shape{3, 0}));
  EXPECT_EQ(reshaped(empty, {0, 5}), (Shape{0, 5}));
  EXPECT_EQ(Op("Reshape", 14).with("allowzero", 1).status({kTable, i64({0, 6})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Reshape, CountsMustBeEqual) {
  for (const Ints& dims : {Ints{5, -1}, Ints{11}, Ints{-1, -1}, Ints{-2, 6}, Ints{12, 1, 0}, Ints{}}) {
    EXPECT_EQ(reshape_status(kTable, dims), EVN_ERROR_INVALID_MODEL);
  }
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(reshape_status(kTable, {huge, huge, -1}), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("Reshape", 13).status({kTable, i32({1}, {12})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Reshape, UnknownDimsCancelWhereTheyAreCopied) {
  const auto inferred = [](const Shape& x, const Tensor& dims) {
    return Op("Reshape", 13).infer({desc(x), dims.desc}, {{}, known(dims)})[0];
  };
  EXPECT_EQ(inferred({-1, 4}, i64({0, -1, 2})), (Shape{-1, 2, 2}));
  EXPECT_EQ(inferred({-1, 4}, i64({-1, 2})), (Shape{-1, 2}));
  EXPECT_EQ(inferred({-1, -1, 8}, i64({0, 0, 2, -1})), (Shape{-1, -1, 2, 4}));
  EXPECT_THROW(inferred({-1, 4}, i64({0, -1, 3})), Error);
}

TEST(Reshape, UnknownListTellsTheRankAtMost) {
  EXPECT_EQ(Op("Reshape", 13).infer({desc({2, 3}), desc({3}, DType::kInt64)})[0], (Shape{-1, -1, -1}));
  EXPECT_TRUE(InferContext::is_unknown_rank(Op("Reshape", 13).infer({desc({2, 3}), desc({-1}, DType::kInt64)})[0]));
  EXPECT_THROW(Op("Reshape", 13).infer({desc({2, 3}), desc({kMaxRank + 1}, DType::kInt64)}), Error);
}

TEST(Flatten, HasTwoAxes) {
  const Tensor x = f32({2, 3, 2}, counting(12));
  const auto flat = [&](int axis) { return Op("Flatten", 13).with("axis", axis).run({x})[0].desc.shape; };
  EXPECT_EQ(flat(0), (Shape{1, 12}));
  EXPECT_EQ(flat(1), (Shape{2, 6}));
  EXPECT_EQ(flat(3), (Shape{12, 1}));
  EXPECT_EQ(flat(-1), (Shape{6, 2}));
  EXPECT_EQ(Op("Flatten", 13).with("axis", 4).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Flatten", 13).infer({desc({-1, 3, 2})})[0], (Shape{-1, 6}));
}

TEST(Squeeze, DropsTheAxesListedOrAllOfOne) {
  const Tensor x = f32({1, 2, 1}, {1, 2});
  EXPECT_EQ(Op("Squeeze", 11).with("axes", Ints{0}).run({x})[0].desc.shape, (Shape{2, 1}));
  EXPECT_EQ(Op("Squeeze", 13).run({x, i64({-1})})[0].desc.shape, (Shape{1, 2}));
  EXPECT_EQ(Op("Squeeze", 13).run({x})[0].desc.shape, (Shape{2}));
  EXPECT_EQ(Op("Squeeze", 13).status({x, i64({1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Squeeze", 13).status({x, i64({0, -3})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Squeeze", 13).status({x, i64({3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Squeeze, WithoutAxesUnknownDimsLeaveTheRankUnknown) {
  EXPECT_TRUE(InferContext::is_unknown_rank(Op("Squeeze", 13).infer({desc({-1, 2})})[0]));
  EXPECT_EQ(Op("Squeeze", 11).with("axes", Ints{0}).infer({desc({-1, -1})})[0], (Shape{-1}));
  EXPECT_EQ(Op("Squeeze", 13).infer({desc({1, 2, 1}), desc({1}, DType::kInt64)})[0], (Shape{-1, -1}));
}

TEST(Unsqueeze, PositionsAreThoseOfTheOutput) {
  const Tensor x = f32({2}, {1, 2});
  EXPECT_EQ(Op("Unsqueeze", 11).with("axes", Ints{2, 0}).run({x})[0].desc.shape, (Shape{1, 2, 1}));
  EXPECT_EQ(Op("Unsqueeze", 13).run({x, i64({0, -1})})[0].desc.shape, (Shape{1, 2, 1}));
  EXPECT_EQ(Op("Unsqueeze", 13).status({x, i64({0, -3})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Unsqueeze", 13).status({x, i64({2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Unsqueeze", 13).status({x, i64(Ints(kMaxRank, 0))}), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("Unsqueeze", 13).infer({desc({-1}), desc({2}, DType::kInt64)})[0], (Shape{-1, -1, -1}));
}

TEST(ShapeOp, GivesTheDimsOrARangeOfThem) {
  const Tensor x = blank(DType::kFloat16, {4, 5, 6});
  const auto range = [&](int start, int end) { return Op("Shape", 15).with("start", start).with("end", end).run({x})[0].ints(); };
  EXPECT_EQ(Op("Shape", 13).run({x})[0].ints(), (Ints{4, 5, 6}));
  EXPECT_EQ(Op("Shape", 15).with("start", -2).run({x})[0].ints(), (Ints{5, 6}));
  EXPECT_EQ(range(0, -1), (Ints{4, 5}));
  EXPECT_EQ(range(-9, 9), (Ints{4, 5, 6}));
  EXPECT_EQ(range(2, 1), Ints{});
  EXPECT_EQ(Op("Shape", 13).infer({desc({-1, 2})})[0], (Shape{2}));
}

TEST(SizeOp, CountsTheElements) {
  EXPECT_EQ(Op("Size", 13).run({kTable})[0].ints(), (Ints{12}));
  EXPECT_EQ(Op("Size", 13).run({kTable})[0].desc.shape, (Shape{}));
  EXPECT_EQ(Op("Size", 13).run({f32({3, 0}, {})})[0].ints(), (Ints{0}));
}

WeightPtr weight(const Tensor& t) {
  void* bytes = nullptr;
  auto made = make_weight(t.desc, nullptr, &bytes);
  std::memcpy(bytes, t.bytes.data(), made->size_bytes);
  return made;
}

TEST(Constant, IsItsAttribute) {
  EXPECT_EQ(Op("Constant", 13).with("value", AttributeValue(weight(i32({2}, {3, 4})))).run({})[0].values<std::int32_t>(),
            (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(Op("Constant", 13).with("value_float", AttributeValue(2.5f)).run({})[0].floats(), (Floats{2.5f}));
  EXPECT_EQ(Op("Constant", 13).with("value_floats", AttributeValue(Floats{1, 2})).run({})[0].floats(), (Floats{1, 2}));
  EXPECT_EQ(Op("Constant", 13).with("value_int", 7).run({})[0].desc.shape, (Shape{}));
  EXPECT_EQ(Op("Constant", 13).with("value_ints", Ints{7, 8}).run({})[0].ints(), (Ints{7, 8}));
}

TEST(Constant, HasOneValue) {
  EXPECT_EQ(Op("Constant", 13).status({}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Constant", 13).with("value_int", 7).with("value_ints", Ints{7}).status({}), EVN_ERROR_INVALID_MODEL);
  const Tensor text = Op("Constant", 13).with("value_string", "seven").run({})[0];
  EXPECT_EQ(text.desc, (TensorDesc{DType::kString, {}}));
  TextElement element = nullptr;
  std::memcpy(&element, text.bytes.data(), sizeof element);
  EXPECT_EQ(text_of(element), "seven");
}

TEST(ConstantOfShape, FillsWithTheValue) {
  EXPECT_EQ(Op("ConstantOfShape", 9).run({i64({1, 2})})[0].floats(), (Floats{0, 0}));
  EXPECT_EQ(Op("ConstantOfShape", 9).with("value", AttributeValue(weight(i64({7})))).run({i64({2})})[0].ints(), (Ints{7, 7}));
  EXPECT_EQ(Op("ConstantOfShape", 9).run({i64({})})[0].desc.shape, (Shape{}));
  EXPECT_EQ(Op("ConstantOfShape", 9).run({i64({3, 0})})[0].desc.shape, (Shape{3, 0}));
}

TEST(ConstantOfShape, DimsMustNotBeNegativeNorTooMany) {
  EXPECT_EQ(Op("ConstantOfShape", 9).status({i64({2, -1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ConstantOfShape", 9).status({i64(Ints(kMaxRank + 1, 1))}), EVN_ERROR_LIMIT);
  const AttributeValue two = weight(i64({1, 2}));
  EXPECT_EQ(Op("ConstantOfShape", 9).with("value", two).status({i64({2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ConstantOfShape", 9).infer({desc({2}, DType::kInt64)})[0], (Shape{-1, -1}));
  EXPECT_TRUE(InferContext::is_unknown_rank(Op("ConstantOfShape", 9).infer({desc({-1}, DType::kInt64)})[0]));
}

}  // namespace
}  // namespace evn::test::reshape_test
