// The rewrite fuse_attention.
#include <gtest/gtest.h>

#include "graph/passes/strided_view.h"
#include "tests/support/pass_check.h"

namespace evn::test::fuse_attention_test {
namespace {

constexpr char kPass[] = "fuse_attention";

struct Form {
  Shape x = {2, 5, 12};  // [batch, steps, heads * depth]; the heads are 3
  bool divide = false;   // by the scale, not multiply
  bool scale_operands = false;
  bool mask = true;
  bool mask_first = false;  // as the first operand of the sum
  Shape mask_shape = {2, 1, 5, 5};
  std::int64_t axis = -1;
  bool twice = false;  // k: [0,2,1,3], then [0,1,3,2]
  bool back = true;    // the result goes back to [batch, steps, heads * depth]
};

std::vector<Attribute> perm_of(std::vector<std::int64_t> axes) {
  std::vector<Attribute> attributes;
  attributes.push_back({"perm", std::move(axes)});
  return attributes;
}

ValueId heads(GraphBuilder& b, ValueId x, const std::vector<std::int64_t>& perm) {
  return b.node("Transpose", {b.node("Reshape", {x, b.ints({0, 0, 3, -1})})}, perm_of(perm));
}

ValueId scaled(GraphBuilder& b, ValueId v, const Form& f, float c) {
  return f.divide ? b.node("Div", {v, b.scalar(1 / c)}) : b.node("Mul", {b.scalar(c), v});
}

ValueId attention(GraphBuilder& b, const Form& f) {
  ValueId q = heads(b, b.input("q", f.x), {0, 2, 1, 3});
  const ValueId kx = b.input("k", f.x);
  ValueId k = f.twice ? b.node("Transpose", {heads(b, kx, {0, 2, 1, 3})}, perm_of({0, 1, 3, 2})) : heads(b, kx, {0, 2, 3, 1});
  const ValueId v = heads(b, b.input("v", f.x), {0, 2, 1, 3});
  if (f.scale_operands) {
    q = scaled(b, q, f, 0.5f);
    k = scaled(b, k, f, 0.5f);
  }
  ValueId s = b.node("MatMul", {q, k});
  if (!f.scale_operands) s = scaled(b, s, f, 0.25f);
  if (f.mask) {
    const ValueId mask = b.input("mask", f.mask_shape);
    s = f.mask_first ? b.node("Add", {mask, s}) : b.node("Add", {s, mask});
  }
  std::vector<Attribute> axis;
  axis.push_back({"axis", f.axis});
  const ValueId y = b.node("MatMul", {b.node("Softmax", {s}, axis), v}, {}, "weighted");
  if (!f.back) return y;
  const ValueId back = b.node("Transpose", {y}, perm_of({0, 2, 1, 3}));
  return b.node("Reshape", {back, b.ints({0, 0, -1})}, {}, "y");
}

Graph make(const Form& f) {
  GraphBuilder b;
  b.output(attention(b, f));
  return b.build();
}

// To find where a part begins takes a walk over the parts before it.
TEST(FuseAttention, PartsOfAVeryLargeSplitAreNoViews) {
  for (const int parts : {1024, 1025}) {
    GraphBuilder b;
    b.nodes("Split", {b.input("x", Shape{parts})}, parts);
    EXPECT_EQ(is_view_maker(b.graph().nodes.back()), parts == 1024);
  }
}

TEST(FuseAttention, EachFormBecomesOneNode) {
  Form divide, operands, no_mask, mask_first, positive_axis, twice, heads_stay, open;
  divide.divide = true;
  operands.scale_operands = true;
  no_mask.mask = false;
  mask_first.mask_first = true;
  positive_axis.axis = 3;
  twice.twice = true;
  heads_stay.back = false;
  open.x = {-1, -1, 12};
  open.mask_shape = {-1, 1, 1, -1};
  for (const Form& f : {Form{}, divide, operands, no_mask, mask_first, positive_axis, twice, heads_stay, open}) {
    const Graph original = make(f);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass));
    EXPECT_EQ(count_op(graph, "Attention"), 1);
    EXPECT_EQ(count_op(graph, "Softmax"), 0);
    EXPECT_EQ(count_op(graph, "MatMul"), 0);
    EXPECT_EQ(count_op(graph, "Transpose"), 0);
    EXPECT_EQ(count_op(graph, "Mul") + count_op(graph, "Div"), 0);
    EXPECT_GE(find_node(graph, "Attention")->fused.size(), 5u);
    expect_same_results(graph, original, 1e-5, 1e-5);
  }
}

