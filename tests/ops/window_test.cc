// Conv, ConvTranspose and the pools: geometry, hand-checked sums, hostile attributes.
#include <cmath>

#include "ops/conv.h"
#include "ops/conv_transpose.h"
#include "ops/pool.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kImage = f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
const Tensor kOnes2 = f32({1, 1, 2, 2}, {1, 1, 1, 1});

TEST(Conv, SumsWindows) { EXPECT_EQ(Op("Conv", 11).run({kImage, kOnes2})[0].floats(), (Floats{12, 16, 24, 28})); }

TEST(Conv, PaddingCountsAsZeroAndBiasIsAdded) {
  const auto y = Op("Conv", 11).with("pads", Ints{1, 0, 0, 0}).run({kImage, kOnes2, f32({1}, {100})});
  EXPECT_EQ(y[0].desc.shape, (Shape{1, 1, 3, 2}));
  EXPECT_EQ(y[0].floats(), (Floats{103, 105, 112, 116, 124, 128}));
}

TEST(Conv, StridesAndDilations) {
  EXPECT_EQ(Op("Conv", 11).with("dilations", Ints{2, 2}).run({kImage, kOnes2})[0].floats(), (Floats{20}));
  EXPECT_EQ(Op("Conv", 11).with("strides", Ints{2, 1}).run({kImage, kOnes2})[0].floats(), (Floats{12, 16}));
}

TEST(Conv, GroupsSeeOnlyTheirChannels) {
  const Tensor x = f32({1, 2, 2}, {1, 2, 10, 20});
  const Tensor w = f32({2, 1, 1}, {3, 5});
  EXPECT_EQ(Op("Conv", 11).with("group", 2).run({x, w})[0].floats(), (Floats{3, 6, 50, 100}));
}

TEST(Conv, ThreeAxes) {
  const Tensor x = f32({1, 1, 2, 2, 2}, counting(8));
  const Tensor w = f32({1, 1, 2, 1, 2}, {1, 1, 1, 1});
  EXPECT_EQ(Op("Conv", 11).run({x, w})[0].floats(), (Floats{0 + 1 + 4 + 5, 2 + 3 + 6 + 7}));
}

TEST(Conv, SameUpperPadsTheEndAndSameLowerTheBeginning) {
  Op upper("Conv", 11);
  upper.with("auto_pad", "SAME_UPPER");
  const Window u = conv_window(upper.node(), {1, 1, 3, 3}, {1, 1, 2, 2});
  EXPECT_EQ(u.axis[0].pad_begin, 0);
  EXPECT_EQ(u.axis[0].pad_end, 1);
  EXPECT_EQ(u.axis[0].output, 3);
  Op lower("Conv", 11);
  lower.with("auto_pad", "SAME_LOWER");
  EXPECT_EQ(conv_window(lower.node(), {1, 1, 3, 3}, {1, 1, 2, 2}).axis[0].pad_begin, 1);
}

TEST(Conv, UnknownDimsStayUnknown) {
  Op op("Conv", 11);
  EXPECT_EQ(op.infer({desc({-1, 3, -1, 8}), desc({4, 3, 3, 3})})[0], (Shape{-1, 4, -1, 6}));
  EXPECT_EQ(op.infer({desc({1, -1, 8, 8}), desc({-1, 3, 3, -1})})[0], (Shape{1, -1, 6, -1}));
}

