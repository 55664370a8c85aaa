// Convolutions of the OpenCL backend against the reference.
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

using Ints = std::vector<std::int64_t>;

struct ConvCase {
  Shape x;
  Shape w;
  std::int64_t group = 1;
  Ints strides = {};
  Ints pads = {};
  Ints dilations = {};
  std::string auto_pad = "";
  bool bias = true;
};

std::vector<Attribute> attributes_of(const ConvCase& c) {
  std::vector<Attribute> attributes = {{"group", c.group}};
  if (!c.strides.empty()) attributes.push_back({"strides", c.strides});
  if (!c.pads.empty()) attributes.push_back({"pads", c.pads});
  if (!c.dilations.empty()) attributes.push_back({"dilations", c.dilations});
  if (!c.auto_pad.empty()) attributes.push_back({"auto_pad", c.auto_pad});
  return attributes;
}

Graph conv_graph(const ConvCase& c, const char* op = "Conv") {
  GraphBuilder b;
  std::vector<ValueId> inputs = {b.input("x", c.x), b.random("w", c.w)};
  const std::int64_t outputs = op == std::string("Conv") ? c.w[0] : c.w[1] * c.group;
  if (c.bias) inputs.push_back(b.random("b", {outputs}));
  b.output(b.node(op, inputs, attributes_of(c)));
  return b.build();
}

void check_conv(const ConvCase& c, const char* kernel, const char* op = "Conv") {
  SCOPED_TRACE("x " + c.x.to_string() + " w " + c.w.to_string());
  check_node(conv_graph(c, op), kernel);
}

TEST(OpenClConv, DirectKernelTakesKernelsStridesPadsAndWidths) {
  EVN_NEEDS_OPENCL();
  check_conv({{1, 3, 18, 34}, {16, 3, 3, 3}, 1, {2, 2}, {1, 1, 1, 1}}, "conv_direct");
  check_conv({{1, 4, 7, 30}, {24, 4, 3, 3}, 1, {}, {1, 1, 1, 1}}, "conv_direct");
  check_conv({{2, 5, 9, 65}, {9, 5, 3, 3}, 1, {}, {1, 1, 1, 1}, {}, "", false}, "conv_direct");
  check_conv({{1, 2, 11, 50}, {3, 2, 5, 5}, 1, {}, {2, 2, 2, 2}}, "conv_direct");
  check_conv({{1, 2, 20, 47}, {8, 2, 3, 3}, 1, {3, 3}, {0, 1, 2, 0}}, "conv_direct");
  for (std::int64_t width : {1, 2, 15, 16, 17, 31, 32, 33, 49})
    check_conv({{1, 3, 3, width}, {5, 3, 3, 3}, 1, {}, {1, 1, 1, 1}}, "conv_direct");
}

// Two and four rows to a work item, the last of which may not be there.
TEST(OpenClConv, DirectKernelTakesShortRows) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t width : {3, 4, 7, 8, 9, 14, 16}) {
    for (const std::int64_t height : {2, 3, 4, 5, 7, 8, 14}) {
      check_conv({{2, 3, height, width}, {9, 3, 3, 3}, 1, {}, {1, 1, 1, 1}}, "conv_direct");
    }
    check_conv({{1, 4, 15, 2 * width}, {10, 2, 3, 3}, 2, {2, 2}, {1, 1, 1, 1}, {}, "", false}, "conv_direct");
    check_conv({{1, 3, 13, width + 2}, {5, 3, 3, 2}, 1, {3, 1}, {2, 0, 2, 0}, {2, 1}}, "conv_direct");
  }
}

TEST(OpenClConv, DirectKernelTakesDilationsGroupsAndAutoPad) {
  EVN_NEEDS_OPENCL();
  check_conv({{1, 3, 15, 40}, {4, 3, 3, 3}, 1, {}, {2, 2, 2, 2}, {2, 2}}, "conv_direct");
  check_conv({{1, 3, 15, 40}, {4, 3, 3, 3}, 1, {2, 2}, {2, 3, 2, 3}, {2, 3}}, "conv_direct");
  check_conv({{2, 6, 8, 33}, {20, 3, 3, 3}, 2, {}, {1, 1, 1, 1}}, "conv_direct");
  check_conv({{1, 3, 13, 21}, {6, 3, 3, 3}, 1, {2, 2}, {}, {}, "SAME_UPPER"}, "conv_direct");
  check_conv({{1, 3, 13, 21}, {6, 3, 4, 4}, 1, {2, 2}, {}, {}, "SAME_LOWER"}, "conv_direct");
  check_conv({{1, 3, 12, 20}, {6, 3, 1, 1}, 1, {2, 2}}, "conv_direct");
}

