// Detectors and samplers, losses, Einsum, Det, and com.microsoft's fused operators.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test::vision_test {
namespace {

Tensor i64_of(const Shape& shape, const Ints& values) { return tensor<std::int64_t>(shape, values); }
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(GridSample, PlacesOutsideFollowThePadding) {
  const Tensor x = f32({1, 1, 1, 2}, {3, 5});
  const Tensor grid = f32({1, 1, 3, 2}, {-0.5f, 0, 0, 0, 2, 0});  // the centers, between them, outside
  expect_near(Op("GridSample", 20).run({x, grid})[0].floats(), {3, 4, 0});
  expect_near(Op("GridSample", 20).with("padding_mode", "border").run({x, grid})[0].floats(), {3, 4, 5});
  expect_near(Op("GridSample", 20).with("padding_mode", "reflection").run({x, grid})[0].floats(), {3, 4, 4});
  EXPECT_EQ(Op("GridSample", 20).with("mode", "bilinear").status({x, grid}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("GridSample", 20).status({x, f32({1, 1, 1, 3}, {0, 0, 0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(GridSample, GridMayHaveAnotherFloatType) {
  const Tensor x = f32({1, 1, 1, 2}, {3, 5}), wide_x = tensor<double>({1, 1, 1, 2}, {3, 5});
  const Tensor grid = f32({1, 1, 2, 2}, {-0.5f, 0, 0, 0}), wide_grid = tensor<double>({1, 1, 2, 2}, {-0.5, 0, 0, 0});
  EXPECT_EQ(Op("GridSample", 20).run({x, wide_grid})[0].floats(), (Floats{3, 4}));
  EXPECT_EQ(Op("GridSample", 20).run({wide_x, grid})[0].values<double>(), (std::vector<double>{3, 4}));
  EXPECT_EQ(Op("GridSample", 20).status({x, i64_of({1, 1, 1, 2}, {0, 0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(GridSample, WildCoordinatesDoNoHarm) {
  const Tensor x = f32({1, 1, 1, 2}, {3, 5});
  const Tensor grid = f32({1, 1, 3, 2}, {kNan, 0, kInfinity, 0, -1e38f, 0});
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    EXPECT_EQ(Op("GridSample", 20).with("mode", mode).run({x, grid})[0].floats(), (Floats{0, 0, 0}));
    for (const char* padding : {"border", "reflection"}) {
      EXPECT_EQ(Op("GridSample", 20).with("mode", mode).with("padding_mode", padding).status({x, grid}), EVN_OK);
    }
  }
}

TEST(RoiAlign, MeanOfSamples) {
  const Tensor x = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  const auto y = Op("RoiAlign", 16).with("sampling_ratio", 1).run({x, f32({1, 4}, {0, 0, 2, 2}), i64({0})});
  expect_near(y[0].floats(), {2.5f});
}

TEST(RoiAlign, OfARampIsTheMiddleOfEachBin) {
  // x = 10 * row + column, in two channels; the region's bins are 1.5 by 2 elements.
  Floats values;
  for (int channel = 0; channel < 2; ++channel) {
    for (int i = 0; i < 100; ++i) values.push_back(static_cast<float>(i * (channel + 1)));
  }
  const Tensor x = f32({1, 2, 10, 10}, values);
  for (const int ratio : {0, 1, 2, 3, 3000}) {
    const auto y = Op("RoiAlign", 16)
                       .with("sampling_ratio", ratio)
                       .with("output_height", 2)
                       .with("output_width", 3)
                       .run({x, f32({1, 4}, {1.5f, 2.5f, 7.5f, 5.5f}), i64({0})});
    Floats expected;
    for (int channel = 1; channel <= 2; ++channel) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 3; ++j) expected.push_back(static_cast<float>(channel) * (10 * (2 + 0.75f + 1.5f * i) + 1 + 1 + 2 * j));
      }
    }
    expect_near(y[0].floats(), expected, 1e-3f);
  }
}

TEST(RoiAlign, TheLargestProductCountsAndWhatIsOutsideIsZero) {
  const Tensor x = f32({1, 1, 2, 2}, {-1, -2, -3, -4});
  const auto run = [&](const Floats& region) {
    return Op("RoiAlign", 16).with("sampling_ratio", 1).with("mode", "max").run({x, f32({1, 4}, region), i64({0})})[0].floats();
  };
  expect_near(run({0.25f, 0.25f, 1.25f, 1.25f}), {-0.25f});  // weights 3/4 and 1/4 both ways: of -9, -6, -9 and -4 sixteenths
  EXPECT_EQ(run({-9, -9, -7, -7}), (Floats{0}));
}

TEST(RoiAlign, ABinOutsideTheImageLeavesTheOthersAsTheyAre) {
  const Tensor x = f32({1, 1, 4, 4}, Floats(16, -1));
  Op op("RoiAlign", 16);
  op.with("mode", "max").with("output_height", 2).with("output_width", 2).with("sampling_ratio", 2);
  op.with("coordinate_transformation_mode", "output_half_pixel");
  // Bins of 3.5: those above and on the left begin outside the image.
  expect_near(op.run({x, f32({1, 4}, {-4, -4, 3, 3}), i64({0})})[0].floats(), {0, 0, 0, -0.015625f});
  const Floats y = op.run({x, f32({1, 4}, {-4, 0, 3, 3}), i64({0})})[0].floats();
  EXPECT_EQ((Floats{y[0], y[2]}), (Floats{0, 0}));
  EXPECT_LT(y[1], 0);
  EXPECT_LT(y[3], 0);
}

TEST(GridSample, CubicBorderIsOfTheLocationOrOfTheTaps) {
  const Tensor x = f32({1, 1, 1, 4}, {1, 2, 4, 8});
  const Tensor grid = f32({1, 1, 3, 2}, {-1.5f, 0, 1.25f, 0, -9, 0});  // places -1.5, 4 and -16.5 of the line
  const auto run = [&](const char* border) {
    return Op("GridSample", 20)
        .with("mode", "cubic")
        .with("padding_mode", "border")
        .with("cubic_border", border)
        .run({x, grid})[0]
        .floats();
  };
  EXPECT_EQ(run("location"), (Floats{1, 8, 1}));
  // At -1.5 the elements -3 to 0 are the first one; at 4 only the element 3 counts; both repeat the border.
  expect_near(run("taps"), {1, 8, 1});
  // Far places read the border alone, also where float32 and double have no fractions.
  const Tensor far = f32({1, 1, 4, 2}, {-1e7f, 0, 1.5e7f, 0, 1e17f, 0, -1e30f, 0});
  const auto of_far = Op("GridSample", 20)
                          .with("mode", "cubic")
                          .with("padding_mode", "border")
                          .with("cubic_border", "taps")
                          .run({x, far})[0]
                          .floats();
  expect_near(of_far, {1, 8, 8, 1});
  const Tensor near = f32({1, 1, 1, 2}, {-1.125f, 0});  // place -0.75, which reads elements -2, -1, 0 and 1
  const auto at = [&](const char* border) {
    return Op("GridSample", 20)
        .with("mode", "cubic")
        .with("padding_mode", "border")
        .with("cubic_border", border)
        .run({x, near})[0]
        .floats()[0];
  };
  EXPECT_EQ(at("location"), 1);
  const double last = -0.75 * 0.75 * 0.25 * 0.25;  // weight of element 1, at a distance d of 1.75: a (d - 1) (d - 2)^2
  EXPECT_NEAR(at("taps"), 1 - last + 2 * last, 1e-6);
  EXPECT_EQ(Op("GridSample", 20).with("cubic_border", "edge").status({x, grid}), EVN_ERROR_INVALID_MODEL);
}

TEST(MaxRoiPool, TakesTheFirstNanAndLeavesEmptyBinsZero) {
  const Tensor x = f32({1, 1, 2, 3}, {1, 5, kNan, kNan, 7, -2});
  const auto y = Op("MaxRoiPool", 22).with("pooled_shape", Ints{1, 3}).run({x, f32({2, 5}, {0, 0, 0, 2, 1, 0, 2, 0, 7, 1})});
  const Floats values = y[0].floats();
  EXPECT_EQ((Floats{values[0], values[1]}), (Floats{1, 7}));
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_TRUE(std::isnan(values[3]));
  EXPECT_EQ((Floats{values[4], values[5]}), (Floats{0, 0}));
}

TEST(RoiAlign, HostileRegionsAreErrors) {
  const Tensor x = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Op("RoiAlign", 16).status({x, f32({1, 4}, {0, 0, 2, 2}), i64({1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("RoiAlign", 16).status({x, f32({1, 4}, {0, 0, 1e30f, 2}), i64({0})}), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("RoiAlign", 16).status({x, f32({1, 4}, {0, kNan, 1, 2}), i64({0})}), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("RoiAlign", 16).with("output_height", 0).status({x, f32({1, 4}, {0, 0, 2, 2}), i64({0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(NonMaxSuppression, TakesTheBestOfEachHeap) {
  const Tensor boxes = f32({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 0.9f, 5, 5, 6, 6});
  const Tensor scores = f32({1, 1, 3}, {0.5f, 0.9f, 0.7f});
  const Tensor most = i64({9});
  EXPECT_EQ(Op("NonMaxSuppression", 11).run({boxes, scores, most, f32({1}, {0.5f})})[0].ints(), (Ints{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(Op("NonMaxSuppression", 11).run({boxes, scores, most, f32({1}, {0.5f}), f32({1}, {0.8f})})[0].ints(), (Ints{0, 0, 1}));
  EXPECT_EQ(Op("NonMaxSuppression", 11).run({boxes, scores})[0].desc.shape, (Shape{0, 3}));
  EXPECT_EQ(Op("NonMaxSuppression", 11).run({boxes, f32({1, 1, 3}, {kNan, kNan, 1}), most})[0].ints(), (Ints{0, 0, 2}));
  EXPECT_EQ(Op("NonMaxSuppression", 11).status({boxes, scores, most, f32({1}, {kNan})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("NonMaxSuppression", 11).infer({desc({1, 3, 4}), desc({1, 1, 3})})[0], (Shape{-1, 3}));
}

TEST(NonMaxSuppression, OfManyBoxesTakesWhatThePlainRuleTakes) {
  constexpr int kBoxes = 300;
  Floats corners, scores;
  for (int i = 0; i < kBoxes; ++i) {
    const auto x = static_cast<float>(i * 37 % 101), y = static_cast<float>(i * 53 % 97);
    corners.insert(corners.end(), {y, x, y + static_cast<float>(5 + i % 11), x + static_cast<float>(5 + i % 7)});
    // Many scores are alike, of either sign, and zeros of either sign.
    scores.push_back(i % 10 == 0 ? (i % 20 == 0 ? -0.0f : 0.0f) : static_cast<float>(i * 29 % 41 - 20));
  }
  const float limit = 0.1f;
  std::vector<int> order, taken;
  for (int i = 0; i < kBoxes; ++i) order.push_back(i);
  const auto score = [&](int i) { return scores[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score(a) > score(b); });
  const auto side = [&](int i, int k) { return corners[static_cast<std::size_t>(i * 4 + k)]; };
  const auto area = [&](int i) { return (side(i, 2) - side(i, 0)) * (side(i, 3) - side(i, 1)); };
  const auto meets = [&](int a, int b) {
    const float height = std::min(side(a, 2), side(b, 2)) - std::max(side(a, 0), side(b, 0));
    const float width = std::min(side(a, 3), side(b, 3)) - std::max(side(a, 1), side(b, 1));
    return height > 0 && width > 0 && height * width / (area(a) + area(b) - height * width) > limit;
  };
  Ints expected;
  for (const int i : order) {
    if (std::any_of(taken.begin(), taken.end(), [&](int other) { return meets(i, other); })) continue;
    taken.push_back(i);
    expected.insert(expected.end(), {0, 0, i});
  }
  EXPECT_GT(taken.size(), 40u);
  const Tensor boxes = f32({1, kBoxes, 4}, corners);
  const auto y = Op("NonMaxSuppression", 11).run({boxes, f32({1, 1, kBoxes}, scores), i64({kBoxes}), f32({1}, {limit})});
  EXPECT_EQ(y[0].ints(), expected);
}

TEST(MaxUnpool, KeepsCoordinatesInAnotherShape) {
  const auto unpool = Op("MaxUnpool", 11).with("kernel_shape", Ints{2}).with("strides", Ints{2});
  const Tensor x = f32({1, 1, 2}, {5, 6});
  EXPECT_EQ(Op(unpool).run({x, i64_of({1, 1, 2}, {1, 2})})[0].floats(), (Floats{0, 5, 6, 0}));
  EXPECT_EQ(Op(unpool).run({x, i64_of({1, 1, 2}, {1, 2}), i64({1, 1, 5})})[0].floats(), (Floats{0, 5, 6, 0, 0}));
  EXPECT_EQ(Op(unpool).status({x, i64_of({1, 1, 2}, {1, 4})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(unpool).status({x, i64_of({1, 1, 2}, {1, 3}), i64({1, 1, 3})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(LpPool, PaddingAddsNothing) {
  const Tensor x = f32({1, 1, 3}, {3, -4, 12});
  expect_near(Op("LpPool", 18).with("kernel_shape", Ints{2}).with("pads", Ints{1, 0}).run({x})[0].floats(),
              {3, 5, std::sqrt(160.0f)});
  EXPECT_EQ(Op("LpPool", 18).with("kernel_shape", Ints{2}).with("p", 0).status({x}), EVN_ERROR_INVALID_MODEL);
}

TEST(Einsum, ReadsEquations) {
  const Tensor a = f32({2, 2}, {1, 2, 3, 4});
  const auto run = [&](const char* equation, const std::vector<Tensor>& x) {
    return Op("Einsum", 12).with("equation", equation).run(x)[0];
  };
  EXPECT_EQ(run("ij,jk", {a, a}).floats(), (Floats{7, 10, 15, 22}));
  EXPECT_EQ(run("ba", {a}).floats(), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(run("ii", {a}).floats(), (Floats{5}));
  EXPECT_EQ(run(" i i -> i", {a}).floats(), (Floats{1, 4}));
  EXPECT_EQ(run("...i->...", {a}).floats(), (Floats{3, 7}));
  EXPECT_EQ(run("...,i...->i", {f32({2}, {1, 10}), a}).floats(), (Floats{21, 43}));
}

TEST(Einsum, BadEquationsAreErrors) {
  const Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* equation : {"", "i", "ijk", "ij->k", "ij->ii", "ij,jk", "ij->i->j", "i1", "i..j", "......", "ii", "ij-i"}) {
    EXPECT_EQ(Op("Einsum", 12).with("equation", equation).status({a}), EVN_ERROR_INVALID_MODEL) << equation;
  }
  EXPECT_EQ(Op("Einsum", 12).with("equation", "ij->ijjjjjjjjjjjjjjjjjjj").status({a}), EVN_ERROR_INVALID_MODEL);
}

TEST(Det, PivotsAndSingularMatrices) {
  expect_near(Op("Det", 11).run({f32({2, 2, 2}, {0, 2, 3, 4, 1, 2, 2, 4})})[0].floats(), {-6, 0});
  EXPECT_EQ(Op("Det", 11).status({f32({1, 2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Losses, IgnoredTargetsDoNotCount) {
  const Tensor x = f32({2, 2}, {0, std::log(3.0f), 1, 2});
  const auto cross = Op("SoftmaxCrossEntropyLoss", 13).with("ignore_index", 7);
  expect_near(Op(cross).run({x, i64({1, 7})})[0].floats(), {std::log(4.0f / 3)});
  EXPECT_EQ(Op(cross).status({x, i64({1, 2})}), EVN_ERROR_INVALID_ARGUMENT);
  const auto none = Op("NegativeLogLikelihoodLoss", 13).with("reduction", "none");
  EXPECT_EQ(Op(none).run({x, i64({0, 1}), f32({2}, {1, 3})})[0].floats(), (Floats{0, -6}));
  EXPECT_EQ(Op("NegativeLogLikelihoodLoss", 13).with("reduction", "most").status({x, i64({0, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(MatMulInteger, ZeroPointsOfColumns) {
  const Tensor a = tensor<std::uint8_t>({1, 2}, {5, 250});
  const Tensor b = tensor<std::int8_t>({2, 2}, {1, 2, 3, 4});
  const auto y = Op("MatMulInteger", 10).run({a, b, tensor<std::uint8_t>({}, {4}), tensor<std::int8_t>({2}, {1, -1})});
  EXPECT_EQ(y[0].values<std::int32_t>(), (std::vector<std::int32_t>{492, 1233}));
  EXPECT_EQ(Op("MatMulInteger", 10).status({a, tensor<std::int8_t>({1, 2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Fused, MatMulTransposesAndScales) {
  const Tensor a = f32({2, 1}, {1, 2});
  const auto y = Op("com.microsoft::FusedMatMul", 1).with("transA", 1).with("alpha", AttributeValue(2.0f)).run({a, a});
  EXPECT_EQ(y[0].floats(), (Floats{10}));
  EXPECT_EQ(Op("com.microsoft::FusedMatMul", 1).with("transBatchA", 1).status({a, a}), EVN_ERROR_INVALID_MODEL);
}

TEST(Fused, SkipLayerNormalizationAddsFirst) {
  const Tensor x = f32({1, 1, 2}, {1, 2});
  const auto y = Op("com.microsoft::SkipLayerNormalization", 1)
                     .outputs(4)
                     .run({x, f32({1, 2}, {2, 3}), f32({2}, {1, 10}), absent(), f32({2}, {0, 1})});
  expect_near(y[0].floats(), {-1, 10});
  EXPECT_EQ(y[3].floats(), (Floats{3, 6}));
  EXPECT_EQ(Op("com.microsoft::SkipLayerNormalization", 1).status({x, f32({1, 3}, {2, 3, 4}), f32({2}, {1, 10})}),
            EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test::vision_test
