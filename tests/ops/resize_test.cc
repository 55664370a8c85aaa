// Resize and Upsample along one axis: coordinates, interpolation, what gives the output's dims.
#include <cmath>

#include "ops/resize.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kTwo = f32({2}, {0, 4});
const Tensor kFour = f32({4}, {1, 2, 3, 4});

Op resize(const char* mode, const char* coordinates = "half_pixel", int opset = 13) {
  Op op("Resize", opset);
  op.with("mode", mode).with("coordinate_transformation_mode", coordinates);
  return op;
}

std::vector<Tensor> by_scales(const Tensor& x, const Floats& scales) {
  return {x, absent(), f32({static_cast<std::int64_t>(scales.size())}, scales)};
}
std::vector<Tensor> by_sizes(const Tensor& x, const Ints& sizes) { return {x, absent(), absent(), i64(sizes)}; }

TEST(Resize, LinearFollowsTheCoordinates) {
  expect_near(resize("linear").run(by_scales(kTwo, {2}))[0].floats(), {0, 1, 3, 4});
  expect_near(resize("linear", "asymmetric").run(by_scales(kTwo, {2}))[0].floats(), {0, 2, 4, 4});
  expect_near(resize("linear", "align_corners").run(by_sizes(kTwo, {3}))[0].floats(), {0, 2, 4});
  expect_near(resize("linear", "align_corners").run(by_sizes(kTwo, {1}))[0].floats(), {0});
  expect_near(resize("linear", "pytorch_half_pixel").run(by_sizes(kFour, {1}))[0].floats(), {1});
  expect_near(resize("linear").run(by_sizes(kFour, {1}))[0].floats(), {2.5f});
}

TEST(Resize, NearestRoundsAsAsked) {
  const auto rounded = [](const char* how) {
    return resize("nearest", "asymmetric").with("nearest_mode", how).run(by_scales(kTwo, {2}))[0].floats();
  };
  EXPECT_EQ(rounded("round_prefer_floor"), (Floats{0, 0, 4, 4}));
  EXPECT_EQ(rounded("round_prefer_ceil"), (Floats{0, 4, 4, 4}));
  EXPECT_EQ(rounded("floor"), (Floats{0, 0, 4, 4}));
  EXPECT_EQ(rounded("ceil"), (Floats{0, 4, 4, 4}));
}

TEST(Resize, CubicWeighsFourElements) {
  const Floats y = resize("cubic").run(by_scales(kFour, {2}))[0].floats();
  ASSERT_EQ(y.size(), 8u);
  EXPECT_NEAR(y[2], 1.66796875f, 1e-6);  // Keys' weights at 0.75 past the first element, whose left neighbour repeats it
  EXPECT_NEAR(y[2] + y[5], 5, 1e-6);
  const Tensor flat = f32({3}, {7, 7, 7});
  expect_near(resize("cubic").with("exclude_outside", 1).run(by_scales(flat, {1.5f}))[0].floats(), {7, 7, 7, 7});
}

TEST(Resize, AntialiasStretchesTheKernel) {
  const Tensor x = f32({4}, {0, 4, 8, 12});
  expect_near(resize("linear", "half_pixel", 18).with("antialias", 1).run(by_scales(x, {0.5f}))[0].floats(), {2.5f, 9.5f});
  EXPECT_EQ(resize("nearest", "half_pixel", 18).with("antialias", 1).status(by_scales(x, {0.5f})), EVN_ERROR_INVALID_MODEL);
}

