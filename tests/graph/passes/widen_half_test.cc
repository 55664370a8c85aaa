// The rewrite widen_half.
#include "graph/passes/widen_half.h"

#include <gtest/gtest.h>

#include "ops/infra/numeric.h"
#include "tests/support/pass_check.h"

namespace evn::test {
namespace {

constexpr std::int64_t kHalf = static_cast<std::int64_t>(DType::kFloat16);

std::vector<Float16> halves(const std::vector<double>& values) {
  std::vector<Float16> bits;
  for (const double v : values) bits.push_back(Float16::from(v));
  return bits;
}

HostTensor half_tensor(const Shape& shape, const std::vector<double>& values) {
  HostTensor t({DType::kFloat16, shape});
  std::copy_n(halves(values).begin(), values.size(), t.as<Float16>().begin());
  return t;
}

DType dtype_of(const Graph& graph, const std::string& name) {
  for (const Value& v : graph.values) {
    if (v.name == name) return v.dtype;
  }
  return DType::kUndefined;
}

int count_computed(const Graph& graph, DType dtype) {
  int count = 0;
  for (const Node& n : graph.nodes) {
    for (const ValueId v : n.outputs) count += graph.values[v].dtype == dtype ? 1 : 0;
  }
  return count;
}

TEST(WidenHalf, ArithmeticIsFloat32AndRoundedOnce) {
  GraphBuilder b;
  const ValueId x = b.input("x", {3}, DType::kFloat16);
  const ValueId c = b.constant<Float16>("c", {3}, halves({0.1, 1000, 3}));
  b.output(b.node("Div", {b.node("Add", {x, c}), c}, {}, "y"));
  Graph graph = b.build();
  ASSERT_TRUE(widen_half(graph));
  infer_graph(graph);
  EXPECT_EQ(count_op(graph, "Cast"), 3);  // x, c, y
  EXPECT_EQ(count_computed(graph, DType::kFloat16), 1);
  EXPECT_EQ(dtype_of(graph, "x"), DType::kFloat16);
  EXPECT_EQ(dtype_of(graph, "y"), DType::kFloat16);
  const std::vector<HostTensor> y = run_graph(graph, {half_tensor({3}, {0.7, 0.3, -5})});
  const auto rounded = [](double v) { return static_cast<float>(Float16::from(v).value()); };
  const float inputs[3][2] = {{rounded(0.7), rounded(0.1)}, {rounded(0.3), 1000}, {-5, 3}};
  for (std::size_t i = 0; i < 3; ++i) {
    const float exact = (inputs[i][0] + inputs[i][1]) / inputs[i][1];
    EXPECT_EQ(y[0].as<Float16>()[i].bits, Float16::from(static_cast<double>(exact)).bits) << i;
  }
}

TEST(WidenHalf, OperatorsThatTakeHalfStay) {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3}, DType::kFloat16);
  b.output(b.node("Transpose", {b.node("Concat", {x, x}, {{"axis", std::int64_t{0}}})}));
  Graph graph = b.build();
  EXPECT_FALSE(widen_half(graph));
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(WidenHalf, CastsToHalfInsideBecomeCastsToFloat32) {
  GraphBuilder b;
  const ValueId x = b.input("x", {2});
  const ValueId narrow = b.node("Cast", {x}, {{"to", kHalf}});
  const ValueId product = b.node("Mul", {narrow, b.constant<Float16>("c", {}, halves({2}))});
  b.output(b.node("Cast", {product}, {{"to", std::int64_t{1}}}, "y"));
  Graph graph = b.build();
  ASSERT_TRUE(widen_half(graph));
  infer_graph(graph);
  EXPECT_EQ(count_computed(graph, DType::kFloat16), 0);
  HostTensor input({DType::kFloat32, Shape{2}});
  input.as<float>()[0] = 1.0001f;  // no float16
  input.as<float>()[1] = -3;
  const std::vector<HostTensor> y = run_graph(graph, {input});
  EXPECT_EQ(y[0].as<float>()[0], 2.0002f);
  EXPECT_EQ(y[0].as<float>()[1], -6.0f);
}

TEST(WidenHalf, OutputThatNodesReadOnIsWideForThem) {
  GraphBuilder b;
  const ValueId x = b.input("x", {2}, DType::kFloat16);
  const ValueId y = b.node("Exp", {x}, {}, "y");
  b.output(y);
  b.output(b.node("Log", {y}, {}, "z"));
  Graph graph = b.build();
  ASSERT_TRUE(widen_half(graph));
  infer_graph(graph);
  EXPECT_EQ(dtype_of(graph, "y"), DType::kFloat16);
  EXPECT_EQ(graph.values[find_node(graph, "Log")->inputs[0]].dtype, DType::kFloat32);
  const std::vector<HostTensor> results = run_graph(graph, {half_tensor({2}, {12, 0.5})});
  EXPECT_EQ(results[0].as<Float16>()[0].bits, Float16::kInfinity);  // e^12 is too large for y, and not for z
  EXPECT_EQ(results[1].as<Float16>()[0].value(), 12);
}

TEST(WidenHalf, HalfThatAnAttributeAsksForIsCast) {
  GraphBuilder b;
  void* bytes = nullptr;
  const std::shared_ptr<Weight> seven = make_weight({DType::kFloat16, Shape{1}}, nullptr, &bytes);
  *static_cast<Float16*>(bytes) = Float16::from(7);
  const ValueId filled = b.node("ConstantOfShape", {b.ints({2})}, {{"value", WeightPtr(seven)}});
  b.output(b.node("Mul", {filled, b.input("x", {2}, DType::kFloat16)}, {}, "y"));
  Graph graph = b.build();
  ASSERT_TRUE(widen_half(graph));
  infer_graph(graph);
  EXPECT_EQ(graph.values[find_node(graph, "Mul")->inputs[0]].dtype, DType::kFloat32);
  EXPECT_EQ(run_graph(graph, {half_tensor({2}, {1, -2})})[0].as<Float16>()[1].value(), -14);
}

TEST(WidenHalf, BrainFloatsAreWidenedToo) {
  GraphBuilder b;
  b.output(b.node("Sqrt", {b.input("x", {1}, DType::kBfloat16)}, {}, "y"));
  Graph graph = b.build();
  ASSERT_TRUE(widen_half(graph));
  infer_graph(graph);
  EXPECT_EQ(dtype_of(graph, "y"), DType::kBfloat16);
  HostTensor x({DType::kBfloat16, Shape{1}});
  x.as<Bfloat16>()[0] = Bfloat16::from(6.25);
  EXPECT_EQ(run_graph(graph, {x})[0].as<Bfloat16>()[0].value(), 2.5);
}

TEST(WidenHalf, OperatorWithoutFloat32IsLeftToInference) {
  GraphBuilder b;
  b.output(b.node("Not", {b.input("x", {2}, DType::kFloat16)}));
  Graph graph = b.build();
  EXPECT_FALSE(widen_half(graph));
}

}  // namespace
}  // namespace evn::test
