// Normalizations over parts of a tensor, LRN, Hardmax, and reductions by logarithms.
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

TEST(InstanceNormalization, EachChannelByItself) {
  const auto y = Op("InstanceNormalization", 6)
                     .with("epsilon", AttributeValue(0.0f))
                     .run({f32({1, 2, 2}, {1, 3, 10, 30}), f32({2}, {1, 2}), f32({2}, {0, 5})});
  expect_near(y[0].floats(), {-1, 1, 3, 7});
}

TEST(GroupNormalization, ScaleIsForGroupsAndLaterForChannels) {
  const Tensor x = f32({1, 4, 1}, {1, 3, 10, 30});
  const auto by_group = Op("GroupNormalization", 18).with("num_groups", 2).with("epsilon", AttributeValue(0.0f));
  expect_near(Op(by_group).run({x, f32({2}, {1, 2}), f32({2}, {0, 5})})[0].floats(), {-1, 1, 3, 7});
  const auto by_channel = Op("GroupNormalization", 21).with("num_groups", 2).with("epsilon", AttributeValue(0.0f));
  expect_near(Op(by_channel).run({x, f32({4}, {1, 2, 3, 4}), f32({4}, {0, 0, 0, 1})})[0].floats(), {-1, 2, -3, 5});
  EXPECT_EQ(Op("GroupNormalization", 21).with("num_groups", 3).status({x, f32({4}, {1, 2, 3, 4}), f32({4}, {0, 0, 0, 1})}),
            EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("GroupNormalization", 21).with("num_groups", 0).status({x, f32({4}, {1, 2, 3, 4}), f32({4}, {0, 0, 0, 1})}),
            EVN_ERROR_INVALID_MODEL);
}

TEST(MeanVarianceNormalization, AxesMayBeGiven) {
  expect_near(Op("MeanVarianceNormalization", 13).with("axes", Ints{1}).run({f32({2, 2}, {1, 3, 5, 5})})[0].floats(),
              {-1, 1, 0, 0});
  EXPECT_EQ(Op("MeanVarianceNormalization", 13).status({f32({2, 2}, {1, 3, 5, 5})}), EVN_ERROR_INVALID_MODEL);
}

TEST(LpNormalization, RowOfZerosStays) {
  expect_near(Op("LpNormalization", 1).run({f32({2, 2}, {3, -4, 0, 0})})[0].floats(), {0.6f, -0.8f, 0, 0});
  expect_near(Op("LpNormalization", 1).with("p", 1).run({f32({1, 2}, {3, -1})})[0].floats(), {0.75f, -0.25f});
  EXPECT_EQ(Op("LpNormalization", 1).with("p", 3).status({f32({1, 2}, {3, -1})}), EVN_ERROR_INVALID_MODEL);
}

// float32 is computed, float64 too (by the reference, whose sums are double); to round on the way is refused.
TEST(StashType, IsHonouredOrRefused) {
  const auto group = [](int type) {
    return Op("GroupNormalization", 21)
        .with("num_groups", 1)
        .with("stash_type", type)
        .status({f32({1, 2, 1}, {1, 3}), f32({2}, {1, 1}), f32({2}, {0, 0})});
  };
  const auto rms = [](int type) {
    return Op("RMSNormalization", 23).with("stash_type", type).status({f32({1, 2}, {1, 7}), f32({2}, {1, 1})});
  };
  const auto simplified = [](int type) {
    return Op("SimplifiedLayerNormalization", 13).with("stash_type", type).status({f32({1, 2}, {1, 7}), f32({2}, {1, 1})});
  };
  const auto layer = [](int type) {
    return Op("LayerNormalization", 17).with("stash_type", type).status({f32({1, 2}, {1, 7}), f32({2}, {1, 1})});
  };
  for (const auto& norm : {std::function<evn_status(int)>(group), std::function<evn_status(int)>(rms),
                           std::function<evn_status(int)>(simplified), std::function<evn_status(int)>(layer)}) {
    EXPECT_EQ(norm(EVN_DTYPE_FLOAT32), EVN_OK);
    EXPECT_EQ(norm(EVN_DTYPE_FLOAT16), EVN_ERROR_UNSUPPORTED);
    EXPECT_EQ(norm(EVN_DTYPE_BFLOAT16), EVN_ERROR_UNSUPPORTED);
    for (const int none : std::initializer_list<int>{EVN_DTYPE_INT64, 0, -1, 99})
      EXPECT_EQ(norm(none), EVN_ERROR_INVALID_MODEL) << none;
  }
  EXPECT_EQ(group(EVN_DTYPE_FLOAT64), EVN_OK);
  EXPECT_EQ(rms(EVN_DTYPE_FLOAT64), EVN_OK);
  EXPECT_EQ(simplified(EVN_DTYPE_FLOAT64), EVN_ERROR_UNSUPPORTED);  // its second output is float32
  EXPECT_EQ(layer(EVN_DTYPE_FLOAT64), EVN_ERROR_UNSUPPORTED);
}