TEST(Resize, CropTakesTheRoiAndExtrapolates) {
  Op op = resize("linear", "tf_crop_and_resize");
  op.with("extrapolation_value", AttributeValue(-9.0f));
  expect_near(op.run({kFour, f32({2}, {0, 2}), absent(), i64({3})})[0].floats(), {1, 4, -9});
  expect_near(op.run({kFour, f32({2}, {1, 0}), absent(), i64({2})})[0].floats(), {4, 1});
  EXPECT_EQ(op.status(by_sizes(kFour, {3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(op.status({kFour, f32({2}, {0, NAN}), absent(), i64({3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Resize, IntegersAreRoundedFromCubicAndAntialias) {
  const Tensor x = tensor<std::uint8_t>({4}, {0, 1, 4, 9});
  EXPECT_EQ(resize("linear", "half_pixel", 18).with("antialias", 1).run(by_scales(x, {0.5f}))[0].values<std::uint8_t>(),
            (std::vector<std::uint8_t>{1, 6}));  // 0.875 and 6.125
  EXPECT_EQ(resize("cubic").run(by_sizes(x, {8}))[0].values<std::uint8_t>(), (std::vector<std::uint8_t>{0, 0, 0, 2, 3, 5, 8, 10}));
}

TEST(Resize, IntegersAreCutTowardsZeroAndNearestKeepsThemExact) {
  EXPECT_EQ(resize("linear").run(by_scales(tensor<std::uint8_t>({2}, {0, 255}), {2}))[0].values<std::uint8_t>(),
            (std::vector<std::uint8_t>{0, 63, 191, 255}));
  const std::int64_t big = (std::int64_t{1} << 60) + 1;
  EXPECT_EQ(resize("nearest").run(by_scales(i64({big}), {2}))[0].ints(), (Ints{big, big}));
}

TEST(Resize, OutputIsTheFloorOfTheScaledDimOrTheSize) {
  const Tensor x = f32({2, 3}, counting(6));
  EXPECT_EQ(resize("nearest").run(by_scales(x, {1, 1.9f}))[0].desc.shape, (Shape{2, 5}));
  EXPECT_EQ(resize("nearest").run(by_sizes(x, {1, 7}))[0].desc.shape, (Shape{1, 7}));
  EXPECT_EQ(Op("Resize", 18).with("axes", Ints{-1}).run(by_sizes(x, {7}))[0].desc.shape, (Shape{2, 7}));
}

TEST(Resize, AspectRatioIsKept) {
  const Tensor x = f32({2, 4}, counting(8));
  const auto kept = [&](const char* policy) {
    return Op("Resize", 18).with("keep_aspect_ratio_policy", policy).run(by_sizes(x, {4, 4}))[0].desc.shape;
  };
  EXPECT_EQ(kept("stretch"), (Shape{4, 4}));
  EXPECT_EQ(kept("not_larger"), (Shape{2, 4}));
  EXPECT_EQ(kept("not_smaller"), (Shape{4, 8}));
}

TEST(Resize, ExactlyOneOfScalesAndSizesIsGiven) {
  EXPECT_EQ(resize("nearest").status({kTwo}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("nearest").status({kTwo, absent(), f32({1}, {2}), i64({4})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("nearest").status({kTwo, f32({0}, {}), f32({0}, {}), i64({4})}), EVN_OK);
}

TEST(Resize, HostileScalesAndSizesAreRefused) {
  for (const float scale : {0.0f, -1.0f, NAN, INFINITY}) {
    EXPECT_EQ(resize("nearest").status(by_scales(kTwo, {scale})), EVN_ERROR_INVALID_MODEL);
  }
  EXPECT_EQ(resize("nearest").status(by_scales(kTwo, {1e30f})), EVN_ERROR_LIMIT);
  EXPECT_EQ(resize("nearest").status(by_scales(kTwo, {1, 1})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("nearest").status(by_sizes(kTwo, {0})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("nearest").status(by_sizes(f32({0}, {}), {2})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("area").status(by_scales(kTwo, {2})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("linear", "somewhere").status(by_scales(kTwo, {2})), EVN_ERROR_INVALID_MODEL);
}

TEST(Resize, UnknownDimsAndUnknownLists) {
  const Tensor scales = f32({2}, {1, 2});
  const Tensor sizes = i64({5, 6});
  EXPECT_EQ(resize("nearest").infer({desc({-1, 3}), {}, scales.desc}, {{}, {}, known(scales)})[0], (Shape{-1, 6}));
  EXPECT_EQ(resize("nearest").infer({desc({-1, 3}), {}, {}, sizes.desc}, {{}, {}, {}, known(sizes)})[0], (Shape{5, 6}));
  EXPECT_EQ(resize("nearest").infer({desc({2, 3}), {}, {}, sizes.desc})[0], (Shape{-1, -1}));
  EXPECT_EQ(Op("Resize", 18).with("axes", Ints{1}).infer({desc({2, 3}), {}, {}, desc({1}, DType::kInt64)})[0], (Shape{2, -1}));
}

TEST(Upsample, ScalesAreAnAttributeAndLaterAnInput) {
  EXPECT_EQ(Op("Upsample", 7).with("scales", AttributeValue(Floats{2})).run({kTwo})[0].floats(), (Floats{0, 0, 4, 4}));
  EXPECT_EQ(Op("Upsample", 9).run({kTwo, f32({1}, {2})})[0].floats(), (Floats{0, 0, 4, 4}));
  expect_near(Op("Upsample", 9).with("mode", "linear").run({kTwo, f32({1}, {2})})[0].floats(), {0, 2, 4, 4});
  EXPECT_EQ(Op("Upsample", 7).with("scales", AttributeValue(Floats{2, 2})).status({kTwo}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Resize", 10).run({kFour, f32({1}, {0.5f})})[0].floats(), (Floats{1, 3}));
}

}  // namespace
}  // namespace evn::test
