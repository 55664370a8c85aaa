// Slice and Pad: parts of a tensor, and tensors around one.
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test::slice_test {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
const Tensor kTable = f32({2, 3}, counting(6));
const Tensor kThree = f32({3}, {1, 2, 3});

Floats sliced(const Ints& starts, const Ints& ends, const Ints& axes, const Ints& steps) {
  return Op("Slice", 13).run({kTable, i64(starts), i64(ends), i64(axes), i64(steps)})[0].floats();
}

evn_status slice_status(const Ints& starts, const Ints& ends, const Ints& axes, const Ints& steps) {
  return Op("Slice", 13).status({kTable, i64(starts), i64(ends), i64(axes), i64(steps)});
}

TEST(Slice, RangesAreAttributesAndLaterInputs) {
  Op op("Slice", 1);
  op.with("starts", Ints{1}).with("ends", Ints{3}).with("axes", Ints{1});
  EXPECT_EQ(op.run({kTable})[0].floats(), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(Op("Slice", 13).run({kTable, i64({1}), i64({2})})[0].floats(), (Floats{3, 4, 5}));
  EXPECT_EQ(Op("Slice", 10).run({kTable, i32({1}, {1}), i32({1}, {3}), i32({1}, {-1})})[0].floats(), (Floats{1, 2, 4, 5}));
}

TEST(Slice, NegativeEndsCountFromTheEndAndFarOnesAreClamped) {
  EXPECT_EQ(sliced({-2}, {-1}, {1}, {1}), (Floats{1, 4}));
  EXPECT_EQ(sliced({kLeast, 1}, {kMost, kMost}, {0, 1}, {1, 1}), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(sliced({2}, {1}, {1}, {1}), Floats{});
}

TEST(Slice, StepsMaySkipAndGoBack) {
  EXPECT_EQ(sliced({0}, {3}, {1}, {2}), (Floats{0, 2, 3, 5}));
  EXPECT_EQ(sliced({kMost}, {kLeast}, {1}, {-1}), (Floats{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(sliced({-1, -1}, {kLeast, 0}, {0, 1}, {-1, -2}), (Floats{5, 2}));
  EXPECT_EQ(sliced({0}, {kMost}, {1}, {kMost}), (Floats{0, 3}));
  EXPECT_EQ(sliced({2}, {kLeast}, {1}, {kLeast}), (Floats{2, 5}));
}

TEST(Slice, ListsMustFit) {
  EXPECT_EQ(slice_status({0}, {1}, {0}, {0}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(slice_status({0}, {1, 1}, {0}, {1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(slice_status({0}, {1}, {2}, {1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(slice_status({0, 0}, {1, 1}, {0, -2}, {1, 1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(slice_status({0, 0, 0}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Slice", 13).status({kTable, i64({0}), i32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Slice", 13).status({kTable, f32({1}, {0}), f32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Slice, OnlyAxesThatMayChangeBecomeUnknown) {
  const TensorDesc list = desc({1}, DType::kInt64);
  const Tensor zero = i64({0});
  const Tensor two = i64({2});
  EXPECT_EQ(Op("Slice", 13).infer({desc({4, 3}), list, list})[0], (Shape{-1, 3}));
  EXPECT_EQ(Op("Slice", 13).infer({desc({4, 3}), list, list, list})[0], (Shape{-1, -1}));
  EXPECT_EQ(Op("Slice", 13).infer({desc({-1, 3}), list, list}, {{}, known(zero), known(two)})[0], (Shape{-1, 3}));
  EXPECT_EQ(Op("Slice", 13).infer({desc({4, -1}), list, list}, {{}, known(zero), known(two)})[0], (Shape{2, -1}));
}

TEST(Pad, ConstantTakesTheValue) {
  const auto y = Op("Pad", 13).run({f32({1, 2}, {1, 2}), i64({1, 0, 0, 1}), f32({}, {9})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3}));
  EXPECT_EQ(y[0].floats(), (Floats{9, 9, 9, 1, 2, 9}));
  EXPECT_EQ(Op("Pad", 13).run({i64({5}), i64({1, 1})})[0].ints(), (Ints{0, 5, 0}));
  Op old("Pad", 2);
  old.with("pads", Ints{0, 2}).with("value", AttributeValue(0.5f));
  EXPECT_EQ(old.run({kThree})[0].floats(), (Floats{1, 2, 3, 0.5f, 0.5f}));
}

TEST(Pad, ModesRepeatMirrorAndWrap) {
  const auto padded = [](const char* mode, const Ints& pads) {
    return Op("Pad", 19).with("mode", mode).run({kThree, i64(pads)})[0].floats();
  };
  EXPECT_EQ(padded("edge", {2, 1}), (Floats{1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(padded("reflect", {2, 1}), (Floats{3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(padded("reflect", {0, 5}), (Floats{1, 2, 3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(padded("wrap", {1, 2}), (Floats{3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(padded("constant", {-1, 1}), (Floats{2, 3, 0}));
  EXPECT_EQ(padded("edge", {1, -2}), (Floats{1, 1}));
}

TEST(Pad, AxesMayBeListed) {
  const auto y = Op("Pad", 18).run({kTable, i64({0, 1}), absent(), i64({-1})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 4}));
  EXPECT_EQ(y[0].floats(), (Floats{0, 1, 2, 0, 3, 4, 5, 0}));
  EXPECT_EQ(Op("Pad", 18).status({kTable, i64({0, 1, 0, 1}), absent(), i64({0, -2})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Pad, AmountsMustFit) {
  EXPECT_EQ(Op("Pad", 13).status({kThree, i64({1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).status({kThree, i64({-2, -2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).status({kThree, i64({kMost, kMost})}), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("Pad", 13).status({kThree, i64({1, 1}), i64({7})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).status({kThree, i64({1, 1}), f32({2}, {7, 8})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).with("mode", "mirror").status({kThree, i64({1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).with("mode", "edge").status({f32({0}, {}), i64({1, 0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Pad", 13).run({f32({0}, {}), i64({1, 0})})[0].floats(), (Floats{0}));
}

TEST(Pad, UnknownAmountsKeepTheRank) {
  EXPECT_EQ(Op("Pad", 13).infer({desc({2, 3}), desc({4}, DType::kInt64)})[0], (Shape{-1, -1}));
  EXPECT_EQ(Op("Pad", 2).with("pads", Ints{0, 1, 0, 1}).infer({desc({-1, 3})})[0], (Shape{-1, 5}));
}

}  // namespace
}  // namespace evn::test::slice_test