TEST(OpenClConv, DirectKernelTakesOneSpatialAxis) {
  EVN_NEEDS_OPENCL();
  check_conv({{2, 4, 77}, {10, 4, 5}, 1, {2}, {2, 1}}, "conv_direct");
}

TEST(OpenClConv, PointwiseKernelTakesAnyPixelCount) {
  EVN_NEEDS_OPENCL();
  for (std::int64_t pixels : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 49, 63, 81, 100}) {
    check_conv({{1, 10, 1, pixels}, {12, 10, 1, 1}}, "conv_1x1");
    check_conv({{2, 3, pixels, 1}, {17, 3, 1, 1}, 1, {}, {}, {}, "", false}, "conv_1x1");
  }
  check_conv({{1, 8, 20, 30}, {16, 8, 1, 1}}, "conv_1x1");
  check_conv({{2, 8, 5, 9}, {6, 4, 1, 1}, 2}, "conv_1x1");
}

TEST(OpenClConv, DepthwiseKernelTakesKernelsStridesAndWidths) {
  EVN_NEEDS_OPENCL();
  for (std::int64_t width : {1, 3, 15, 16, 17, 33, 50, 70}) {
    check_conv({{1, 3, 6, width}, {3, 1, 3, 3}, 3, {}, {1, 1, 1, 1}}, "conv_depthwise");
    check_conv({{2, 2, 9, width}, {2, 1, 5, 5}, 2, {2, 2}, {2, 2, 2, 2}}, "conv_depthwise");
  }
  check_conv({{1, 4, 12, 40}, {8, 1, 3, 3}, 4, {}, {1, 1, 1, 1}}, "conv_depthwise");
  check_conv({{1, 4, 12, 40}, {4, 1, 3, 3}, 4, {3, 3}, {1, 0, 1, 2}, {}, "", false}, "conv_depthwise");
  check_conv({{1, 4, 12, 40}, {4, 1, 3, 3}, 4, {2, 2}, {2, 2, 2, 2}, {2, 2}}, "conv_depthwise");
  check_conv({{1, 16, 64, 70}, {16, 1, 3, 3}, 16, {}, {1, 1, 1, 1}}, "conv_depthwise");
}

TEST(OpenClConv, DepthwiseWindowsOfNineTakeStridesPadsAndManyRows) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t width : {5, 16, 18, 33, 70, 130}) {
      check_conv({{2, 3, 40, width}, {3, 1, 3, 3}, 3, {stride, stride}, {1, 1, 1, 1}}, "conv_depthwise");
      check_conv({{1, 2, 130, width}, {4, 1, 3, 3}, 2, {stride, stride}, {2, 0, 0, 2}, {}, "", false}, "conv_depthwise");
      check_conv({{1, 2, 3, width}, {2, 1, 3, 3}, 2, {stride, stride}}, "conv_depthwise");
    }
  }
  check_conv({{1, 2, 20, 40}, {2, 1, 3, 3}, 2, {1, 2}, {1, 1, 1, 1}}, "conv_depthwise");
}

// More of them than a core's cache is taken to hold: then a block of outputs has all its pixels before the next.
TEST(OpenClConv, ManyWeightsOverFewPixels) {
  EVN_NEEDS_OPENCL();
  check_conv({{1, 64, 5, 5}, {260, 64, 3, 3}, 1, {}, {1, 1, 1, 1}}, "conv_direct");
  check_conv({{2, 64, 4, 37}, {520, 32, 3, 3}, 2, {2, 2}, {1, 1, 1, 1}}, "conv_direct");
  check_conv({{2, 260, 7, 7}, {516, 260, 1, 1}}, "conv_1x1");
  check_conv({{1, 520, 3, 4}, {260, 520, 1, 1}}, "conv_1x1");
}

