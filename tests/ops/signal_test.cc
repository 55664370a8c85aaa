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

// The plain sum: `count` values of a transform of `x`, which has a real and an imaginary part for each element, padded to `length`.
std::vector<double> plain_sum(const std::vector<double>& x, std::int64_t length, std::int64_t count, bool inverse) {
  std::vector<double> y;
  const double sign = inverse ? 1 : -1, unit = inverse ? 1 / static_cast<double>(length) : 1;
  for (std::int64_t k = 0; k < count; ++k) {
    double real = 0, imaginary = 0;
    for (std::int64_t n = 0; n < std::min(length, static_cast<std::int64_t>(x.size() / 2)); ++n) {
      const double angle = sign * 2 * M_PI * static_cast<double>(k * n % length) / static_cast<double>(length);
      const double a = x[static_cast<std::size_t>(2 * n)], b = x[static_cast<std::size_t>(2 * n + 1)];
      real += a * std::cos(angle) - b * std::sin(angle);
      imaginary += a * std::sin(angle) + b * std::cos(angle);
    }
    y.push_back(real * unit);
    y.push_back(imaginary * unit);
  }
  return y;
}

// [2, given, 3, parts] transformed along axis 1, each of its lines against the plain sum.
void expect_plain_sums(std::int64_t given, std::int64_t length, int parts, bool inverse, bool one_sided) {
  SCOPED_TRACE(testing::Message() << length << " of " << given << ", parts " << parts << " inverse " << inverse << " "
                                  << one_sided);
  constexpr std::int64_t kOuter = 2, kInner = 3;
  std::vector<double> x(static_cast<std::size_t>(kOuter * given * kInner * parts));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i * i % 101) + static_cast<double>(i % 7));
  const Tensor y = Op("DFT", 20)
                       .with("inverse", inverse ? 1 : 0)
                       .with("onesided", one_sided ? 1 : 0)
                       .run({tensor<double>({kOuter, given, kInner, parts}, x), tensor<std::int64_t>({}, {length}),
                             tensor<std::int64_t>({}, {1})})[0];
  const bool to_real = inverse && one_sided;
  const std::int64_t count = one_sided && !inverse ? length / 2 + 1 : length;
  ASSERT_EQ(y.desc.shape, (Shape{kOuter, count, kInner, to_real ? 1 : 2}));
  const std::vector<double> values = y.values<double>();
  for (std::int64_t line = 0; line < kOuter * kInner; ++line) {
    const auto place = [&](std::int64_t of, std::int64_t i) { return (line / kInner * of + i) * kInner + line % kInner; };
    std::vector<double> signal;
    for (std::int64_t i = 0; i < std::min(given, length); ++i) {
      const auto at = static_cast<std::size_t>(place(given, i) * parts);
      signal.push_back(x[at]);
      signal.push_back(parts == 2 ? x[at + 1] : 0);
    }
    if (to_real) {
      signal.resize(static_cast<std::size_t>(2 * length));
      for (std::int64_t i = length / 2 + 1; i < length; ++i) {
        signal[static_cast<std::size_t>(2 * i)] = signal[static_cast<std::size_t>(2 * (length - i))];
        signal[static_cast<std::size_t>(2 * i + 1)] = -signal[static_cast<std::size_t>(2 * (length - i) + 1)];
      }
    }
    const std::vector<double> expected = plain_sum(signal, length, count, inverse);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto at = static_cast<std::size_t>(place(count, k) * (to_real ? 1 : 2));
      ASSERT_NEAR(values[at], expected[static_cast<std::size_t>(2 * k)], 1e-11) << line << " " << k;
      if (!to_real) {
        ASSERT_NEAR(values[at + 1], expected[static_cast<std::size_t>(2 * k + 1)], 1e-11) << line << " " << k;
      }
    }
  }
}

TEST(Dft, EveryLengthIsThePlainSum) {
  // Each factor and pairs of them, primes and their multiples, and lengths that are longer or shorter than the signal.
  for (const std::int64_t length :
       {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,  16,  20,  21,  22,  24,  25,  26,
        27, 28, 30, 32, 34, 35, 36, 42, 49, 60, 62, 64, 70, 97, 100, 106, 120, 121, 128, 194, 210, 256}) {
    for (const std::int64_t given : {length, length + 3, length / 2 + 1}) {
      expect_plain_sums(given, length, 1, false, false);
      expect_plain_sums(given, length, 1, false, true);
      expect_plain_sums(given, length, 1, true, false);
      expect_plain_sums(given, length, 1, true, true);
      expect_plain_sums(given, length, 2, false, false);
      expect_plain_sums(given, length, 2, true, false);
      expect_plain_sums(given, length, 2, true, true);
    }
  }
}

TEST(Stft, FramesAreTransformsOfTheWindowedSignal) {
  for (const int parts : {1, 2}) {
    for (const std::int64_t length : {5, 12, 22}) {
      std::vector<double> x(static_cast<std::size_t>(2 * 40 * parts)), window;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i * i % 101));
      for (std::int64_t i = 0; i < length; ++i) window.push_back(0.5 + static_cast<double>(i % 3));
      const bool one_sided = parts == 1;
      const Tensor y =
          Op("STFT", 17)
              .with("onesided", one_sided ? 1 : 0)
              .run({tensor<double>({2, 40, parts}, x), tensor<std::int64_t>({}, {7}), tensor<double>({length}, window)})[0];
      const std::int64_t frames = (40 - length) / 7 + 1, count = one_sided ? length / 2 + 1 : length;
      ASSERT_EQ(y.desc.shape, (Shape{2, frames, count, 2}));
      const std::vector<double> values = y.values<double>();
      for (std::int64_t frame = 0; frame < 2 * frames; ++frame) {
        std::vector<double> signal;
        for (std::int64_t i = 0; i < length; ++i) {
          const auto at = static_cast<std::size_t>((frame / frames * 40 + frame % frames * 7 + i) * parts);
          const double weight = window[static_cast<std::size_t>(i)];
          signal.push_back(weight * x[at]);
          signal.push_back(parts == 2 ? weight * x[at + 1] : 0);
        }
        const std::vector<double> expected = plain_sum(signal, length, count, false);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(values[static_cast<std::size_t>(frame) * expected.size() + i], expected[i], 1e-11) << frame << " " << i;
        }
      }
    }
  }
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
  for (const std::int64_t half : {0, 1}) {
    EXPECT_THROW(Op("DFT", 20).with("onesided", 1).with("inverse", 1).infer({desc({1, half, 2})}), Error) << half;
  }
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
