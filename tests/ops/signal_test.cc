// Spectra, caches, grids and recurrences: where a rule is easy to get wrong, and what is refused.
#include <cmath>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

// Expects a transform's parts within 1e-5.
void expect_parts(const Tensor& y, const Floats& expected) {
  const Floats values = y.floats();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
}

TEST(Dft, OfARealSignalAndBack) {
  const Tensor x = f32({1, 4, 1}, {1, 2, 3, 4});
  const Tensor spectrum = Op("DFT", 20).run({x})[0];
  expect_parts(spectrum, {10, 0, -2, 2, -2, 0, -2, -2});
  expect_parts(Op("DFT", 20).with("inverse", 1).run({spectrum})[0], {1, 0, 2, 0, 3, 0, 4, 0});
  const Tensor half = Op("DFT", 20).with("onesided", 1).run({x})[0];
  EXPECT_EQ(half.desc.shape, (Shape{1, 3, 2}));
  expect_parts(Op("DFT", 20).with("onesided", 1).with("inverse", 1).run({half})[0], {1, 2, 3, 4});
}

TEST(Dft, LengthCutsAndPads) {
  const Tensor x = f32({1, 3, 1}, {1, 1, 1});
  expect_parts(Op("DFT", 20).run({x, tensor<std::int64_t>({}, {2})})[0], {2, 0, 0, 0});
  EXPECT_EQ(Op("DFT", 20).run({x, tensor<std::int64_t>({}, {5})})[0].desc.shape, (Shape{1, 5, 2}));
}

