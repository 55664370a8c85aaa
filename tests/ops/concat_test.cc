// Concat and Split.
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kFive = f32({5}, counting(5));

Op concat(int axis) {
  Op op("Concat", 13);
  op.with("axis", axis);
  return op;
}

Ints lengths(const std::vector<Tensor>& parts, int axis = 0) {
  Ints found;
  for (const Tensor& t : parts) found.push_back(t.desc.shape[axis]);
  return found;
}

TEST(Concat, PutsInputsOneAfterTheOther) {
  const auto y = concat(-1).run({f32({2, 1}, {1, 4}), f32({2, 2}, {2, 3, 5, 6}), f32({2, 0}, {})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(concat(0).run({i64({1}), i64({}), i64({2, 3})})[0].ints(), (Ints{1, 2, 3}));
  EXPECT_EQ(bool_values(concat(0).run({bools({1}, {1})})[0]), (std::vector<std::uint8_t>{1}));
}

TEST(Concat, InputsMustFit) {
  EXPECT_EQ(concat(0).status({f32({1, 2}, {1, 2}), f32({1, 1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(concat(0).status({f32({1, 2}, {1, 2}), f32({2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(concat(0).status({f32({1}, {1}), i32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(concat(1).status({kFive}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(concat(0).status({f32({}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Concat, UnknownDimsMeetKnownOnes) {
  EXPECT_EQ(concat(0).infer({desc({-1, -1}), desc({3, 2})})[0], (Shape{-1, 2}));
  EXPECT_EQ(concat(1).infer({desc({-1, 2}), desc({3, 4})})[0], (Shape{3, 6}));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(concat(0).infer({desc({most}), desc({1})}), Error);
}

TEST(Split, EqualPartsAreOneForEachOutput) {
  const auto parts = Op("Split", 13).with("axis", 1).outputs(2).run({f32({2, 2}, {1, 2, 3, 4})});
  EXPECT_EQ(parts[0].floats(), (Floats{1, 3}));
  EXPECT_EQ(parts[1].floats(), (Floats{2, 4}));
  EXPECT_EQ(Op("Split", 13).outputs(2).status({kFive}), EVN_ERROR_INVALID_MODEL);
}

TEST(Split, SizesAreAnAttributeAndLaterAnInput) {
  EXPECT_EQ(lengths(Op("Split", 11).with("split", Ints{4, 1}).outputs(2).run({kFive})), (Ints{4, 1}));
  const auto parts = Op("Split", 13).with("axis", -1).outputs(3).run({kFive, i64({2, 0, 3})});
  EXPECT_EQ(lengths(parts), (Ints{2, 0, 3}));
  EXPECT_EQ(parts[2].floats(), (Floats{2, 3, 4}));
}

TEST(Split, OutputsThatAreCountedMayEndSmaller) {
  const auto split = [](int count, const Tensor& x) { return Op("Split", 18).with("num_outputs", count).outputs(count).run({x}); };
  EXPECT_EQ(lengths(split(2, kFive)), (Ints{3, 2}));
  EXPECT_EQ(lengths(split(4, f32({7}, counting(7)))), (Ints{2, 2, 2, 1}));
  EXPECT_EQ(split(2, kFive)[1].floats(), (Floats{3, 4}));
  EXPECT_EQ(lengths(split(6, kFive)), (Ints{1, 1, 1, 1, 1, 0}));
}

TEST(Split, SizesMustAddUpToTheAxis) {
  for (const Ints& sizes : {Ints{2, 2}, Ints{6, -1}, Ints{5}, Ints{1, 1, 3}, Ints{std::numeric_limits<std::int64_t>::max(), 5}}) {
    EXPECT_NE(Op("Split", 11).with("split", sizes).outputs(2).status({kFive}), EVN_OK);
    EXPECT_NE(Op("Split", 13).outputs(2).status({kFive, i64(sizes)}), EVN_OK);
  }
  EXPECT_EQ(Op("Split", 13).outputs(2).status({kFive, i64({2, 2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Split", 13).with("axis", 1).outputs(2).status({kFive}), EVN_ERROR_INVALID_MODEL);
}

TEST(Split, CountMustBeThatOfTheOutputsAndStandAlone) {
  EXPECT_EQ(Op("Split", 18).with("num_outputs", 3).outputs(2).status({kFive}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Split", 18).with("num_outputs", 2).outputs(2).status({kFive, i64({2, 3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Split, UnknownDimsAndUnknownSizes) {
  EXPECT_EQ(Op("Split", 13).outputs(2).infer({desc({-1, 3})})[1], (Shape{-1, 3}));
  EXPECT_EQ(Op("Split", 13).outputs(2).infer({desc({5, -1}), desc({2}, DType::kInt64)})[0], (Shape{-1, -1}));
  EXPECT_EQ(Op("Split", 11).with("split", Ints{4, 1}).outputs(2).infer({desc({-1})})[0], (Shape{4}));
  EXPECT_THROW(Op("Split", 13).outputs(2).infer({desc({5}), desc({3}, DType::kInt64)}), Error);
}

}  // namespace
}  // namespace evn::test
