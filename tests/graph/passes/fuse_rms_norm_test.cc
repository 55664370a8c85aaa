// The rewrite fuse_rms_norm.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_rms_norm_test {
namespace {

constexpr char kPass[] = "fuse_rms_norm";

enum class Root { kReciprocal, kOneOver, kDivided };

struct Form {
  Root root = Root::kReciprocal;
  std::int64_t last = 6;  // declared last dim of x
  std::int64_t axis = -1;
  float exponent = 2;
  float one = 1;
  bool squared_by_mul = false;
  bool scale_first = true;
  bool keep = true;
  bool root_is_output = false;
  Shape scale = Shape{6};
};

Graph make(const Form& f) {
  GraphBuilder b(17);
  const ValueId x = b.input("x", Shape{6, 6, f.last});
  const ValueId square = f.squared_by_mul ? b.node("Mul", {x, x}) : b.node("Pow", {x, b.scalar(f.exponent)});
  const ValueId mean =
      b.node("ReduceMean", {square}, {{"keepdims", std::int64_t{f.keep}}, {"axes", std::vector<std::int64_t>{f.axis}}});
  const ValueId root = b.node("Sqrt", {b.node("Add", {mean, b.scalar(1e-3f)})});
  ValueId y = kNoValue;
  if (f.root == Root::kDivided) {
    y = b.node("Div", {x, root});
  } else {
    y = b.node("Mul", {x, f.root == Root::kReciprocal ? b.node("Reciprocal", {root}) : b.node("Div", {b.scalar(f.one), root})});
  }
  const ValueId scale = b.random("scale", f.scale, 1, 2);
  b.output(f.scale_first ? b.node("Mul", {scale, y}, {}, "y") : b.node("Mul", {y, scale}, {}, "y"));
  if (f.root_is_output) b.output(root);
  return b.build();
}

TEST(FuseRmsNorm, EachFormBecomesOneNode) {
  for (const Root root : {Root::kReciprocal, Root::kOneOver, Root::kDivided}) {
    for (const bool by_mul : {false, true}) {
      for (const bool first : {false, true}) {
        Form f;
        f.root = root;
        f.squared_by_mul = by_mul;
        f.scale_first = first;
        f.axis = first ? -1 : 2;
        const Graph original = make(f);
        Graph graph = original;
        EXPECT_TRUE(run_pass(graph, kPass));
        ASSERT_EQ(graph.nodes.size(), 1u);
        EXPECT_EQ(graph.nodes[0].op_type, "RMSNormalization");
        EXPECT_EQ(graph.nodes[0].fused.size(), original.nodes.size() - 1);
        expect_same_results(graph, original, 1e-5, 1e-5);
      }
    }
  }
}

TEST(FuseRmsNorm, NearMissesStay) {
  Form other_axis, cube, flat_scale, scale_per_row, two_over, dropped, wanted, open;
  other_axis.axis = 1;
  cube.exponent = 3;
  flat_scale.scale = Shape{1};
  scale_per_row.scale = Shape{6, 6};
  two_over.root = Root::kOneOver;
  two_over.one = 2;
  dropped.keep = false;
  wanted.root_is_output = true;
  open.last = -1;
  for (const Form& f : {other_axis, cube, flat_scale, scale_per_row, two_over, dropped, wanted, open}) {
    Graph graph = make(f);
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

}  // namespace
}  // namespace evn::test::fuse_rms_norm_test
