// ConvInputGradient and ConvWeightGradient on the CPU: shapes with remainders in every direction, groups, strides, dilations, pads.
#include "ops/gradient.h"
#include "ops/merge.h"
#include "tests/backends/cpu/kernel_check.h"
#include "tests/support/turn.h"

namespace evn::test::conv_gradient_test {
namespace {

using Ints = std::vector<std::int64_t>;

struct Spatial {
  Ints size, kernel, strides = {}, dilations = {}, pads = {};
};

Shape with(std::int64_t n, std::int64_t c, const Ints& size) {
  Shape s{n, c};
  for (const std::int64_t d : size) s.push_back(d);
  return s;
}

// What a Conv makes of `size`.
Ints result_of(const Spatial& s) {
  Ints size;
  const std::size_t rank = s.size.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = s.strides.empty() ? 1 : s.strides[i], dilation = s.dilations.empty() ? 1 : s.dilations[i];
    const std::int64_t pads = s.pads.empty() ? 0 : s.pads[i] + s.pads[i + rank];
    size.push_back((s.size[i] + pads - (s.kernel[i] - 1) * dilation - 1) / stride + 1);
  }
  return size;
}

struct Channels {
  std::int64_t in, out, group = 1;
};

KernelCheck gradient(const char* op, std::int64_t n, const Channels& c, const Spatial& s, const Ints& result) {
  KernelCheck check(std::string(kInternalDomain) + "::" + op, 1);
  const Shape x = with(n, c.in, s.size), w = with(c.out, c.in / c.group, s.kernel);
  const bool of_weight = std::string(op) == kConvWeightGradient;
  check.input(of_weight ? w : x).input(of_weight ? x : w).input(with(n, c.out, result)).integer("group", c.group);
  if (!s.strides.empty()) check.ints("strides", s.strides);
  if (!s.dilations.empty()) check.ints("dilations", s.dilations);
  if (!s.pads.empty()) check.ints("pads", s.pads);
  return check;
}

void check_both(std::int64_t n, const Channels& c, const Spatial& s,
                const std::vector<std::string>& of_input = {"conv_input_gradient"},
                const std::vector<std::string>& of_weight = {"conv_weight_gradient"}) {
  gradient(kConvInputGradient, n, c, s, result_of(s)).kernels(of_input).run();
  gradient(kConvWeightGradient, n, c, s, result_of(s)).kernels(of_weight).run();
}

std::vector<Spatial> images() {
  return {{{9, 9}, {3, 3}, {}, {}, {1, 1, 1, 1}},
          {{13, 11}, {3, 3}, {2, 2}, {}, {1, 1, 1, 1}},
          {{20, 37}, {5, 5}, {}, {}, {2, 2, 2, 2}},
          {{17, 19}, {7, 7}, {2, 2}, {}, {3, 3, 3, 3}},
          {{12, 30}, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},
          {{15, 16}, {3, 1}, {3, 3}, {}, {0, 4, 1, 0}},
          {{8, 70}, {1, 5}, {1, 2}, {1, 3}, {0, 6, 0, 6}},
          {{6, 5}, {4, 4}, {}, {}, {3, 3, 3, 3}},
          {{5, 5}, {3, 3}, {}, {}, {5, 5, 5, 5}},
          {{14, 14}, {1, 1}, {2, 2}, {}, {}},
          {{7, 7}, {1, 1}, {}, {}, {}},
          {{10, 9}, {2, 3}, {3, 2}, {2, 3}, {1, 0, 2, 3}},
          {{9, 130}, {3, 3}, {1, 4}, {}, {1, 1, 1, 1}}};
}

TEST(CpuConvGradient, KernelsStridesDilationsAndPads) {
  for (const Spatial& s : images()) {
    check_both(1, {3, 10}, s);
    check_both(2, {8, 12, 4}, s);
    check_both(3, {20, 34, 2}, s);
  }
}

TEST(CpuConvGradient, StepsThatAreFused) {
  const Spatial images[] = {{{9, 40}, {3, 3}, {2, 2}, {}, {1, 1, 1, 1}}, {{7, 8}, {1, 1}, {2, 3}}, {{7, 8}, {1, 1}}};
  for (const Spatial& s : images) {
    for (const Channels& c : {Channels{6, 20}, Channels{6, 6, 6}}) {
      for (const char* op : {kConvInputGradient, kConvWeightGradient}) {
        const std::string name = op == std::string(kConvInputGradient) ? "conv_input_gradient" : "conv_weight_gradient";
        KernelCheck check = gradient(op, 2, c, s, result_of(s));
        check.step(EpilogueOpKind::kScale, 0.5f).step(EpilogueOpKind::kRelu);
        check.kernels(c.group == 1 ? std::vector{name} : std::vector{name, name + "_depthwise"}).run();
      }
    }
  }
  gradient(kConvInputGradient, 2, {6, 20}, images[2], result_of(images[2]))
      .step(EpilogueOpKind::kGelu)
      .kernel("conv_input_gradient_pointwise")
      .run();
}

TEST(CpuConvGradient, OneByOneOfEverySize) {
  const std::vector<std::string> of_input = {"conv_input_gradient", "conv_input_gradient_pointwise"};
  for (const std::int64_t hw : {1, 2, 4, 7}) {
    for (const std::int64_t out : {1, 8, 17, 40, 70}) check_both(2, {19, out}, {{hw, hw}, {1, 1}}, of_input);
  }
  check_both(3, {40, 150}, {{20, 50}, {1, 1}}, of_input);
  check_both(2, {40, 30, 2}, {{5, 60}, {1, 1}}, of_input);
}

std::vector<Spatial> winograd_images() {
  return {{{12, 12}, {3, 3}, {}, {}, {1, 1, 1, 1}}, {{14, 14}, {3, 3}, {}, {}, {1, 1, 1, 1}},
          {{18, 31}, {3, 3}, {}, {}, {0, 2, 1, 0}}, {{16, 16}, {3, 3}},
          {{9, 40}, {3, 3}, {}, {}, {2, 2, 2, 2}},  {{30, 25}, {3, 3}, {}, {}, {1, 0, 1, 2}}};
}

KernelCheck computed_conv(std::int64_t n, const Channels& c, const Spatial& s) {
  KernelCheck conv("Conv");
  conv.input(with(n, c.in, s.size)).input(with(c.out, c.in, s.kernel)).input(Shape{c.out});
  if (!s.pads.empty()) conv.ints("pads", s.pads);
  return conv;
}

TEST(CpuConvGradient, Winograd) {
  const Channels channels[] = {{48, 64}, {65, 56}, {64, 130}};
  const std::vector<Spatial> all = winograd_images();
  const InTurn numbers(3);
  for (std::size_t i = static_cast<std::size_t>(numbers.first) - 1; i < all.size(); i += static_cast<std::size_t>(numbers.step)) {
    const Spatial& s = all[i];
    const Channels& c = channels[i % std::size(channels)];
    check_both(2, c, s, {"conv_input_gradient", "conv_input_gradient_winograd"},
               {"conv_weight_gradient", "conv_weight_gradient_winograd"});
    computed_conv(2, c, s).kernels({"conv_dynamic_weight", "conv_dynamic_weight_winograd"}).run();
  }
  // Joined requests: one image is computed as many are.
  for (const std::int64_t n : {1, 2})
    computed_conv(n, {48, 64}, {{13, 14}, {3, 3}, {}, {}, {1, 1, 1, 1}}).kernels({"conv_dynamic_weight_winograd"}).run();
  // Several chains of blocks, which threads divide, and pads of which the derivative by the input has negative ones.
  const Spatial large{{96, 50}, {3, 3}, {}, {}, {3, 3, 3, 3}};
  check_both(2, {48, 56}, large, {"conv_input_gradient_winograd"}, {"conv_weight_gradient", "conv_weight_gradient_winograd"});
  const Spatial image{{20, 20}, {3, 3}, {}, {}, {1, 1, 1, 1}};
  for (const bool gelu : {false, true}) {
    const auto with_steps = [&](KernelCheck check) {
      return gelu ? check.step(EpilogueOpKind::kGelu) : check.step(EpilogueOpKind::kScale, 0.5f).step(EpilogueOpKind::kRelu);
    };
    with_steps(computed_conv(2, {64, 64}, image)).kernel("conv_dynamic_weight_winograd").run();
    with_steps(gradient(kConvInputGradient, 2, {64, 64}, image, result_of(image))).kernel("conv_input_gradient_winograd").run();
    with_steps(gradient(kConvWeightGradient, 2, {64, 64}, image, result_of(image))).kernel("conv_weight_gradient_winograd").run();
  }
}

TEST(CpuConvGradient, Lines) {
  check_both(2, {3, 5}, {{41}, {3}, {}, {}, {1, 1}});
  check_both(2, {4, 6, 2}, {{1500}, {9}, {4}, {2}, {8, 7}});
  check_both(1, {1, 1}, {{3000}, {16}});
}

TEST(CpuConvGradient, LargerThanOnePieceOrPanel) {
  check_both(5, {70, 130}, {{7, 7}, {3, 3}, {}, {}, {1, 1, 1, 1}});
  check_both(2, {33, 65}, {{40, 45}, {3, 3}, {}, {}, {1, 1, 1, 1}});
  check_both(2, {200, 40}, {{14, 14}, {3, 3}, {2, 2}, {}, {1, 1, 1, 1}});
  check_both(1, {1, 2}, {{110, 120}, {3, 3}}, {"conv_input_gradient"}, {"conv_weight_gradient"});
  check_both(1, {3, 64}, {{60, 70}, {7, 7}, {2, 2}, {}, {3, 3, 3, 3}});
}

TEST(CpuConvGradient, PadsThatTheAttributeLeavesToTheKernel) {
  for (const char* auto_pad : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    const bool is_same = std::string(auto_pad) != "VALID";
    for (const char* op : {kConvInputGradient, kConvWeightGradient}) {
      gradient(op, 2, {5, 6}, {{11, 12}, {3, 4}, {2, 2}}, is_same ? Ints{6, 6} : Ints{5, 5})
          .attribute("auto_pad", std::string(auto_pad))
          .kernel(op == std::string(kConvInputGradient) ? "conv_input_gradient" : "conv_weight_gradient")
          .run();
    }
  }
}

TEST(CpuConvGradient, Depthwise) {
  const std::vector<std::string> of_input = {"conv_input_gradient", "conv_input_gradient_depthwise"};
  const std::vector<std::string> of_weight = {"conv_weight_gradient", "conv_weight_gradient_depthwise"};
  for (const Spatial& s : images()) check_both(2, {5, 5, 5}, s, of_input, of_weight);
  check_both(2, {3, 3, 3}, {{90, 100}, {3, 3}, {2, 2}, {}, {1, 1, 1, 1}}, of_input, of_weight);
  check_both(1, {2, 2, 2}, {{9000}, {5}, {}, {}, {2, 2}}, of_input, of_weight);
  check_both(0, {3, 3, 3}, {{5, 5}, {3, 3}}, of_input, of_weight);
}

TEST(CpuConvGradient, EmptyBatches) {
  check_both(0, {3, 4}, {{5, 5}, {3, 3}});
  check_both(2, {3, 0}, {{5, 5}, {3, 3}});
  check_both(0, {64, 48}, {{20, 20}, {3, 3}}, {"conv_input_gradient", "conv_input_gradient_winograd"},
             {"conv_weight_gradient", "conv_weight_gradient_winograd"});
}

TEST(CpuConvGradient, Volumes) {
  const Spatial volumes[] = {{{4, 6, 9}, {3, 3, 3}, {}, {}, {1, 1, 1, 1, 1, 1}},
                             {{5, 8, 13}, {2, 3, 4}, {2, 1, 2}, {1, 2, 1}, {0, 1, 2, 1, 0, 3}},
                             {{7, 5, 5}, {3, 1, 2}, {2, 3, 1}, {2, 1, 3}, {2, 0, 1, 2, 0, 1}},
                             {{1, 9, 9}, {3, 3, 3}, {1, 1, 3}, {}, {1, 0, 0, 1, 0, 0}},
                             {{3, 20, 30}, {2, 2, 2}, {2, 2, 2}}};
  for (const Spatial& s : volumes) {
    check_both(2, {3, 5}, s);
    check_both(2, {6, 34, 2}, s);
    check_both(1, {4, 4, 4}, s);
  }
  check_both(2, {4, 6, 2}, {{4, 5, 6}, {1, 1, 1}}, {"conv_input_gradient", "conv_input_gradient_pointwise"});
}

}  // namespace
}  // namespace evn::test::conv_gradient_test