// Relu and Clip alone are applied to vectors in registers, all others to a block in memory; a factor of 1 changes no bit.
TEST(OpenClConv, EpiloguesInRegistersGiveTheBitsOfThoseInMemory) {
  EVN_NEEDS_OPENCL();
  const ConvCase cases[] = {{{1, 6, 7, 7}, {19, 6, 1, 1}},
                            {{1, 6, 8, 12}, {19, 6, 1, 1}},
                            {{1, 3, 9, 70}, {19, 3, 3, 3}, 1, {}, {1, 1, 1, 1}},
                            {{1, 3, 9, 70}, {3, 1, 3, 3}, 3, {}, {1, 1, 1, 1}},
                            {{1, 3, 9, 70}, {3, 1, 3, 3}, 3, {2, 2}, {1, 1, 1, 1}}};
  for (const ConvCase& c : cases) {
    SCOPED_TRACE("x " + c.x.to_string() + " w " + c.w.to_string());
    for (const EpilogueOp& step : {EpilogueOp{EpilogueOpKind::kRelu, 0, 0}, EpilogueOp{EpilogueOpKind::kClip, -0.25f, 0.5f}}) {
      Graph one = conv_graph(c), two = conv_graph(c);
      one.nodes[0].epilogue.push(step);
      two.nodes[0].epilogue.push(step);
      two.nodes[0].epilogue.push({EpilogueOpKind::kScale, 1.0f, 0});
      NodeRun in_registers(one, 3), in_memory(two, 3), plain(conv_graph(c), 3);
      const auto bits = in_registers.on(shared_device());
      EXPECT_EQ(bits, in_memory.on(shared_device()));
      EXPECT_NE(bits, plain.on(shared_device()));
    }
  }
}

TEST(OpenClConv, RanksPutTheSpecialKernelsFirst) {
  EVN_NEEDS_OPENCL();
  const auto chosen = [](const ConvCase& c) {
    const NodeRun run(conv_graph(c), 1);
    std::string reason;
    return std::string(shared_device().find_kernel(run.desc(), &reason)->name);
  };
  EXPECT_EQ(chosen({{1, 4, 6, 6}, {4, 1, 3, 3}, 4}), "conv_depthwise");
  EXPECT_EQ(chosen({{1, 4, 6, 6}, {4, 4, 1, 1}}), "conv_1x1");
  EXPECT_EQ(chosen({{1, 4, 6, 6}, {4, 4, 1, 1}, 1, {2, 2}}), "conv_direct");
}

TEST(OpenClConv, WeightsThatAreNotConstantArePackedInEachRun) {
  EVN_NEEDS_OPENCL();
  for (const bool constant_bias : {false, true}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 6, 9, 21});
    const ValueId w = b.input("w", {10, 3, 3, 1});
    const ValueId bias = constant_bias ? b.random("b", {10}) : b.input("b", {10});
    b.output(b.node("Conv", {x, w, bias}, {{"group", std::int64_t{2}}}));
    check_node(b.build(), "conv_direct");
  }
  GraphBuilder b;
  b.output(b.node("Conv", {b.input("x", {1, 2, 4, 4}), b.input("w", {2, 2, 1, 1})}));
  const NodeRun run(b.build(), 1);
  std::string reason;
  EXPECT_STREQ(shared_device().find_kernel(run.desc(), &reason)->name, "conv_1x1");
}

TEST(OpenClConv, RepeatedRunsAreBitEqual) {
  EVN_NEEDS_OPENCL();
  NodeRun run(conv_graph({{1, 8, 33, 50}, {24, 8, 3, 3}, 1, {}, {1, 1, 1, 1}}), 5);
  EXPECT_EQ(run.on(shared_device()), run.on(shared_device()));
}

