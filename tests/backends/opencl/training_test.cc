// What the cases of tests/conformance are too small for: convolutions whose copies are made part by part, pieces of sums, and that
// two runs give the same bits.
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
  check("evener::GradientNorm", {{3, 20000}, {70000}, {5}}, {}, {1e-5, 1e-6});
  check("evener::LayerNormalizationGradient", {{5000, 21}, {21}, {5000, 21}}, {}, kNear);
  check("evener::BatchNormalizationGradient", {{70, 5, 9, 11}, {5}, {70, 5, 9, 11}}, {{"training_mode", std::int64_t{1}}}, kNear);
  check("evener::SumTo", {{7}, {9000, 7}}, {}, {1e-5, 1e-5});
}

}  // namespace
}  // namespace test
}  // namespace evn