TEST(FuseAttention, PackedProjectionIsReadWhereItLies) {
  for (const bool by_split : {false, true}) {
    GraphBuilder b;
    const ValueId qkv = b.input("qkv", Shape{7, 1, 36});
    std::vector<ValueId> parts;
    if (by_split) {
      parts = b.nodes("Split", {qkv, b.ints({12, 12, 12})}, 3, {{"axis", std::int64_t{-1}}});
    } else {
      const ValueId cut = b.node("Reshape", {qkv, b.ints({1, 7, 1, 3, 12})});
      const ValueId moved = b.node("Transpose", {cut}, perm_of({3, 1, 2, 0, 4}));
      const ValueId flat = b.node("Reshape", {moved, b.ints({3, 7, 1, 12})});
      for (std::int64_t i = 0; i < 3; ++i)
        parts.push_back(b.node("Gather", {flat, b.constant<std::int64_t>("i" + std::to_string(i), {}, {i})}));
    }
    std::vector<ValueId> operands;
    for (const ValueId part : parts) {
      const ValueId rows = b.node("Transpose", {b.node("Reshape", {part, b.ints({7, 3, 4})})}, perm_of({1, 0, 2}));
      operands.push_back(b.node("Reshape", {rows, b.ints({1, 3, 7, 4})}));
    }
    const ValueId k = b.node("Transpose", {operands[1]}, perm_of({0, 1, 3, 2}));
    const ValueId s = b.node("MatMul", {b.node("Mul", {operands[0], b.scalar(0.5f)}), k});
    const ValueId y = b.node("MatMul", {b.node("Softmax", {s}, {{"axis", std::int64_t{-1}}}), operands[2]});
    b.output(b.node("Transpose", {y}, perm_of({2, 0, 1, 3}), "y"));
    Graph graph = b.build();
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(graph.nodes[0].inputs[i], qkv);
    expect_same_results(graph, b.build(), 1e-5, 1e-5);
  }
}

TEST(FuseAttention, KeysOfACacheStayAnOutput) {
  GraphBuilder b;
  const ValueId k = b.node("Concat", {b.input("past", Shape{1, 2, 6, 4}), b.input("k", Shape{1, 2, 1, 4})},
                           {{"axis", std::int64_t{2}}}, "present");
  const ValueId across = b.node("Transpose", {k}, perm_of({0, 1, 3, 2}));
  const ValueId s = b.node("MatMul", {b.input("q", Shape{1, 2, 1, 4}), across});
  b.output(b.node("MatMul", {b.node("Softmax", {s}, {{"axis", std::int64_t{-1}}}), b.input("v", Shape{1, 2, 7, 4})}, {}, "y"));
  b.output(k);
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(find_node(graph, "Attention")->inputs[1], k);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FuseAttention, KeysThatLieAcrossAreReadSo) {
  GraphBuilder b;
  const ValueId s = b.node("MatMul", {b.input("q", Shape{1, 2, 3, 4}), b.input("k", Shape{1, 2, 4, 7})});
  b.output(b.node("MatMul", {b.node("Softmax", {s}, {{"axis", std::int64_t{-1}}}), b.input("v", Shape{1, 2, 7, 4})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FuseAttention, KeysAndValuesMayBeConstants) {
  GraphBuilder b;
  const ValueId k = b.node("Mul", {b.random("k", Shape{1, 2, 4, 7}), b.scalar(0.5f)});
  const ValueId p = b.node("Softmax", {b.node("MatMul", {b.input("q", Shape{1, 2, 3, 4}), k})}, {{"axis", std::int64_t{-1}}});
  b.output(b.node("MatMul", {p, b.random("v", Shape{1, 2, 7, 4})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FuseAttention, TranspositionThatIsReadElsewhereStaysBesideIt) {
  GraphBuilder b;
  const Form f;
  b.output(attention(b, f));
  b.output(b.node("Neg", {b.graph().nodes[1].outputs[0]}));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Attention"), 1);
  EXPECT_EQ(count_op(graph, "Transpose"), 1);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FuseAttention, NearMissesStay) {
  Form other_axis;
  other_axis.axis = 2;
  Graph graph = make(other_axis);
  EXPECT_FALSE(run_pass(graph, kPass));
  for (const char* kept : {"MatMul", "Mul", "Add", "Softmax"}) {
    GraphBuilder b;
    b.output(attention(b, Form{}));
    for (const Node& n : b.graph().nodes) {
      if (n.op_type != kept) continue;
      b.output(b.node("Neg", {n.outputs[0]}));
      break;
    }
    graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass)) << kept;
  }
  GraphBuilder b;  // the softmax is the second operand
  const ValueId q = b.input("q", Shape{1, 2, 4, 4});
  const ValueId p = b.node("Softmax", {b.node("MatMul", {q, b.input("k", Shape{1, 2, 4, 4})})}, {{"axis", std::int64_t{-1}}});
  b.output(b.node("MatMul", {b.input("v", Shape{1, 2, 4, 4}), p}));
  graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseAttention, MaskMayBroadenTheScores) {
  Form f;
  f.x = {1, 5, 12};
  f.mask_shape = {2, 3, 5, 5};
  f.back = false;
  const Graph original = make(f);
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  expect_same_results(graph, original, 1e-5, 1e-5);
}

}  // namespace
}  // namespace evn::test::fuse_attention_test
