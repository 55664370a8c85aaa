// Conv and ConvTranspose on the CPU: shapes with remainders in every direction, groups, strides, dilations, pads, epilogues.
#include "tests/backends/cpu/kernel_check.h"
#include "tests/support/turn.h"

namespace evn::test::conv_test {
namespace {

struct Spatial {
  std::int64_t h, w, kh, kw, sh, sw, dh, dw, pt, pl, pb, pr;
};

KernelCheck conv(std::int64_t n, std::int64_t cin, std::int64_t cout, std::int64_t group, const Spatial& s, bool bias = true) {
  KernelCheck c("Conv");
  c.input(Shape{n, cin, s.h, s.w}).weight(Shape{cout, cin / group, s.kh, s.kw});
  if (bias) c.input(Shape{cout});
  c.integer("group", group).ints("strides", {s.sh, s.sw}).ints("dilations", {s.dh, s.dw}).ints("pads", {s.pt, s.pl, s.pb, s.pr});
  return c;
}

TEST(CpuConv, OneByOneOfEverySize) {
  for (std::int64_t hw : {1, 2, 3, 4, 5, 7, 14, 17}) {
    for (std::int64_t cout : {1, 3, 8, 17, 40}) {
      conv(2, 19, cout, 1, {hw, hw, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}).kernels({"conv_gemm", "conv_nhwc"}).run();
    }
  }
}

TEST(CpuConv, KernelsStridesDilationsAndPads) {
  const Spatial cases[] = {
      {9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},    {13, 11, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1}, {20, 37, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2},
      {17, 19, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3},  {12, 50, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2}, {15, 16, 3, 1, 3, 3, 1, 1, 0, 4, 1, 0},
      {8, 70, 1, 5, 1, 2, 1, 3, 0, 6, 0, 6},   {6, 5, 4, 4, 1, 1, 1, 1, 3, 3, 3, 3},   {5, 5, 3, 3, 1, 1, 1, 1, 5, 5, 5, 5},
      {33, 100, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1}, {9, 130, 3, 3, 1, 4, 1, 1, 1, 1, 1, 1}, {14, 14, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0},
  };
  for (const Spatial& s : cases) {
    conv(1, 3, 10, 1, s).kernels({"conv_gemm", "conv_nhwc"}).run();
    conv(2, 8, 12, 4, s, false).kernel("conv_gemm").run();
    conv(2, 40, 50, 2, s).kernels({"conv_gemm", "conv_nhwc"}).run();
  }
}

TEST(CpuConv, LongInnerDimensionIsCarriedBetweenBlocks) {
  conv(1, 70, 24, 1, {7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}).kernels({"conv_gemm", "conv_nhwc"}).run();
  conv(1, 600, 33, 1, {3, 17, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}).kernels({"conv_gemm", "conv_nhwc"}).run();
  conv(1, 300, 20, 1, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}).step(EpilogueOpKind::kRelu).kernels({"conv_gemm", "conv_nhwc"}).run();
  conv(2, 16, 20, 1, {300, 33, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}).kernels({"conv_gemm", "conv_nhwc"}).run();
  conv(1, 64, 300, 1, {14, 14, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}).kernels({"conv_gemm", "conv_nhwc"}).run();
}

// A weight that is computed, as in training.
TEST(CpuConv, ComputedWeights) {
  const Spatial cases[] = {
      {9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},    {13, 11, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},  {20, 37, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2},
      {17, 19, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3},  {12, 50, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2},  {15, 16, 3, 1, 3, 3, 1, 1, 0, 4, 1, 0},
      {8, 70, 1, 5, 1, 2, 1, 3, 0, 6, 0, 6},   {5, 5, 3, 3, 1, 1, 1, 1, 5, 5, 5, 5},    {14, 14, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0},
      {33, 100, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1}, {1, 1300, 1, 3, 1, 1, 1, 2, 0, 0, 0, 1},
  };
  const auto computed = [](std::int64_t n, std::int64_t cin, std::int64_t cout, std::int64_t group, const Spatial& s, bool bias) {
    KernelCheck c("Conv");
    c.input(Shape{n, cin, s.h, s.w}).input(Shape{cout, cin / group, s.kh, s.kw});
    if (bias) c.input(Shape{cout});
    c.integer("group", group).ints("strides", {s.sh, s.sw}).ints("dilations", {s.dh, s.dw});
    return c.ints("pads", {s.pt, s.pl, s.pb, s.pr});
  };
  for (const Spatial& s : cases) {
    computed(1, 3, 10, 1, s, false).kernels({"conv_gemm", "conv_dynamic_weight"}).run();
    if (s.sh == 1 && s.sw == 1)
      computed(2, 3 * 4, 3 * 5, 3, s, true).step(EpilogueOpKind::kRelu).kernel("conv_dynamic_weight").run();
    computed(3, 8, 70, 2, s, true).step(EpilogueOpKind::kRelu).kernel("conv_dynamic_weight").run();
  }
  computed(5, 70, 130, 1, {7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, true)
      .step(EpilogueOpKind::kGelu)
      .kernel("conv_dynamic_weight")
      .run();
}

TEST(CpuConv, TransposedByComputedWeights) {
  const Spatial cases[] = {
      {9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},  {7, 11, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1}, {6, 5, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0},
      {5, 30, 1, 1, 3, 2, 1, 1, 0, 0, 0, 0}, {8, 9, 2, 3, 3, 2, 2, 3, 1, 0, 2, 3},  {20, 31, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1},
  };
  for (const Spatial& s : cases) {
    for (const std::int64_t group : {1, 2}) {
      KernelCheck c("ConvTranspose");
      c.input(Shape{3, 10, s.h, s.w}).input(Shape{10, 18 / group, s.kh, s.kw}).input(Shape{18});
      c.integer("group", group).ints("strides", {s.sh, s.sw}).ints("dilations", {s.dh, s.dw});
      if (s.sh > 1) c.ints("output_padding", {1, 0});
      c.ints("pads", {s.pt, s.pl, s.pb, s.pr}).step(EpilogueOpKind::kRelu).kernel("conv_transpose_dynamic_weight").run();
    }
  }
}

// Strides, dilations and pads in all three directions, the kernel's and the image's sizes each of their own.
struct Volume {
  std::vector<std::int64_t> size, kernel, strides, dilations, pads;
};

std::vector<Volume> volumes() {
  return {{{4, 6, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
          {{5, 7, 40}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}},
          {{5, 8, 13}, {2, 3, 4}, {2, 1, 2}, {1, 2, 1}, {0, 1, 2, 1, 0, 3}},
          {{3, 5, 5}, {3, 1, 2}, {1, 3, 1}, {2, 1, 3}, {2, 0, 1, 2, 0, 1}},
          {{1, 9, 9}, {3, 3, 3}, {1, 1, 3}, {1, 1, 1}, {1, 0, 0, 1, 0, 0}},
          {{6, 4, 4}, {4, 4, 4}, {1, 1, 1}, {1, 1, 1}, {3, 3, 3, 3, 3, 3}}};
}

Shape volume_shape(std::int64_t n, std::int64_t c, const std::vector<std::int64_t>& size) {
  return {n, c, size[0], size[1], size[2]};
}

TEST(CpuConv, Volumes) {
  for (const Volume& v : volumes()) {
    for (const std::int64_t group : {1, 2, 6}) {
      KernelCheck c("Conv");
      c.input(volume_shape(2, 6, v.size)).weight(volume_shape(12, 6 / group, v.kernel)).input(Shape{12});
      c.integer("group", group).ints("strides", v.strides).ints("dilations", v.dilations).ints("pads", v.pads);
      c.step(EpilogueOpKind::kRelu).kernel("conv_gemm").run();
    }
  }
}

TEST(CpuConv, VolumesByComputedWeights) {
  for (const Volume& v : volumes()) {
    for (const std::int64_t group : {1, 2}) {
      KernelCheck c("Conv");
      c.input(volume_shape(2, 6, v.size)).input(volume_shape(18, 6 / group, v.kernel)).input(Shape{18});
      c.integer("group", group).ints("strides", v.strides).ints("dilations", v.dilations).ints("pads", v.pads);
      c.step(EpilogueOpKind::kRelu)
          .kernel(v.kernel == std::vector<std::int64_t>{1, 1, 1} ? "conv_gemm" : "conv_dynamic_weight")
          .run();
      KernelCheck t("ConvTranspose");
      t.input(volume_shape(2, 6, v.size)).input(volume_shape(6, 18 / group, v.kernel)).input(Shape{18});
      t.integer("group", group)
          .ints("strides", v.strides)
          .ints("dilations", v.dilations)
          .kernel("conv_transpose_dynamic_weight")
          .run();
    }
  }
}

TEST(CpuConv, TransposedVolumes) {
  for (const Volume& v : volumes()) {
    for (const std::int64_t group : {1, 2}) {
      KernelCheck c("ConvTranspose");
      c.input(volume_shape(2, 6, v.size)).weight(volume_shape(6, 5, v.kernel)).input(Shape{5 * group});
      c.integer("group", group).ints("strides", v.strides).ints("dilations", v.dilations).ints("pads", v.pads);
      c.kernel("conv_transpose_gemm").run();
    }
  }
}

TEST(CpuConv, FewInputChannels) {
  const Spatial cases[] = {
      {32, 45, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1}, {33, 30, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {40, 61, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3},
      {9, 8, 5, 4, 3, 2, 1, 1, 0, 9, 7, 2},   {3, 3, 3, 3, 2, 2, 1, 1, 5, 6, 5, 6},   {20, 120, 3, 3, 3, 1, 1, 1, 0, 0, 0, 0},
      {5, 3, 2, 1, 5, 2, 1, 1, 1, 0, 0, 1},   {1, 1, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},   {70, 28, 16, 3, 1, 1, 1, 1, 15, 0, 3, 2},
  };
  for (const Spatial& s : cases) {
    for (const std::int64_t cout : {6, 8, 16, 19, 24, 32, 53}) conv(2, 3, cout, 1, s, cout != 16).kernel("conv_few_channels").run();
    conv(1, 1, 40, 1, s).step(EpilogueOpKind::kRelu).kernel("conv_few_channels").run();
    conv(1, 4, 12, 1, s)
        .step(EpilogueOpKind::kClip, -0.3f, 0.4f)
        .step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f)
        .kernel("conv_few_channels")
        .run();
    conv(1, 2, 30, 1, s)
        .step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f)
        .step(EpilogueOpKind::kSigmoid)
        .kernel("conv_few_channels")
        .run();
  }
  KernelCheck("Conv")
      .input(Shape{2, 3, 40})
      .weight(Shape{11, 3, 5})
      .ints("pads", {2, 2})
      .ints("strides", {2})
      .kernel("conv_few_channels")
      .run();
}

TEST(CpuConv, Winograd) {
  const std::vector<std::string> names = {"conv_gemm", "conv_nhwc", "conv_winograd"};
  const InTurn widths(3);
  const std::int64_t all_widths[] = {9, 13, 18};
  for (const std::int64_t h : {9, 12, 14, 15}) {
    for (int i = widths.first; i <= 3; i += widths.step) {
      for (const std::int64_t pad : {0, 1, 3})
        conv(2, 19, 37, 1, {h + 4, all_widths[i - 1] + 4, 3, 3, 1, 1, 1, 1, pad, 1, 1, pad}).kernels(names).run();
    }
  }
  const std::vector<std::string> small = {"conv_gemm", "conv_nhwc", "conv_winograd_small"};
  conv(2, 257, 260, 1, {6, 9, 3, 3, 1, 1, 1, 1, 1, 0, 1, 0}).kernels(small).run();
  conv(1, 260, 257, 1, {7, 8, 3, 3, 1, 1, 1, 1, 0, 1, 1, 1}).step(EpilogueOpKind::kRelu).kernels(small).run();
  conv(1, 256, 256, 1, {14, 14, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}).kernels(small).run();
  const Spatial s = {30, 41, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  conv(1, 64, 64, 1, s, false).kernels(names).run();
  conv(1, 150, 16, 1, s).step(EpilogueOpKind::kRelu).kernels(names).run();
  conv(1, 16, 150, 1, s)
      .step(EpilogueOpKind::kClip, -0.3f, 0.4f)
      .step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f)
      .step(EpilogueOpKind::kSigmoid)
      .kernels(names)
      .run();
}

TEST(CpuConv, Depthwise) {
  const Spatial cases[] = {
      {9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},   {14, 14, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2},  {15, 40, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
      {56, 57, 5, 5, 2, 2, 1, 1, 2, 2, 2, 2}, {30, 33, 3, 3, 1, 1, 3, 3, 3, 3, 3, 3},  {20, 20, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3},
      {11, 70, 3, 3, 3, 3, 1, 1, 0, 0, 0, 0}, {8, 90, 1, 9, 1, 1, 1, 1, 0, 4, 0, 4},   {200, 130, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {3, 3, 3, 3, 1, 1, 1, 1, 4, 4, 4, 4},   {48, 320, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1}, {17, 33, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1},
      {12, 29, 3, 7, 2, 1, 2, 1, 2, 3, 1, 2}, {9, 600, 7, 7, 1, 1, 1, 1, 3, 0, 3, 5},  {4, 3, 1, 7, 1, 1, 1, 1, 0, 9, 0, 8},
  };
  for (const Spatial& s : cases) {
    conv(2, 5, 5, 5, s).kernel("conv_depthwise").run();
    conv(2, 21, 21, 21, s).kernel("conv_depthwise_nhwc").run();
  }
  conv(1, 40, 40, 40, {7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, false)
      .step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f)
      .kernel("conv_depthwise_nhwc")
      .run();
}

// Every place of a block of outputs at every border, with tails of channels.
TEST(CpuConv, DepthwiseOfSmallImages) {
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (const std::int64_t down : {1, 2}) {
      for (const std::int64_t across : {1, 2}) {
        for (std::int64_t size = 2; size <= 11; ++size) {
          const std::int64_t pad = kernel / 2;
          const Spatial s = {size, 13 - size, kernel, kernel, down, across, 1, 1, pad, pad, pad, pad};
          conv(1, 19, 19, 19, s).step(EpilogueOpKind::kClip, -0.5f, 0.4f).kernel("conv_depthwise_nhwc").run();
          conv(1, 9, 9, 9, s, false).step(EpilogueOpKind::kSwish, 1.2f).kernel("conv_depthwise_nhwc").run();
        }
      }
    }
  }
}

TEST(CpuConv, DepthMultiplierIsAGroupedProduct) {
  conv(1, 4, 8, 4, {9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}).kernel("conv_gemm").run();
}

TEST(CpuConv, EveryEpilogueStepAndChains) {
  const Spatial s = {10, 13, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  const EpilogueOp steps[] = {{EpilogueOpKind::kRelu, 0, 0},
                              {EpilogueOpKind::kClip, -0.3f, 0.4f},
                              {EpilogueOpKind::kLeakyRelu, 0.1f, 0},
                              {EpilogueOpKind::kHardSigmoid, 0.2f, 0.5f},
                              {EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f},
                              {EpilogueOpKind::kSigmoid, 0, 0},
                              {EpilogueOpKind::kTanh, 0, 0},
                              {EpilogueOpKind::kScale, -1.5f, 0},
                              {EpilogueOpKind::kOffset, 0.25f, 0},
                              {EpilogueOpKind::kGelu, 0, 0},
                              {EpilogueOpKind::kGeluTanh, 0, 0},
                              {EpilogueOpKind::kSwish, 1.3f, 0}};
  for (const EpilogueOp& a : steps) {
    for (const std::int64_t group : {1, 6}) {
      const std::vector<std::string> names =
          group == 1 ? std::vector<std::string>{"conv_gemm", "conv_nhwc"} : std::vector<std::string>{"conv_depthwise"};
      conv(1, 6, 6, group, s).step(a.kind, a.a, a.b).kernels(names).run();
      conv(1, 6, 6, group, s)
          .step(EpilogueOpKind::kRelu)
          .step(a.kind, a.a, a.b)
          .step(EpilogueOpKind::kOffset, -0.1f)
          .kernels(names)
          .run();
    }
  }
}

TEST(CpuConv, HardSwishAndASumOfItsMultiple) {
  const Spatial s = {10, 13, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto check = [&](std::int64_t cin, std::int64_t cout, std::int64_t group) {
    return conv(1, cin, cout, group, s).step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f);
  };
  for (const bool scaled : {false, true}) {
    const auto end = [&](KernelCheck c) {
      return scaled ? c.step(EpilogueOpKind::kScale, -1.5f).step(EpilogueOpKind::kOffset, 0.25f)
                    : c.step(EpilogueOpKind::kOffset, 0.25f);
    };
    end(check(21, 21, 21)).kernel("conv_depthwise_nhwc").run();
    end(check(3, 21, 1)).kernels({"conv_few_channels", "conv_nhwc", "conv_gemm"}).run();
    end(check(20, 40, 1)).kernels({"conv_nhwc", "conv_winograd"}).run();
    end(check(20, 40, 1)).step(EpilogueOpKind::kRelu).kernels({"conv_nhwc", "conv_winograd"}).run();
  }
}

TEST(CpuConv, OneSpatialAxis) {
  KernelCheck("Conv")
      .input(Shape{2, 9, 40})
      .weight(Shape{11, 9, 5})
      .ints("pads", {2, 2})
      .ints("strides", {2})
      .kernels({"conv_gemm", "conv_nhwc"})
      .run();
  KernelCheck("Conv").input(Shape{2, 9, 40}).weight(Shape{9, 1, 3}).integer("group", 9).kernel("conv_depthwise").run();
  KernelCheck("Conv").input(Shape{2, 9, 40}).weight(Shape{9, 1, 3}).integer("group", 9).kernel("conv_depthwise_nhwc").run();
}

TEST(CpuConv, SamePadding) {
  KernelCheck("Conv")
      .input(Shape{1, 3, 12, 15})
      .weight(Shape{4, 3, 4, 4})
      .ints("strides", {2, 2})
      .attribute("auto_pad", std::string("SAME_UPPER"))
      .kernels({"conv_gemm", "conv_nhwc"})
      .run();
}

// The scratch of the depthwise kernel grows with the stride, and with the places under a dilated window.
TEST(CpuConv, WideDepthwiseWindowsAreLeftToOtherKernels) {
  constexpr std::int64_t kWidest = 8192;  // dilation of three taps
  for (const std::int64_t wide : {kWidest, kWidest + 1}) {
    const bool fits = wide == kWidest;
    KernelCheck("Conv")
        .input(Shape{1, 3, 4})
        .weight(Shape{3, 1, 3})
        .integer("group", 3)
        .ints("dilations", {wide})
        .ints("pads", {wide, wide})
        .kernel(fits ? "conv_depthwise" : "reference")
        .run();
    KernelCheck("Conv")
        .input(Shape{1, 3, 4})
        .weight(Shape{3, 1, 3})
        .integer("group", 3)
        .ints("strides", {2 * wide})
        .kernel(fits ? "conv_depthwise" : "reference")
        .run();
  }
}

TEST(CpuConv, NaNStaysWhereItIs) {
  std::vector<float> x(36, 1.0f);
  x[14] = std::nanf("");
  KernelCheck("Conv")
      .input_of<float>(Shape{1, 1, 6, 6}, x)
      .weight(Shape{2, 1, 3, 3})
      .step(EpilogueOpKind::kRelu)
      .kernels({"conv_gemm", "conv_nhwc"})
      .run();
  KernelCheck("Conv")
      .input_of<float>(Shape{1, 1, 6, 6}, x)
      .weight(Shape{1, 1, 3, 3})
      .step(EpilogueOpKind::kClip, 0, 6)
      .kernel("conv_depthwise")
      .run();
}

TEST(CpuConv, SmallGroups) {
  const Spatial cases[] = {
      {9, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},  {6, 28, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {13, 14, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
      {8, 15, 1, 3, 1, 2, 1, 1, 0, 0, 0, 0}, {7, 9, 5, 3, 2, 1, 1, 1, 2, 3, 2, 0},  {10, 5, 2, 3, 1, 1, 3, 1, 2, 1, 2, 1},
      {3, 3, 3, 3, 1, 1, 1, 1, 4, 9, 4, 8},  {2, 2, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},  {40, 33, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
  };
  const std::vector<Isa> isas = {Isa::k_avx2, Isa::k_avx512};
  for (const std::int64_t channels : {2, 4, 8, 16}) {
    for (const Spatial& s : cases)
      conv(2, 48, 48, 48 / channels, s, s.h != 9).kernels({"conv_gemm", "conv_small_groups"}).only(isas).run();
  }
  const auto narrow = [&] { return conv(1, 32, 32, 8, cases[0]); };
  narrow().step(EpilogueOpKind::kClip, -0.2f, 0.3f).kernel("conv_small_groups").only(isas).run();
  narrow().step(EpilogueOpKind::kSwish, 1.2f).kernel("conv_small_groups").only(isas).run();
  narrow().step(EpilogueOpKind::kRelu).step(EpilogueOpKind::kSigmoid).kernel("conv_small_groups").only(isas).run();
}

TEST(CpuConv, BatchNeighboursDoNotChangeABit) {
  const Spatial s = {13, 17, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  Random random(5);
  for (const char* const name :
       {"conv_gemm", "conv_nhwc", "conv_winograd", "conv_depthwise", "conv_depthwise_nhwc", "conv_few_channels"}) {
    const std::int64_t group = std::string(name).starts_with("conv_depthwise") ? 20 : 1;
    const std::int64_t channels = std::string(name) == "conv_few_channels" ? 3 : 20;
    std::vector<float> one(static_cast<std::size_t>(channels * s.h * s.w)), many;
    for (float& v : one) v = random.uniform(-1, 1);
    for (int i = 0; i < 3; ++i) many.insert(many.end(), one.begin(), one.end());
    const auto check = [&](std::int64_t n, const std::vector<float>& x) {
      return KernelCheck("Conv")
          .input_of<float>(Shape{n, channels, s.h, s.w}, x)
          .weight(Shape{20, channels / group, 3, 3})
          .integer("group", group)
          .ints("pads", {1, 1, 1, 1})
          .kernel(name)
          .run();
    };
    const Bytes single = check(1, one)[0];
    const Bytes batch = check(3, many)[0];
    ASSERT_EQ(batch.size(), 3 * single.size());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(std::memcmp(batch.data() + i * single.size(), single.data(), single.size()), 0) << i;
  }
}

TEST(CpuConvTranspose, BlocksAndGeneral) {
  struct Case {
    std::int64_t cin, cout, group, h, w, kh, kw, sh, sw;
    std::vector<std::int64_t> pads, dilations, output_padding;
    const char* kernel;
  };
  const Case cases[] = {
      {6, 5, 1, 7, 9, 2, 2, 2, 2, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_nhwc"},
      {24, 1, 1, 20, 30, 2, 2, 2, 2, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_nhwc"},
      {24, 1, 1, 7, 33, 2, 1, 2, 1, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_nhwc"},
      {5, 2, 1, 9, 19, 2, 1, 2, 1, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_nhwc"},
      {24, 20, 1, 9, 15, 3, 2, 3, 2, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_nhwc"},
      {4, 6, 2, 5, 6, 3, 2, 3, 2, {0, 0, 0, 0}, {1, 1}, {0, 0}, "conv_transpose_blocks"},
      {6, 5, 1, 7, 9, 3, 3, 2, 2, {1, 1, 1, 1}, {1, 1}, {1, 1}, "conv_transpose_gemm"},
      {6, 4, 2, 7, 20, 4, 4, 2, 2, {1, 1, 1, 1}, {1, 1}, {0, 0}, "conv_transpose_gemm"},
      {6, 4, 2, 5, 37, 3, 5, 1, 2, {1, 4, 1, 3}, {1, 1}, {0, 0}, "conv_transpose_gemm"},
      {5, 3, 1, 3, 2, 2, 6, 2, 2, {0, 5, 1, 0}, {1, 1}, {0, 1}, "conv_transpose_gemm"},
      {4, 5, 1, 4, 90, 4, 4, 2, 2, {0, 11, 1, 30}, {1, 1}, {0, 1}, "conv_transpose_gemm"},
      {3, 7, 1, 6, 6, 3, 3, 1, 1, {0, 0, 0, 0}, {2, 2}, {0, 0}, "conv_transpose_gemm"},
      {40, 20, 1, 9, 9, 3, 3, 3, 3, {1, 0, 0, 1}, {2, 1}, {0, 0}, "conv_transpose_gemm"},
  };
  for (const Case& c : cases) {
    KernelCheck("ConvTranspose")
        .input(Shape{2, c.cin, c.h, c.w})
        .weight(Shape{c.cin, c.cout / c.group, c.kh, c.kw})
        .input(Shape{c.cout})
        .integer("group", c.group)
        .ints("strides", {c.sh, c.sw})
        .ints("pads", c.pads)
        .ints("dilations", c.dilations)
        .ints("output_padding", c.output_padding)
        .step(EpilogueOpKind::kRelu)
        .kernel(c.kernel)
        .run();
  }
  KernelCheck("ConvTranspose")
      .input(Shape{1, 4, 11})
      .weight(Shape{4, 3, 4})
      .ints("strides", {2})
      .ints("pads", {1, 1})
      .kernel("conv_transpose_gemm")
      .run();
}

}  // namespace
}  // namespace evn::test::conv_test