TEST(Dft, WhatDoesNotFitIsRefused) {
  const Tensor x = f32({1, 3, 1}, {1, 1, 1}), complex = f32({1, 3, 2}, Floats(6, 1));
  const auto scalar = [](std::int64_t v) { return tensor<std::int64_t>({}, {v}); };
  EXPECT_EQ(Op("DFT", 20).status({x, scalar(0)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("DFT", 20).status({x, scalar(-5)}), EVN_ERROR_INVALID_MODEL);
  for (const std::int64_t axis : {std::int64_t{2}, std::int64_t{3}, std::int64_t{-1}, std::int64_t{-4}, INT64_MIN}) {
    EXPECT_EQ(Op("DFT", 20).status({x, scalar(3), scalar(axis)}), EVN_ERROR_INVALID_MODEL) << axis;
  }
  EXPECT_EQ(Op("DFT", 20).with("onesided", 1).status({complex}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("DFT", 20).status({f32({1, 2, 3}, Floats(6, 1))}), EVN_ERROR_INVALID_MODEL);
}

TEST(Stft, FramesThatDoNotFitAreRefused) {
  const Tensor x = f32({1, 8, 1}, Floats(8, 1));
  const auto scalar = [](std::int64_t v) { return tensor<std::int64_t>({}, {v}); };
  const auto status = [&](std::int64_t step, std::int64_t length) {
    return Op("STFT", 17).status({x, scalar(step), {}, scalar(length)});
  };
  EXPECT_EQ(status(2, 4), EVN_OK);
  EXPECT_EQ(status(0, 4), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(-1, 4), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(2, 0), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(2, 9), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("STFT", 17).status({x, scalar(2), f32({3}, {1, 1, 1}), scalar(4)}), EVN_ERROR_INVALID_MODEL);
}

TEST(Windows, SizesAndTypesAreChecked) {
  const auto scalar = [](std::int64_t v) { return tensor<std::int64_t>({}, {v}); };
  EXPECT_EQ(Op("HannWindow", 17).run({scalar(4)})[0].floats()[2], 1.0f);
  EXPECT_EQ(Op("HannWindow", 17).run({scalar(0)})[0].desc.shape, (Shape{0}));
  EXPECT_EQ(Op("HannWindow", 17).status({scalar(-1)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("HannWindow", 17).with("output_datatype", 8).status({scalar(4)}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op("HannWindow", 17).with("output_datatype", -3).status({scalar(4)}), EVN_ERROR_UNSUPPORTED);
}

TEST(MelWeightMatrix, BandsOutsideTheSpectrumAreRefused) {
  const auto status = [](std::int64_t rate, float low, float high) {
    const auto scalar = [](std::int64_t v) { return tensor<std::int64_t>({}, {v}); };
    return Op("MelWeightMatrix", 17).status({scalar(8), scalar(64), scalar(rate), f32({}, {low}), f32({}, {high})});
  };
  EXPECT_EQ(status(8000, 0, 4000), EVN_OK);
  EXPECT_EQ(status(8000, 0, 90000), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, 0, 4000), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(8000, -900, 4000), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(8000, 0, NAN), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(TensorScatter, PositionsOutsideTheCacheAreRefused) {
  const Tensor cache = f32({1, 4, 1}, {0, 0, 0, 0}), update = f32({1, 2, 1}, {1, 2});
  EXPECT_EQ(Op("TensorScatter", 24).run({cache, update, i64({2})})[0].floats(), (Floats{0, 0, 1, 2}));
  EXPECT_EQ(Op("TensorScatter", 24).with("mode", "circular").run({cache, update, i64({7})})[0].floats(), (Floats{2, 0, 0, 1}));
  for (const std::int64_t first : {std::int64_t{3}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(Op("TensorScatter", 24).status({cache, update, i64({first})}), EVN_ERROR_INVALID_ARGUMENT) << first;
  }
  EXPECT_EQ(Op("TensorScatter", 24).with("mode", "sideways").status({cache, update}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("TensorScatter", 24).with("axis", 0).status({cache, update}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("TensorScatter", 24).status({update, cache}), EVN_ERROR_INVALID_MODEL);
}

TEST(Col2Im, BlocksThatDoNotFitAreRefused) {
  const auto status = [](const Shape& x, const Ints& image, const Ints& block, const Ints& strides = {1, 1}) {
    return Op("Col2Im", 18)
        .with("strides", strides)
        .status({f32(x, Floats(static_cast<std::size_t>(x.elements()), 1)), i64(image), i64(block)});
  };
  EXPECT_EQ(status({1, 4, 4}, {3, 3}, {2, 2}), EVN_OK);
  EXPECT_EQ(status({1, 4, 4}, {1, 3}, {2, 2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 4, 5}, {3, 3}, {2, 2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 5, 4}, {3, 3}, {2, 2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 4, 4}, {3, 3}, {2, 0}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 4, 4}, {3, 3}, {2, 2}, {0, 1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 4, 4}, {3, INT64_MAX}, {2, 2}), EVN_ERROR_LIMIT);
  EXPECT_EQ(status({1, 4, 4}, {3, 3, 3}, {2, 2}), EVN_ERROR_INVALID_MODEL);
}

TEST(CenterCropPad, OddElementsGoAtTheEnd) {
  EXPECT_EQ(Op("CenterCropPad", 18).run({f32({5}, {1, 2, 3, 4, 5}), i64({2})})[0].floats(), (Floats{2, 3}));
  EXPECT_EQ(Op("CenterCropPad", 18).run({f32({2}, {1, 2}), i64({5})})[0].floats(), (Floats{0, 1, 2, 0, 0}));
  EXPECT_EQ(Op("CenterCropPad", 18).status({f32({2}, {1, 2}), i64({-1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("CenterCropPad", 18).with("axes", Ints{0, 0}).status({f32({2}, {1, 2}), i64({1, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Unique, NanIsOneElementBehindAllOthers) {
  const std::vector<Tensor> y = Op("Unique", 11).outputs(4).run({f32({5}, {NAN, 2, -1, NAN, 2})});
  EXPECT_EQ(y[0].desc.shape, (Shape{3}));
  EXPECT_TRUE(std::isnan(y[0].floats()[2]));
  EXPECT_EQ(y[1].ints(), (Ints{2, 1, 0}));
  EXPECT_EQ(y[2].ints(), (Ints{2, 1, 0, 2, 1}));
  EXPECT_EQ(y[3].ints(), (Ints{1, 2, 2}));
}

TEST(BitShift, OfSignedNumbersKeepsTheSign) {
  const auto shift = [](const char* direction, std::int32_t x, std::int32_t by) {
    return Op("BitShift", 28).with("direction", direction).run({i32({1}, {x}), i32({1}, {by})})[0].values<std::int32_t>()[0];
  };
  EXPECT_EQ(shift("RIGHT", -9, 1), -5);
  EXPECT_EQ(shift("RIGHT", -9, 32), -1);
  EXPECT_EQ(shift("RIGHT", -9, -1), -1);
  EXPECT_EQ(shift("RIGHT", 9, -1), 0);
  EXPECT_EQ(shift("LEFT", 1, 31), INT32_MIN);
  EXPECT_EQ(shift("LEFT", 1, 32), 0);
  EXPECT_EQ(shift("LEFT", 1, -1), 0);
}

TEST(LinearAttention, RulesAndHeadsAreChecked) {
  const Tensor x = f32({1, 2, 4}, {1, 0, 0, 1, 1, 1, 0, 0});
  const auto status = [&](const char* rule, int heads, int query_heads) {
    return Op("LinearAttention", 27)
        .with("update_rule", rule)
        .with("kv_num_heads", heads)
        .with("q_num_heads", query_heads)
        .status({x, x, x});
  };
  EXPECT_EQ(status("linear", 2, 2), EVN_OK);
  EXPECT_EQ(status("gated", 2, 2), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("delta", 2, 2), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("squared", 2, 2), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("linear", 0, 2), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("linear", 3, 3), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("linear", 2, 3), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test
