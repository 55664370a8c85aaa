// The rewrite fuse_layer_norm.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_layer_norm_test {
namespace {

constexpr char kPass[] = "fuse_layer_norm";

struct Form {
  std::int64_t last = 6;  // declared last dim of x
  std::int64_t axis = -1;
  float exponent = 2;
  bool squared_by_mul = false;
  bool bias = true;
  bool keep = true;
  int opset = 13;
  Shape scale = Shape{6};
};

ValueId mean(GraphBuilder& b, ValueId v, const Form& f) {
  const std::vector<Attribute> keep = {{"keepdims", std::int64_t{f.keep}}};
  if (f.opset >= 18) return b.node("ReduceMean", {v, b.ints({f.axis})}, keep);
  std::vector<Attribute> attributes = keep;
  attributes.push_back({"axes", std::vector<std::int64_t>{f.axis}});
  return b.node("ReduceMean", {v}, attributes);
}

ValueId layer_norm(GraphBuilder& b, ValueId x, const Form& f) {
  const ValueId d = b.node("Sub", {x, mean(b, x, f)}, {}, "d");
  const ValueId square = f.squared_by_mul ? b.node("Mul", {d, d}) : b.node("Pow", {d, b.scalar(f.exponent)});
  const ValueId deviation = b.node("Sqrt", {b.node("Add", {mean(b, square, f), b.scalar(1e-3f)})});
  const ValueId y = b.node("Mul", {b.node("Div", {d, deviation}), b.random("scale", f.scale, 1, 2)}, {}, "scaled");
  return f.bias ? b.node("Add", {b.random("bias", Shape{6}), y}, {}, "y") : y;
}

Graph make(const Form& f) {
  GraphBuilder b(f.opset);
  b.output(layer_norm(b, b.input("x", Shape{2, 3, f.last}), f));
  return b.build();
}

TEST(FuseLayerNorm, EachFormBecomesOneNode) {
  Form by_mul, without_bias, positive_axis, axes_as_input;
  by_mul.squared_by_mul = true;
  without_bias.bias = false;
  positive_axis.axis = 2;
  axes_as_input.opset = 18;
  for (const Form& f : {Form{}, by_mul, without_bias, positive_axis, axes_as_input}) {
    const Graph original = make(f);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(graph.nodes[0].op_type, "LayerNormalization");
    EXPECT_EQ(graph.nodes[0].fused.size(), original.nodes.size() - 1);
    expect_same_results(graph, original, 1e-5, 1e-5);
  }
}

TEST(FuseLayerNorm, NearMissesStay) {
  Form other_axis, cube, flat_scale, scale_per_row, open;
  other_axis.axis = 1;
  cube.exponent = 3;
  flat_scale.scale = Shape{1};
  scale_per_row.scale = Shape{3, 6};
  open.last = -1;
  for (const Form& f : {other_axis, cube, flat_scale, scale_per_row, open}) {
    Graph graph = make(f);
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

TEST(FuseLayerNorm, UnknownLastDimMayBeBroadcast) {
  Form open;
  open.last = -1;
  const Graph original = make(open);
  Graph graph = original;
  optimize_graph(graph, {});
  const std::vector<HostTensor> x = {random_tensor(Shape{2, 3, 1}, 5, -5, 5)};
  const HostTensor y = run_graph(graph, x)[0];
  EXPECT_EQ(y.desc.shape.to_string(), "[2,3,6]");
  expect_close(y, run_graph(original, x)[0], 1e-5, 1e-5);
}

TEST(FuseLayerNorm, BiasOfAnotherShapeStaysAnAddition) {
  GraphBuilder b;
  Form f;
  f.bias = false;
  const ValueId x = b.input("x", Shape{2, 3, 6});
  b.output(b.node("Add", {layer_norm(b, x, f), b.random("rows", Shape{3, 1})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 2u);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FuseLayerNorm, IntermediateThatIsReadElsewhereStays) {
  const std::size_t parts = make({}).nodes.size() - 1;
  for (std::size_t kept = 0; kept + 1 < parts; ++kept) {
    GraphBuilder b;
    b.output(layer_norm(b, b.input("x", Shape{2, 3, 6}), {}));
    b.output(b.node("Neg", {b.graph().nodes[kept].outputs[0]}));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass)) << kept;
  }
}

}  // namespace
}  // namespace evn::test::fuse_layer_norm_test
