// What the cases of tests/conformance are too small for: convolutions whose copies are made part by part, pieces of sums, and that
// two runs give the same bits.
#include <limits>

#include "ops/gradient.h"
#include "ops/merge.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn {

namespace test {
namespace {

using Ints = std::vector<std::int64_t>;

// Against the reference, and against itself.
void check(const char* op, const std::vector<Shape>& inputs, const std::vector<Attribute>& attributes, Tolerance tolerance) {
  GraphBuilder b;
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) values.push_back(b.input("x" + std::to_string(i), inputs[i]));
  b.output(b.node(op, values, attributes));
  NodeRun run(b.build(), 11);
  const std::vector<float> y = run.on(shared_device());
  expect_near(y, run.reference(), tolerance);
  EXPECT_EQ(run.on(shared_device()), y);
}

constexpr Tolerance kNear = {1e-4, 1e-5};

TEST(OpenClTraining, GradientsOfConvolutionsAreMadePartByPart) {
  EVN_NEEDS_OPENCL();
  const Shape x = {20, 2, 96, 130}, w = {3, 2, 3, 3}, dy = {20, 3, 96, 130};  // 4 MiB of copies at a time
  check("evener::ConvWeightGradient", {w, x, dy}, {{"pads", Ints{1, 1, 1, 1}}}, kNear);
  check("evener::ConvInputGradient", {x, w, dy}, {{"pads", Ints{1, 1, 1, 1}}}, kNear);
  const Shape wide = {10, 2, 3, 3}, of_wide = {20, 10, 48, 65};
  check("evener::ConvWeightGradient", {wide, x, of_wide}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}, kNear);
  check("evener::ConvInputGradient", {x, wide, of_wide}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}, kNear);
}

TEST(OpenClTraining, ImagesOfABatchAreMadeTogether) {
  EVN_NEEDS_OPENCL();
  check("Conv", {{40, 8, 30, 40}, {9, 8, 3, 3}, {9}}, {{"pads", Ints{1, 1, 1, 1}}}, kNear);
  check("Conv", {{40, 24, 14, 14}, {16, 24, 3, 3}, {16}}, {{"pads", Ints{1, 1, 1, 1}}}, kNear);
  check("Conv", {{40, 20, 5, 7}, {200, 20, 3, 3}, {200}}, {{"pads", Ints{1, 1, 1, 1}}}, kNear);  // pixels first
}

TEST(OpenClTraining, WeightsOfAnyConvolutionMayBeComputed) {
  EVN_NEEDS_OPENCL();
  check("Conv", {{2, 9, 11, 13}, {17, 9, 1, 1}, {17}}, {}, kNear);
  check("Conv", {{2, 9, 2, 3}, {17, 9, 1, 1}}, {}, kNear);
  check("Conv", {{2, 9, 11, 33}, {9, 1, 3, 3}, {9}}, {{"group", std::int64_t{9}}, {"pads", Ints{1, 1, 1, 1}}}, kNear);
  check("Conv", {{2, 9, 11, 33}, {18, 1, 5, 3}}, {{"group", std::int64_t{9}}, {"strides", Ints{2, 2}}}, kNear);
}

TEST(OpenClTraining, SumsAreMadeInPieces) {
  EVN_NEEDS_OPENCL();
  check("evener::GradientNorm", {{}, {3, 20000}, {70000}, {5}}, {}, {1e-5, 1e-6});
  check("evener::LayerNormalizationGradient", {{5000, 21}, {21}, {5000, 21}}, {}, kNear);
  check("evener::BatchNormalizationGradient", {{70, 5, 9, 11}, {5}, {70, 5, 9, 11}}, {{"training_mode", std::int64_t{1}}}, kNear);
  check("evener::SumTo", {{7}, {9000, 7}}, {}, {1e-5, 1e-5});
}

// The positions of each element are searched for: a look at all of them would take minutes.
TEST(OpenClTraining, LongAxesAreResized) {
  EVN_NEEDS_OPENCL();
  constexpr std::int64_t kIn = 1 << 20, kOut = 3 << 19;
  for (const char* const mode : {"nearest", "linear", "cubic"}) {
    SCOPED_TRACE(mode);
    GraphBuilder b;
    const ValueId x = b.input("x", {1, kIn}), sizes = b.ints({1, kOut}), dy = b.input("dy", {1, kOut});
    b.output(b.node("evener::ResizeGradient", {x, kNoValue, kNoValue, sizes, dy}, {{"mode", std::string(mode)}}));
    NodeRun run(b.build(), 11);
    expect_near(run.on(shared_device()), run.reference(), kNear);
  }
}

TEST(OpenClTraining, PaddingOfKeysMayBeAnything) {
  EVN_NEEDS_OPENCL();
  const Ints lengths = {3, 9};
  for (const char* const op : {"Attention", "evener::AttentionGradient"}) {
    SCOPED_TRACE(op);
    GraphBuilder b(24);
    std::vector<ValueId> inputs = {b.input("q", {2, 2, 5, 4}), b.input("k", {2, 2, 11, 4}), b.input("v", {2, 2, 11, 6})};
    inputs.insert(inputs.end(), {kNoValue, kNoValue, kNoValue, b.ints(lengths)});
    if (std::string(op) != "Attention") inputs.push_back(b.input("dy", {2, 2, 5, 6}));
    b.output(b.node(op, inputs));
    NodeRun run(b.build(), 5);
    const std::vector<float> y = run.on(shared_device());
    for (const int i : {1, 2}) {
      const Shape& shape = run.input(i).desc.shape;
      for (std::int64_t at = 0; at < shape.elements(); ++at) {
        const std::int64_t row = at / shape[3], batch = row / (shape[1] * shape[2]);
        if (row % shape[2] >= lengths[static_cast<std::size_t>(batch)])
          run.input(i).data[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    expect_near(y, run.reference(), kNear);
    EXPECT_EQ(run.on(shared_device()), y);
  }
}

// The sum of squares is larger than any float32: of all pieces, or of some.
TEST(OpenClTraining, NormsOfLargeGradientsAreFinite) {
  EVN_NEEDS_OPENCL();
  for (const auto& [scale, value] : {std::pair{1.0f, 3e30f}, {1e-9f, 3e38f}, {1.0f, 1e15f}}) {
    for (const std::size_t step : {1u, 50000u}) {
      GraphBuilder b;
      b.output(b.node("evener::GradientNorm", {b.input("scale", {}), b.input("x", {70000})}));
      NodeRun run(b.build(), 11);
      run.input(0).data = {scale};
      for (std::size_t i = 0; i < 70000; i += step) run.input(1).data[i] = value;
      expect_near(run.on(shared_device()), run.reference(), {1e-5, 0});
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace evn
