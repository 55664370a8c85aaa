// Resize and Upsample along one axis: coordinates, interpolation, what gives the output's dims.
#include <algorithm>
#include <cmath>
#include <string_view>

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

// The coordinate of an output position, as a fraction.
struct Fraction {
  std::int64_t top, bottom;  // bottom > 0
  std::int64_t floor() const { return top / bottom - (top % bottom < 0 ? 1 : 0); }
  Fraction plus_half() const { return {2 * top + bottom, 2 * bottom}; }
  std::int64_t ceil() const { return -Fraction{-top, bottom}.floor(); }
  double value() const { return static_cast<double>(top) / static_cast<double>(bottom); }
};

Fraction coordinate_of(const std::string& mode, std::int64_t p, std::int64_t from, std::int64_t to) {
  if (mode == "asymmetric") return {p * from, to};
  if (mode == "tf_half_pixel_for_nn") return {(2 * p + 1) * from, 2 * to};
  if (mode == "align_corners") return to == 1 ? Fraction{0, 1} : Fraction{p * (from - 1), to - 1};
  if (mode == "pytorch_half_pixel" && to == 1) return {0, 1};
  return {(2 * p + 1) * from - to, 2 * to};
}

constexpr const char* kExactModes[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                       "align_corners", "asymmetric",           "tf_half_pixel_for_nn"};

std::int64_t rounded(const std::string& how, const Fraction& at) {
  if (how == "floor") return at.floor();
  if (how == "ceil") return at.ceil();
  const Fraction above = at.plus_half();
  return how == "round_prefer_ceil" ? above.floor() : above.ceil() - 1;
}

// Of all lengths up to 20, and some that float32 does not divide exactly.
std::vector<std::pair<std::int64_t, std::int64_t>> lengths() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all = {{14, 16}, {97, 131}, {640, 427}, {1000, 999}, {4099, 3001}, {1, 1000}};
  for (std::int64_t from = 1; from <= 20; ++from) {
    for (std::int64_t to = 1; to <= 20; ++to) all.emplace_back(from, to);
  }
  return all;
}

TEST(Resize, SizesGiveTheNearestElementOfTheExactRatio) {
  for (const char* coordinates : kExactModes) {
    for (const char* how : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      for (const auto& [from, to] : lengths()) {
        const Tensor x = f32({from}, counting(static_cast<int>(from)));
        const Floats y = resize("nearest", coordinates, 18).with("nearest_mode", how).run(by_sizes(x, {to}))[0].floats();
        for (std::int64_t p = 0; p < to; ++p) {
          // An axis that keeps its length is copied, whatever the formula says of it.
          const std::int64_t i = from == to ? p : rounded(how, coordinate_of(coordinates, p, from, to));
          const float expected = x.floats()[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, from - 1))];
          ASSERT_EQ(y[static_cast<std::size_t>(p)], expected)
              << coordinates << ", " << how << ", " << from << " to " << to << ", position " << p;
        }
      }
    }
  }
}

TEST(Resize, SizesGiveTheExactPlaceBetweenElements) {
  for (const char* coordinates : kExactModes) {
    for (const auto& [from, to] : lengths()) {
      if (from == to) continue;
      Floats values(static_cast<std::size_t>(from));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 17);
      const Floats y = resize("linear", coordinates, 18).run(by_sizes(f32({from}, values), {to}))[0].floats();
      for (std::int64_t p = 0; p < to; ++p) {
        const Fraction at = coordinate_of(coordinates, p, from, to);
        const auto element = [&](std::int64_t i) {
          return values[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, from - 1))];
        };
        const double weight = at.value() - static_cast<double>(at.floor());
        const double expected = (1 - weight) * element(at.floor()) + weight * element(at.floor() + 1);
        ASSERT_NEAR(y[static_cast<std::size_t>(p)], expected, 1e-5)
            << coordinates << ", " << from << " to " << to << ", position " << p;
      }
    }
  }
}

TEST(Resize, OneScaleForAllAxesIsARatioAsWell) {
  // 16 / 14 for both axes, which makes 8 of 7.
  Op op("Resize", 18);
  op.with("keep_aspect_ratio_policy", "not_larger")
      .with("coordinate_transformation_mode", "asymmetric")
      .with("nearest_mode", "floor");
  const Tensor y = op.run(by_sizes(f32({7, 14}, counting(98)), {100, 16}))[0];
  ASSERT_EQ(y.desc.shape, (Shape{8, 16}));
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) {
      EXPECT_EQ(y.floats()[static_cast<std::size_t>(i * 16 + j)],
                counting(98)[static_cast<std::size_t>(i * 14 / 16 * 14 + j * 14 / 16)]);
    }
  }
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

TEST(Resize, ABatchWithoutRowsHasNone) {
  const Tensor none = f32({0, 2}, {});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    EXPECT_EQ(resize(mode).run(by_sizes(none, {0, 3}))[0].desc.shape, (Shape{0, 3}));
    EXPECT_EQ(resize(mode).run(by_scales(none, {1, 1.5f}))[0].desc.shape, (Shape{0, 3}));
  }
  Op kept("Resize", 18);
  kept.with("keep_aspect_ratio_policy", "not_larger");
  EXPECT_EQ(kept.run(by_sizes(none, {0, 4}))[0].desc.shape, (Shape{0, 4}));
  EXPECT_EQ(resize("nearest").status(by_sizes(f32({1, 2}, {1, 2}), {0, 3})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(resize("nearest").status(by_sizes(none, {1, 3})), EVN_ERROR_INVALID_MODEL);
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
