// Random numbers: their range, mean and spread, what seeds change, and Dropout in and outside training.
#include <cmath>
#include <numeric>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(const Floats& x) {
  Moments m;
  for (const float v : x) m.mean += v;
  m.mean /= static_cast<double>(x.size());
  for (const float v : x) m.deviation += (v - m.mean) * (v - m.mean);
  m.deviation = std::sqrt(m.deviation / static_cast<double>(x.size()));
  return m;
}

TEST(RandomUniform, FillsItsRange) {
  const Floats y = Op("RandomUniform", 22)
                       .with("shape", Ints{100, 100})
                       .with("low", AttributeValue(-1.0f))
                       .with("high", AttributeValue(3.0f))
                       .run({})[0]
                       .floats();
  for (const float v : y) {
    ASSERT_GE(v, -1.0f);
    ASSERT_LE(v, 3.0f);
  }
  const Moments m = moments(y);
  EXPECT_NEAR(m.mean, 1, 0.06);
  EXPECT_NEAR(m.deviation, 4 / std::sqrt(12.0), 0.03);
}

TEST(RandomNormal, HasItsMeanAndScale) {
  const Moments m = moments(Op("RandomNormal", 22)
                                .with("shape", Ints{100, 100})
                                .with("mean", AttributeValue(5.0f))
                                .with("scale", AttributeValue(2.0f))
                                .run({})[0]
                                .floats());
  EXPECT_NEAR(m.mean, 5, 0.1);
  EXPECT_NEAR(m.deviation, 2, 0.07);
}

TEST(RandomNormalLike, TakesTheShapeAndItsOwnDtype) {
  const Tensor y = Op("RandomNormalLike", 22).with("dtype", EVN_DTYPE_FLOAT32).run({i64({4, 5, 6})})[0];
  EXPECT_EQ(y.desc, (TensorDesc{DType::kFloat32, {3}}));
  EXPECT_EQ(Op("RandomNormalLike", 22).status({i64({4, 5, 6})}), EVN_ERROR_INVALID_MODEL);  // of whole numbers there is none
}

TEST(RandomUniform, OneSeedGivesTheSameAndAnotherOtherNumbers) {
  const auto draw = [](float seed) {
    return Op("RandomUniform", 22).with("shape", Ints{8}).with("seed", AttributeValue(seed)).run({})[0].floats();
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(RandomUniform, RefusesNegativeDimsAndIntegers) {
  EXPECT_EQ(Op("RandomUniform", 22).with("shape", Ints{-1}).status({}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("RandomUniform", 22).with("shape", Ints{1}).with("dtype", EVN_DTYPE_INT64).status({}), EVN_ERROR_INVALID_MODEL);
}

TEST(Bernoulli, DrawsWithTheGivenProbability) {
  const Floats y = Op("Bernoulli", 22).run({f32({10000}, Floats(10000, 0.3f))})[0].floats();
  for (const float v : y) ASSERT_TRUE(v == 0 || v == 1);
  EXPECT_NEAR(moments(y).mean, 0.3, 0.03);
}

TEST(Multinomial, DrawsClassesByTheirWeights) {
  const auto y = Op("Multinomial", 22)
                     .with("sample_size", 4000)
                     .with("dtype", EVN_DTYPE_INT64)
                     .run({f32({2, 3}, {0, -INFINITY, 0, 5, 5, 5})})[0]
                     .ints();
  Ints counts(6, 0);
  for (std::size_t i = 0; i < y.size(); ++i) ++counts[static_cast<std::size_t>(y[i]) + (i < 4000 ? 0 : 3)];
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(static_cast<double>(counts[0]), 2000, 200);
  for (int k = 3; k < 6; ++k) EXPECT_NEAR(static_cast<double>(counts[static_cast<std::size_t>(k)]), 1333, 200);
  EXPECT_EQ(Op("Multinomial", 22).with("sample_size", 0).status({f32({1, 1}, {0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Dropout, IsTheIdentityWithAMaskOfTrueOutsideTraining) {
  const auto y = Op("Dropout", 13).outputs(2).run({f32({2}, {3, 4})});
  EXPECT_EQ(y[0].floats(), (Floats{3, 4}));
  EXPECT_EQ(bool_values(y[1]), (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(Op("Dropout", 7).outputs(2).run({f32({2}, {3, 4})})[1].floats(), (Floats{1, 1}));
}

TEST(Dropout, LeavesOutAndScalesInTraining) {
  const auto y = Op("Dropout", 13).outputs(2).run({f32({10000}, Floats(10000, 3)), f32({}, {0.25f}), bools({}, {1})});
  const Floats values = y[0].floats();
  const auto mask = bool_values(y[1]);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], mask[i] != 0 ? 4.0f : 0.0f);
  EXPECT_NEAR(moments(values).mean, 3, 0.12);
  EXPECT_EQ(Op("Dropout", 13).status({f32({1}, {3}), f32({}, {1}), bools({}, {1})}), EVN_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace evn::test