TEST(RmsNormalization, DividesByTheRootOfTheMeanSquare) {
  const auto y = Op("RMSNormalization", 23).with("epsilon", AttributeValue(0.0f)).run({f32({1, 2}, {1, 7}), f32({2}, {5, 10})});
  expect_near(y[0].floats(), {1, 14});
  EXPECT_EQ(Op("RMSNormalization", 23).status({f32({1, 2}, {1, 7}), f32({3}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Lrn, ChannelsOutsideDoNotCount) {
  const auto lrn = Op("LRN", 13).with("size", 3).with("alpha", AttributeValue(3.0f)).with("beta", AttributeValue(1.0f));
  expect_near(Op(lrn).run({f32({1, 3, 1}, {1, 2, 3})})[0].floats(), {1.0f / 6, 2.0f / 15, 3.0f / 14});
  EXPECT_EQ(Op("LRN", 13).with("size", 0).status({f32({1, 3, 1}, {1, 2, 3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Hardmax, FirstOfEqualElements) {
  EXPECT_EQ(Op("Hardmax", 13).run({f32({2, 3}, {1, 3, 3, 5, 0, 5})})[0].floats(), (Floats{0, 1, 0, 1, 0, 0}));
}

TEST(ReduceLogSumExp, LargeElementsDoNotOverflow) {
  expect_near(Op("ReduceLogSumExp", 18).run({f32({2}, {1000, 1000})})[0].floats(), {1000 + std::log(2.0f)}, 1e-3f);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Op("ReduceLogSumExp", 18).run({f32({2}, {-kInfinity, -kInfinity})})[0].floats(), (Floats{-kInfinity}));
  EXPECT_EQ(Op("ReduceLogSumExp", 18).run({f32({2}, {kInfinity, 1})})[0].floats(), (Floats{kInfinity}));
  expect_near(Op("ReduceLogSum", 18).run({f32({2}, {1, 2})})[0].floats(), {std::log(3.0f)});
}

TEST(Unary, LaterFunctions) {
  const Tensor x = f32({3}, {-2, 0.25f, 2});
  expect_near(Op("Celu", 12).with("alpha", AttributeValue(2.0f)).run({x})[0].floats(), {2 * std::expm1(-1.0f), 0.25f, 2});
  EXPECT_EQ(Op("Celu", 12).with("alpha", AttributeValue(0.0f)).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ThresholdedRelu", 10).run({x})[0].floats(), (Floats{0, 0, 2}));
  EXPECT_EQ(Op("ThresholdedRelu", 10).run({f32({1}, {std::nanf("")})})[0].floats(), (Floats{0}));  // it is not above the threshold
  EXPECT_EQ(Op("Shrink", 9).with("bias", AttributeValue(0.5f)).run({x})[0].floats(), (Floats{-1.5f, 0, 1.5f}));
  EXPECT_EQ(Op("Shrink", 9).run({f32({1}, {std::nanf("")})})[0].floats(), (Floats{0}));  // NaN is on neither side
  expect_near(Op("Swish", 24).run({x})[0].floats(),
              {-2 / (1 + std::exp(2.0f)), 0.25f / (1 + std::exp(-0.25f)), 2 / (1 + std::exp(-2.0f))});
  expect_near(Op("Asinh", 9).run({x})[0].floats(), {std::asinh(-2.0f), std::asinh(0.25f), std::asinh(2.0f)});
}

TEST(Bits, ShiftsByAllBitsGiveZero) {
  const Tensor x = tensor<std::uint8_t>({3}, {1, 200, 255});
  const Tensor by = tensor<std::uint8_t>({3}, {3, 8, 200});
  EXPECT_EQ(Op("BitShift", 11).with("direction", "LEFT").run({x, by})[0].values<std::uint8_t>(),
            (std::vector<std::uint8_t>{8, 0, 0}));
  EXPECT_EQ(Op("BitShift", 11).with("direction", "UP").status({x, by}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("BitwiseXor", 18).run({x, by})[0].values<std::uint8_t>(), (std::vector<std::uint8_t>{2, 192, 55}));
  EXPECT_EQ(Op("BitwiseNot", 18).run({x})[0].values<std::uint8_t>(), (std::vector<std::uint8_t>{254, 55, 0}));
  EXPECT_EQ(Op("BitCast", 26).with("to", EVN_DTYPE_INT32).run({f32({1}, {1})})[0].values<std::int32_t>(),
            (std::vector<std::int32_t>{0x3f800000}));
}

TEST(MeanVarianceNormalization, OverAnyAxes) {
  const Shape shape = {2, 3, 4, 37};
  Floats x;
  for (std::int64_t i = 0; i < shape.elements(); ++i) x.push_back(static_cast<float>(i * 7919 % 1009) / 100 + 50);
  const std::size_t steps[] = {444, 148, 37, 1}, dims[] = {2, 3, 4, 37};
  for (const Ints& axes : {Ints{0, 2, 3}, Ints{1}, Ints{-1}, Ints{0, 2}, Ints{0, 1, 2, 3}, Ints{1, 3}}) {
    std::uint32_t mask = 0;
    for (const std::int64_t axis : axes) mask |= 1u << (axis + 4) % 4;
    const Floats y = Op("MeanVarianceNormalization", 13).with("axes", axes).run({f32(shape, x)})[0].floats();
    const auto group_of = [&](std::size_t i) {  // the element with 0 on the axes
      for (std::size_t axis = 0; axis < 4; ++axis) i -= (mask >> axis & 1u) != 0 ? i / steps[axis] % dims[axis] * steps[axis] : 0;
      return i;
    };
    for (std::size_t i = 0; i < x.size(); i += 13) {
      double sum = 0, squares = 0, count = 0;
      for (std::size_t j = 0; j < x.size(); ++j) {
        if (group_of(j) != group_of(i)) continue;
        sum += static_cast<double>(x[j]), squares += static_cast<double>(x[j]) * static_cast<double>(x[j]), ++count;
      }
      const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
      ASSERT_NEAR(y[i], (static_cast<double>(x[i]) - mean) / (deviation + 1e-9), 1e-4) << "mask " << mask << ", " << i;
    }
  }
}

TEST(LpNormalization, AlongLongAndStridedLines) {
  const Shape shape = {2, 300, 3};
  Floats x;
  for (std::int64_t i = 0; i < shape.elements(); ++i) x.push_back(static_cast<float>(i * 7919 % 1009) / 100 - 5);
  for (const int p : {1, 2}) {
    for (const std::size_t step : {1, 3}) {  // of axis 1; with 1 the tensor is [2, 300] thrice as long
      const Shape seen = step == 3 ? shape : Shape{2, 900, 1};
      const std::size_t length = step == 3 ? 300 : 900;
      const Floats y = Op("LpNormalization", 22).with("axis", 1).with("p", p).run({f32(seen, x)})[0].floats();
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t begin = i / 900 * 900 + i % step;
        double norm = 0;
        for (std::size_t n = 0; n < length; ++n) norm += std::pow(std::fabs(static_cast<double>(x[begin + n * step])), p);
        ASSERT_NEAR(y[i], static_cast<double>(x[i]) / std::pow(norm, 1.0 / p), 1e-6);
      }
    }
  }
  EXPECT_EQ(Op("LpNormalization", 22).run({f32({40}, Floats(40, 0))})[0].floats(), Floats(40, 0));
}

}  // namespace
}  // namespace evn::test