TEST(OpenClConvTranspose, StrideOfTheKernelsSize) {
  EVN_NEEDS_OPENCL();
  for (std::int64_t width : {1, 5, 15, 16, 17, 32, 40}) {
    check_conv({{1, 6, 5, width}, {6, 4, 2, 2}, 1, {2, 2}}, "conv_transpose", "ConvTranspose");
    check_conv({{2, 3, 4, width}, {3, 1, 2, 2}, 1, {2, 2}}, "conv_transpose", "ConvTranspose");
  }
  check_conv({{1, 3, 4, 20}, {3, 5, 3, 3}, 1, {3, 3}, {}, {}, "", false}, "conv_transpose", "ConvTranspose");
  check_conv({{1, 3, 4, 20}, {3, 5, 1, 2}, 1, {1, 2}}, "conv_transpose", "ConvTranspose");
  check_conv({{1, 3, 20}, {3, 5, 4}, 1, {4}}, "conv_transpose", "ConvTranspose");
}

TEST(OpenClConvTranspose, OverlappingWindows) {
  EVN_NEEDS_OPENCL();
  check_conv({{1, 3, 4, 4}, {3, 2, 3, 3}, 1, {2, 2}}, "conv_transpose_window", "ConvTranspose");
  check_conv({{2, 6, 5, 7}, {6, 20, 4, 4}, 1, {2, 2}}, "conv_transpose_window", "ConvTranspose");
}

void check_half_conv(const ConvCase& c, const char* kernel) {
  SCOPED_TRACE("x " + c.x.to_string() + " w " + c.w.to_string());
  GraphBuilder b;
  std::vector<ValueId> inputs = {b.input("x", c.x), b.constant<float>("w", c.w, random_halves(c.w, 3))};
  if (c.bias) inputs.push_back(b.random("b", {c.w[0]}));
  b.output(b.node("Conv", inputs, attributes_of(c)));
  check_halves(b.build(), kernel);
}

TEST(OpenClConv, HalvesGiveWhatFloatsGive) {
  EVN_NEEDS_OPENCL();
  check_half_conv({{1, 3, 18, 34}, {16, 3, 3, 3}, 1, {2, 2}, {1, 1, 1, 1}}, "conv_direct_half");
  check_half_conv({{2, 5, 9, 65}, {9, 5, 3, 3}, 1, {}, {1, 1, 1, 1}, {}, "", false}, "conv_direct_half");
  check_half_conv({{1, 2, 20, 47}, {8, 2, 3, 3}, 1, {3, 3}, {0, 1, 2, 0}}, "conv_direct_half");
  check_half_conv({{1, 3, 15, 40}, {4, 3, 3, 3}, 1, {2, 2}, {2, 3, 2, 3}, {2, 3}}, "conv_direct_half");
  check_half_conv({{2, 6, 8, 33}, {20, 3, 3, 3}, 2, {}, {1, 1, 1, 1}}, "conv_direct_half");
  check_half_conv({{2, 4, 77}, {10, 4, 5}, 1, {2}, {2, 1}}, "conv_direct_half");
  for (std::int64_t pixels : {1, 3, 8, 17, 33, 100}) check_half_conv({{2, 10, 1, pixels}, {12, 10, 1, 1}}, "conv_1x1_half");
  check_half_conv({{2, 8, 5, 9}, {6, 4, 1, 1}, 2, {}, {}, {}, "", false}, "conv_1x1_half");
}

TEST(OpenClConv, DepthwiseAndComputedWeightsStayFloats) {
  EVN_NEEDS_OPENCL();
  GraphBuilder depthwise, computed;
  const std::vector<ValueId> inputs = {depthwise.input("x", {1, 4, 9, 9}), depthwise.random("w", {4, 1, 3, 3})};
  depthwise.output(depthwise.node("Conv", inputs, {{"group", std::int64_t{4}}}));
  computed.output(computed.node("Conv", {computed.input("x", {1, 4, 9, 9}), computed.input("w", {4, 4, 3, 3})}));
  for (const Graph& graph : {depthwise.build(), computed.build()}) {
    NodeRun run(graph, 5);
    run.precision = Precision::kFloat16;
    std::string why;
    const Kernel* kernel = shared_device().find_kernel(run.desc(), &why);
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ(kernel->operands, Precision::kFloat32);
  }
}

}  // namespace
}  // namespace evn::test
