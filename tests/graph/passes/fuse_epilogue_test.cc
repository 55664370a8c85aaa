// The rewrite fuse_epilogue: element-wise steps move to where their input is made.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_epilogue_test {
namespace {

constexpr char kPass[] = "fuse_epilogue";

using Rest = std::function<ValueId(GraphBuilder&, ValueId)>;

Graph matmul_and(const Rest& rest, int opset = 24) {
  GraphBuilder b(opset);
  const ValueId x = b.input("x", Shape{3, 4});
  b.output(rest(b, b.node("MatMul", {x, b.random("w", Shape{4, 5})}, {}, "producer")));
  return b.build();
}

TEST(FuseEpilogue, EachStepKindIsTaken) {
  const struct {
    EpilogueOpKind kind;
    Rest rest;
  } cases[] = {
      {EpilogueOpKind::kRelu, [](GraphBuilder& b, ValueId v) { return b.node("Relu", {v}); }},
      {EpilogueOpKind::kClip,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Clip", {v, b.scalar(-0.5f), b.scalar(0.75f)});
       }},
      {EpilogueOpKind::kClip,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Clip", {v, kNoValue, b.scalar(0.75f)});
       }},
      {EpilogueOpKind::kLeakyRelu,
       [](GraphBuilder& b, ValueId v) {
         return b.node("LeakyRelu", {v}, {{"alpha", 0.3f}});
       }},
      {EpilogueOpKind::kHardSigmoid,
       [](GraphBuilder& b, ValueId v) {
         return b.node("HardSigmoid", {v}, {{"alpha", 0.1f}});
       }},
      {EpilogueOpKind::kHardSwish, [](GraphBuilder& b, ValueId v) { return b.node("HardSwish", {v}); }},
      {EpilogueOpKind::kSigmoid, [](GraphBuilder& b, ValueId v) { return b.node("Sigmoid", {v}); }},
      {EpilogueOpKind::kSwish,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Swish", {v}, {{"alpha", 1.5f}});
       }},
      {EpilogueOpKind::kTanh, [](GraphBuilder& b, ValueId v) { return b.node("Tanh", {v}); }},
      {EpilogueOpKind::kScale,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Mul", {b.scalar(1.5f), v});
       }},
      {EpilogueOpKind::kScale,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Div", {v, b.scalar(3)});
       }},
      {EpilogueOpKind::kOffset,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Add", {v, b.random("k", Shape{1, 1})});
       }},
      {EpilogueOpKind::kOffset,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Sub", {v, b.scalar(0.4f)});
       }},
      {EpilogueOpKind::kGelu, [](GraphBuilder& b, ValueId v) { return b.node("Gelu", {v}); }},
      {EpilogueOpKind::kGeluTanh,
       [](GraphBuilder& b, ValueId v) {
         return b.node("Gelu", {v}, {{"approximate", std::string("tanh")}});
       }},
  };
  for (const auto& c : cases) {
    const Graph original = matmul_and(c.rest);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass)) << original.nodes[1].op_type;
    ASSERT_EQ(graph.nodes.size(), 1u) << original.nodes[1].op_type;
    EXPECT_EQ(graph.nodes[0].name, "producer");
    EXPECT_EQ(graph.nodes[0].fused, std::vector<std::string>{original.nodes[1].name});
    ASSERT_EQ(graph.nodes[0].epilogue.count, 1);
    EXPECT_EQ(graph.nodes[0].epilogue.ops[0].kind, c.kind) << original.nodes[1].op_type;
    expect_same_results(graph, original, 1e-6, 1e-6);
  }
}

TEST(FuseEpilogue, ClipBoundsAsAttributesAreTaken) {
  const Graph original = matmul_and(
      [](GraphBuilder& b, ValueId v) {
        return b.node("Clip", {v}, {{"min", 0.0f}, {"max", 6.0f}});
      },
      10);
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].epilogue.ops[0].b, 6.0f);
  expect_same_results(graph, original, 1e-6, 1e-6);
}

TEST(FuseEpilogue, ConstantMinusValueIsTwoSteps) {
  const Graph original = matmul_and([](GraphBuilder& b, ValueId v) { return b.node("Sub", {b.scalar(2), v}); });
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].epilogue.count, 2);
  expect_same_results(graph, original, 0, 0);
}

TEST(FuseEpilogue, DivisionByAPowerOfTwoIsExact) {
  const Graph original = matmul_and([](GraphBuilder& b, ValueId v) { return b.node("Div", {v, b.scalar(8)}); });
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  expect_same_results(graph, original, 0, 0);
}

TEST(FuseEpilogue, WhatIsNoStepStays) {
  const Rest cases[] = {
      [](GraphBuilder& b, ValueId v) {
        return b.node("Div", {b.scalar(1), v});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Div", {v, b.scalar(0)});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Div", {v, b.scalar(std::numeric_limits<float>::infinity())});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Mul", {v, v});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Mul", {v, b.random("row", Shape{5})});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Mul", {v, b.random("raises the rank", Shape{1, 1, 1})});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Mul", {v, b.input("computed", Shape{1})});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.node("Clip", {v, b.input("bound", Shape{})});
      },
  };
  for (const Rest& rest : cases) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{1, 4});
    b.output(rest(b, b.node("MatMul", {x, b.random("w", Shape{4, 5})})));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass)) << graph.nodes[1].op_type;
    EXPECT_EQ(graph.nodes.size(), 2u);
  }
}

TEST(FuseEpilogue, ValueWithASecondReaderOrNameStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 4});
  const ValueId w = b.random("w", Shape{4, 5});
  const ValueId twice = b.node("MatMul", {x, w});
  b.output(b.node("Relu", {twice}));
  b.output(b.node("Transpose", {twice}));
  const ValueId out = b.node("MatMul", {x, w});
  b.output(out);
  b.output(b.node("Relu", {out}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseEpilogue, ProducerWithoutEpilogueKeepsItsFollowersInTheFirstOfThem) {
  GraphBuilder b;
  const ValueId t = b.node("Transpose", {b.input("x", Shape{3, 4})});
  b.output(b.node("Sigmoid", {b.node("Mul", {b.node("Relu", {t}, {}, "relu"), b.scalar(0.3f)})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[1].op_type, "Relu");
  EXPECT_EQ(graph.nodes[1].epilogue.count, 2);
  expect_same_results(graph, b.build(), 1e-6, 1e-6);
}

TEST(FuseEpilogue, LongChainsAreCutAtTheLimit) {
  GraphBuilder b;
  ValueId v = b.input("x", Shape{3, 4});
  for (int i = 0; i < 20; ++i) v = b.node(i % 2 == 0 ? "Tanh" : "LeakyRelu", {v});
  b.output(v);
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 3u);  // 1 + 8, 1 + 8, 1 + 1
  EXPECT_EQ(graph.nodes[0].epilogue.count, kMaxEpilogueOps);
  expect_same_results(graph, b.build(), 1e-5, 1e-6);
}

TEST(FuseEpilogue, IntegersStay) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3}, DType::kInt32);
  b.output(b.node("Relu", {b.node("Add", {x, x})}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

}  // namespace
}  // namespace evn::test::fuse_epilogue_test