TEST(Conv, HostileAttributesAreInvalid) {
  const auto status = [](const char* name, const Ints& list) { return Op("Conv", 11).with(name, list).status({kImage, kOnes2}); };
  EXPECT_EQ(status("strides", {0, 1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("strides", {1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("strides", {1, 1, 1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("dilations", {1, 0}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("dilations", {1, std::int64_t{1} << 31}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("dilations", {1, 9}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("pads", {0, 0, 0}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("pads", {0, 0, 0, -1000000000}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("pads", {0, 0, 0, INT64_MAX}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("kernel_shape", {3, 3}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("kernel_shape", {2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).with("group", 0).status({kImage, kOnes2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).with("group", 2).status({kImage, kOnes2}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).with("auto_pad", "MOSTLY").status({kImage, kOnes2}), EVN_ERROR_INVALID_MODEL);
}

TEST(Conv, InputsThatDoNotFitAreInvalid) {
  EXPECT_EQ(Op("Conv", 11).status({kImage, kOnes2, f32({2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).status({kImage, f32({1, 2, 1, 1}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).status({kImage, f32({1, 1, 1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).status({f32({1, 1}, {1}), f32({1, 1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Conv", 11).status({kImage, tensor<double>({1, 1, 1, 1}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(ConvTranspose, SpreadsEachElementOverTheKernel) {
  const Tensor x = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Op("ConvTranspose", 11).run({x, kOnes2})[0].floats(), (Floats{1, 3, 2, 4, 10, 6, 3, 7, 4}));
  const auto strided = Op("ConvTranspose", 11).with("strides", Ints{2, 2}).run({x, kOnes2});
  EXPECT_EQ(strided[0].floats(), (Floats{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
}

TEST(ConvTranspose, OutputPaddingOutputShapeAndGroups) {
  const Tensor x = f32({1, 2, 2}, {1, 2, 3, 4});
  const Tensor w = f32({2, 1, 2}, {1, 1, 10, 10});
  const auto y = Op("ConvTranspose", 11).with("group", 2).with("strides", Ints{2}).with("output_padding", Ints{1}).run({x, w});
  EXPECT_EQ(y[0].floats(), (Floats{1, 1, 2, 2, 0, 30, 30, 40, 40, 0}));
  const auto shaped = Op("ConvTranspose", 11).with("group", 2).with("strides", Ints{2}).with("output_shape", Ints{3}).run({x, w});
  EXPECT_EQ(shaped[0].floats(), (Floats{1, 2, 2, 30, 40, 40}));
}

TEST(ConvTranspose, HostileAttributesAreInvalid) {
  const Tensor x = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  const auto status = [&](const char* name, const Ints& list) {
    return Op("ConvTranspose", 11).with(name, list).status({x, kOnes2});
  };
  EXPECT_EQ(status("pads", {9, 9, 9, 9}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("output_padding", {-1, 0}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("output_padding", {1}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("output_shape", {0, 3}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("output_shape", {3, 3, 3}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ConvTranspose", 11).with("group", 3).status({x, kOnes2}), EVN_ERROR_INVALID_MODEL);
}

// The full extent is below 0 where the input is empty.
TEST(ConvTranspose, AnOutputShapeThatNoMemoryHoldsIsRefused) {
  Op op("ConvTranspose", 11);
  op.with("strides", Ints{4}).with("output_shape", Ints{INT64_MAX});
  const Window w = conv_transpose_window(op.node(), {1, 1, 0}, {1, 1, 1});
  EXPECT_EQ(w.axis[0].output, INT64_MAX);
  EXPECT_EQ(w.axis[0].pad_begin, 0);
  EXPECT_EQ(w.axis[0].pad_end, 0);
  EXPECT_EQ(op.status({f32({1, 1, 0}, {}), f32({1, 1, 1}, {1})}), EVN_ERROR_LIMIT);
  EXPECT_EQ(op.status({f32({1, 1, 1}, {1}), f32({1, 1, 1}, {1})}), EVN_ERROR_LIMIT);
}

TEST(ConvTranspose, UnknownDimsStayUnknown) {
  EXPECT_EQ(Op("ConvTranspose", 11).infer({desc({1, 2, -1, 4}), desc({2, 3, 2, 2})})[0], (Shape{1, 3, -1, 5}));
}

TEST(MaxPool, GivesTheIndexOfTheFirstMaximum) {
  const Tensor x = f32({1, 2, 2, 2}, {1, 4, 4, 2, -1, -2, -3, -4});
  const auto y = Op("MaxPool", 12).with("kernel_shape", Ints{2, 2}).outputs(2).run({x});
  EXPECT_EQ(y[0].floats(), (Floats{4, -1}));
  EXPECT_EQ(y[1].ints(), (Ints{1, 4}));
  const auto columns = Op("MaxPool", 12).with("kernel_shape", Ints{2, 2}).with("storage_order", 1).outputs(2).run({x});
  EXPECT_EQ(columns[1].ints(), (Ints{2, 4}));
}

TEST(MaxPool, PaddingNeverWins) {
  const Tensor x = f32({1, 1, 2}, {-5, -7});
  const auto y = Op("MaxPool", 12).with("kernel_shape", Ints{2}).with("pads", Ints{1, 1}).run({x});
  EXPECT_EQ(y[0].floats(), (Floats{-5, -5, -7}));
}

TEST(MaxPool, CeilModeAddsAWindowUnlessItBeginsInThePadding) {
  const auto output = [](int input, const Ints& pads) {
    Op op("MaxPool", 12);
    op.with("kernel_shape", Ints{2}).with("strides", Ints{2}).with("ceil_mode", 1).with("pads", pads);
    return pool_window(op.node(), {1, 1, input}).axis[0].output;
  };
  EXPECT_EQ(output(4, {0, 0}), 2);
  EXPECT_EQ(output(5, {0, 0}), 3);
  EXPECT_EQ(output(4, {0, 1}), 2);
}

TEST(AveragePool, CeilModeHasOneWindowThatIsLargerThanTheImage) {
  const auto pool = [](std::int64_t stride) {
    return Op("AveragePool", 19).with("kernel_shape", Ints{9}).with("strides", Ints{stride}).with("ceil_mode", 1);
  };
  const Tensor x = f32({1, 1, 3}, {1, 2, 6});
  EXPECT_EQ(pool(9).run({x})[0].floats(), (Floats{3}));
  EXPECT_EQ(pool(7).run({x})[0].floats(), (Floats{3}));
  EXPECT_EQ(pool(6).status({x}), EVN_ERROR_INVALID_MODEL);  // ceil((3 - 9) / 6) + 1 is 0
}

TEST(MaxPool, DilationsAndBytes) {
  const Tensor x = tensor<std::uint8_t>({1, 1, 4}, {1, 9, 3, 200});
  EXPECT_EQ(Op("MaxPool", 12).with("kernel_shape", Ints{2}).with("dilations", Ints{2}).run({x})[0].values<std::uint8_t>(),
            (std::vector<std::uint8_t>{3, 200}));
}

TEST(AveragePool, CountIncludePadDividesByThePaddedWindow) {
  const Tensor x = f32({1, 1, 2}, {2, 4});
  EXPECT_EQ(Op("AveragePool", 11).with("kernel_shape", Ints{2}).with("pads", Ints{1, 0}).run({x})[0].floats(), (Floats{2, 3}));
  Op with_pads("AveragePool", 11);
  with_pads.with("kernel_shape", Ints{2}).with("pads", Ints{1, 0}).with("count_include_pad", 1);
  EXPECT_EQ(with_pads.run({x})[0].floats(), (Floats{1, 3}));
}

TEST(AveragePool, WhatLiesBeyondThePaddingIsNotCounted) {
  const Tensor x = f32({1, 1, 3}, {1, 2, 6});
  Op op("AveragePool", 19);
  op.with("kernel_shape", Ints{2}).with("strides", Ints{2}).with("ceil_mode", 1).with("count_include_pad", 1);
  EXPECT_EQ(op.run({x})[0].floats(), (Floats{1.5f, 6}));
}

TEST(AveragePool, HugeKernelInHugePaddingEndsAtOnce) {
  const std::int64_t huge = (std::int64_t{1} << 31) - 1;
  Op op("AveragePool", 11);
  op.with("kernel_shape", Ints{huge, 1, huge}).with("pads", Ints{huge - 1, 0, huge - 1, 0, 0, 0});
  EXPECT_EQ(op.run({f32({1, 1, 1, 1, 1}, {7})})[0].floats(), (Floats{7}));
}

TEST(Pool, AWindowHasNoMorePlacesThan64BitsCount) {
  const Tensor scale = f32({}, {1}), zero = tensor<std::uint8_t>({}, {3});
  const std::vector<Tensor> bytes = {tensor<std::uint8_t>({1, 1, 1, 1, 1}, {7}), scale, zero, scale, zero};
  const auto pool = [](const char* name, int opset, std::int64_t size) {
    Op op(name, opset);
    return op.with("kernel_shape", Ints{size, size, size}).with("pads", Ints{size - 1, size - 1, size - 1, 0, 0, 0});
  };
  const std::int64_t fits = std::int64_t{1} << 20, wide = std::int64_t{1} << 22;  // 2^60 and 2^66 places
  Op average = pool("com.microsoft::QLinearAveragePool", 1, fits).with("count_include_pad", 1);
  EXPECT_EQ(average.run(bytes)[0].values<std::uint8_t>(), (std::vector<std::uint8_t>{3}));
  for (const int include : {0, 1}) {
    average = pool("com.microsoft::QLinearAveragePool", 1, wide).with("count_include_pad", include);
    EXPECT_EQ(average.status(bytes), EVN_ERROR_LIMIT) << include;
  }
  const Tensor x = f32({1, 1, 1, 1, 1}, {7});
  for (const char* name : {"MaxPool", "AveragePool", "LpPool"}) {
    EXPECT_EQ(pool(name, 22, fits).status({x}), EVN_OK) << name;
    EXPECT_EQ(pool(name, 22, wide).status({x}), EVN_ERROR_LIMIT) << name;
  }
}

TEST(Conv, AKernelWithoutChannelsHasNoMorePlacesThan64BitsCount) {
  const auto status = [](std::int64_t size) {
    Op op("Conv", 11);
    op.with("pads", Ints{size - 1, size - 1, size - 1, 0, 0, 0});
    return op.status({f32({1, 0, 1, 1, 1}, {}), f32({1, 0, size, size, size}, {})});
  };
  EXPECT_EQ(status(std::int64_t{1} << 20), EVN_OK);
  EXPECT_EQ(status(std::int64_t{1} << 30), EVN_ERROR_LIMIT);
}

TEST(Pool, HostileAttributesAreInvalid) {
  EXPECT_EQ(Op("MaxPool", 12).with("kernel_shape", Ints{0, 1}).status({kImage}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("MaxPool", 12).with("kernel_shape", Ints{2}).status({kImage}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("MaxPool", 12).with("kernel_shape", Ints{4, 4}).status({kImage}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("AveragePool", 11).with("kernel_shape", Ints{-1, 2}).status({kImage}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("AveragePool", 11).with("kernel_shape", Ints{2, 2}).with("strides", Ints{0, 0}).status({kImage}),
            EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("AveragePool", 11).with("kernel_shape", Ints{2, 2}).with("count_include_pad", 2).status({kImage}),
            EVN_ERROR_INVALID_MODEL);
}

TEST(Pool, FourSpatialAxesAreUnsupported) {
  EXPECT_EQ(Op("MaxPool", 12).with("kernel_shape", Ints{1, 1, 1, 1}).status({f32({1, 1, 1, 1, 1, 1}, {1})}), EVN_ERROR_UNSUPPORTED);
}

TEST(GlobalPool, ReducesEachPlane) {
  EXPECT_EQ(Op("GlobalAveragePool", 11).run({f32({1, 2, 1, 2}, {1, 3, 5, 9})})[0].floats(), (Floats{2, 7}));
  const auto y = Op("GlobalMaxPool", 11).run({f32({1, 2, 1, 2}, {1, 3, -5, -9})});
  EXPECT_EQ(y[0].desc.shape, (Shape{1, 2, 1, 1}));
  EXPECT_EQ(y[0].floats(), (Floats{3, -5}));
}

TEST(GlobalPool, NanStaysAndUnknownDimsAreGone) {
  EXPECT_TRUE(std::isnan(Op("GlobalMaxPool", 11).run({f32({1, 1, 3}, {1, NAN, 3})})[0].floats()[0]));
  EXPECT_TRUE(std::isnan(Op("GlobalAveragePool", 11).run({f32({1, 1, 0}, {})})[0].floats()[0]));
  EXPECT_EQ(Op("GlobalAveragePool", 11).infer({desc({-1, -1, -1, 7})})[0], (Shape{-1, -1, 1, 1}));
  EXPECT_EQ(Op("GlobalMaxPool", 11).status({f32({2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test
