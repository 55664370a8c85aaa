// The rewrite fold_constants, and the bombs that it must not set off.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/pass_check.h"
#include "tests/support/test_clock.h"

namespace evn::test::fold_constants_test {
namespace {

constexpr char kPass[] = "fold_constants";

// Counts what is charged.
class CountingLedger : public Ledger {
 public:
  void charge(std::size_t bytes, MemoryClass) override { current += bytes, peak = std::max(peak, current); }
  void discharge(std::size_t bytes, MemoryClass) noexcept override { current -= bytes; }
  std::size_t current = 0;
  std::size_t peak = 0;
};

TEST(FoldConstants, RunsNodesWhoseInputsAreAllConstants) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId sum = b.node("Add", {b.random("a", Shape{3}), b.random("b", Shape{3})});
  b.output(b.node("Mul", {x, b.node("Neg", {sum})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, b.build(), 0, 0);
}

TEST(FoldConstants, EpilogueIsPartOfTheResult) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId sum = b.node("Add", {b.random("a", Shape{3}), b.random("b", Shape{3})});
  b.graph().nodes.back().epilogue.push({EpilogueOpKind::kScale, 3.0f, 0});
  b.output(b.node("Mul", {x, sum}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, b.build(), 0, 0);
}

TEST(FoldConstants, ShapeOfAKnownShapeIsAConstant) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  b.output(b.node("Reshape", {x, b.node("Concat", {b.node("Shape", {x}), b.ints({1})}, {{"axis", std::int64_t{0}}})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.values[graph.outputs[0]].shape.to_string(), "[2,3,1]");
  expect_same_results(graph, b.build(), 0, 0);
}

TEST(FoldConstants, ShapeOfAnUnknownShapeStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{-1, 3});
  b.output(b.node("Reshape", {x, b.node("Shape", {x})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(FoldConstants, DimThatOnlyAnOutputsDeclarationKnowsIsNotTrusted) {
  GraphBuilder b;
  const ValueId y = b.node("Relu", {b.input("x", Shape{-1})}, {}, "y");
  b.graph().values[y].has_shape = true;
  b.graph().values[y].shape = Shape{1};
  b.output(y);
  b.output(b.node("Cast", {b.node("Shape", {y})}, {{"to", std::int64_t{EVN_DTYPE_FLOAT32}}}, "s"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FoldConstants, GraphOutputStaysComputed) {
  GraphBuilder b;
  b.output(b.node("Neg", {b.random("a", Shape{3})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
}

TEST(FoldConstants, UnalignedConstantsAreRead) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3});
  const ValueId a = b.random("a", Shape{3});
  const auto shifted = std::make_shared<std::vector<char>>(16);
  char* start = shifted->data() + 1;
  std::memcpy(start, b.graph().values[a].constant->data.get(), 12);
  b.graph().values[a].constant = make_weight_over({DType::kFloat32, Shape{3}}, std::shared_ptr<const void>(shifted, start));
  EXPECT_FALSE(b.graph().values[a].constant->aligned);
  b.output(b.node("Add", {x, b.node("Neg", {a})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  expect_same_results(graph, b.build(), 0, 0);
}

TEST(FoldConstants, ErrorOfAConstantNodeIsTheModels) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3});
  const ValueId gathered = b.node("Gather", {b.random("table", Shape{4, 3}), b.ints({9})}, {}, "pick");
  b.output(b.node("Add", {x, gathered}, {}, "y"));
  Graph graph = b.build();
  try {
    run_pass(graph, kPass);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
    EXPECT_STREQ(e.node, "pick");
  }
}

TEST(FoldConstants, NewConstantsAreChargedAndOldOnesGivenBack) {
  const auto ledger = std::make_shared<CountingLedger>();
  {
    GraphBuilder b;
    ValueId v = b.random("a", Shape{1000});
    for (int i = 0; i < 10; ++i) v = b.node("Neg", {v});
    b.output(b.node("Add", {b.input("x", Shape{1000}), v}, {}, "y"));
    Graph graph = b.build();
    PassContext context;
    context.ledger = ledger;
    EXPECT_TRUE(run_pass(graph, kPass, context));
    EXPECT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(ledger->current, 4000u);
    EXPECT_LE(ledger->peak, 8000u) << "a chain holds one link and the next";
  }
  EXPECT_EQ(ledger->current, 0u);
}

TEST(FoldConstants, ChainOfTilesStopsGrowing) {
  GraphBuilder b;
  ValueId v = b.random("seed", Shape{1});
  for (int i = 0; i < 30; ++i) v = b.node("Tile", {v, b.ints({2})});
  b.output(b.node("Add", {b.input("x", Shape{1}), v}, {}, "y"));
  Graph graph = b.build();
  const auto ledger = std::make_shared<CountingLedger>();
  PassContext context;
  context.ledger = ledger;
  EXPECT_TRUE(run_pass(graph, kPass, context));
  EXPECT_LE(ledger->peak, 2u << 20);
  EXPECT_GT(count_op(graph, "Tile"), 5);
}

TEST(FoldConstants, LargeExpansionOfASmallConstantIsLeftToTheRun) {
  for (const std::int64_t n : {std::int64_t{1} << 10, std::int64_t{1} << 20}) {
    GraphBuilder b;
    const ValueId filled = b.node("ConstantOfShape", {b.ints({n})});
    b.output(b.node("Add", {b.input("x", Shape{1}), filled}, {}, "y"));
    Graph graph = b.build();
    EXPECT_EQ(run_pass(graph, kPass), n == 1 << 10) << n;
  }
}

// x [1, n] times a filled matrix [n, n], reshaped on the way.
Graph filled_weight(std::int64_t n) {
  GraphBuilder b;
  const ValueId filled = b.node("ConstantOfShape", {b.ints({n * n})});
  const ValueId weight = b.node("Reshape", {filled, b.ints({n, n})});
  b.output(b.node("MatMul", {b.input("x", Shape{1, n}), weight}, {}, "y"));
  return b.build();
}

TEST(FoldConstants, WeightOfAProductMayBeMadeFromNothing) {
  Graph graph = filled_weight(1 << 10);
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  Graph large = filled_weight(1 << 15);
  EXPECT_FALSE(run_pass(large, kPass)) << "4 GiB are more than a model may make";
}

TEST(FoldConstants, WeightThatTheCapHasNoRoomForIsLeftToTheRun) {
  class Full : public Ledger {
   public:
    void charge(std::size_t bytes, MemoryClass) override {
      if (bytes > 1 << 20) fail(EVN_ERROR_OUT_OF_MEMORY, "full");
    }
    void discharge(std::size_t, MemoryClass) noexcept override {}
  };
  Graph graph = filled_weight(1 << 10);
  PassContext context;
  context.ledger = std::make_shared<Full>();
  EXPECT_FALSE(run_pass(graph, kPass, context));
  EXPECT_EQ(graph.nodes.size(), 3u);
}

TEST(FoldConstants, TensorAboveTheLimitFailsTheLoad) {
  GraphBuilder b;
  ValueId v = b.random("seed", Shape{1});
  for (int i = 0; i < 40; ++i) v = b.node("Tile", {v, b.ints({2})});
  b.output(b.node("Add", {b.input("x", Shape{1}), v}, {}, "y"));
  Graph graph = b.build();
  try {
    optimize_graph(graph, {});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
    EXPECT_EQ(e.bytes_available, Limits{}.tensor_bytes);
  }
}

TEST(FoldConstants, DeadlineStopsTheLoad) {
  GraphBuilder b;
  b.output(b.node("Add", {b.input("x", Shape{3}), b.node("Neg", {b.random("a", Shape{3})})}, {}, "y"));
  Graph graph = b.build();
  PassContext context;
  context.deadline_ns = 1;
  try {
    run_pass(graph, kPass, context);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
}

// Eight vectors, each element of one times each of all others.
Graph product_of_eight(std::int64_t length) {
  GraphBuilder b;
  std::vector<ValueId> in;
  for (char name = 'a'; name <= 'h'; ++name) in.push_back(b.random(std::string(1, name), Shape{length}));
  const ValueId product = b.node("Einsum", in, {{"equation", std::string("a,b,c,d,e,f,g,h->")}}, "product");
  b.output(b.node("Add", {b.input("x", Shape{1}), product}, {}, "y"));
  return b.build();
}

TEST(FoldConstants, WorkThatIsFarAboveItsDataIsLeftToTheRun) {
  TestClock clock;
  Graph graph = product_of_eight(128);
  PassContext context;
  context.deadline_ns = UINT64_MAX / 2;
  EXPECT_FALSE(run_pass(graph, kPass, context));
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(context.fold_work, PassContext::kFoldWork) << "what is known beforehand is not tried";
  Graph small = product_of_eight(3);
  EXPECT_TRUE(run_pass(small, kPass, context));
  EXPECT_EQ(small.nodes.size(), 1u);
}

// The work of Det is not told by its shapes: n^3 / 3.
Graph determinant(std::int64_t n) {
  GraphBuilder b;
  const ValueId det = b.node("Det", {b.random("a", Shape{n, n})}, {}, "det");
  b.output(b.node("Add", {b.input("x", Shape{1}), det}, {}, "y"));
  return b.build();
}

TEST(FoldConstants, WorkIsCountedWhileItIsDone) {
  PassContext context;
  context.fold_work = 1'000'000;
  Graph small = determinant(50);
  EXPECT_TRUE(run_pass(small, kPass, context));
  EXPECT_EQ(context.fold_work, 1'000'000) << "a little is free";
  Graph graph = determinant(400);
  EXPECT_FALSE(run_pass(graph, kPass, context));
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(context.fold_work, 0) << "what was tried in vain has been done too";
  Graph again = determinant(50);
  EXPECT_TRUE(run_pass(again, kPass, context)) << "what is linear in its data stays free";
}

// A node whose output has no elements, while its attributes or inputs let its reference loop. tests/limits has the memory of such.
ValueId grid_of_no_batch(GraphBuilder& b) {
  const ValueId theta = b.constant<float>("theta", Shape{0, 2, 3}, {});
  return b.node("AffineGrid", {theta, b.ints({0, 1, 1, std::int64_t{1} << 24})});
}
ValueId pool_of_no_regions(GraphBuilder& b) {
  const ValueId rois = b.constant<float>("rois", Shape{0, 5}, {});
  return b.node("MaxRoiPool", {b.random("image", Shape{1, 1, 1, 1}), rois},
                {{"pooled_shape", std::vector<std::int64_t>{1 << 20, 1}}});
}
ValueId empty_image_of_many_windows(GraphBuilder& b) {
  constexpr std::int64_t kWindows = 1 << 18;
  const ValueId columns = b.constant<std::int8_t>("columns", Shape{1, 1, kWindows}, std::vector<std::int8_t>(kWindows));
  return b.node("Col2Im", {columns, b.ints({0, 1}), b.ints({1, 1})}, {{"pads", std::vector<std::int64_t>{kWindows, 0, 0, 0}}});
}

TEST(FoldConstants, WhatHasNoElementsIsNotComputed) {
  for (const auto add : {&grid_of_no_batch, &pool_of_no_regions, &empty_image_of_many_windows}) {
    GraphBuilder b(20);
    const ValueId empty = add(b);
    b.output(b.node("Neg", {empty}, {}, "y"));
    Graph graph = b.build();
    const std::string op = graph.nodes[0].op_type;
    PassContext context;
    const Cancel never;
    const CancelScope scope(never);
    EXPECT_TRUE(run_pass(graph, kPass, context)) << op;
    EXPECT_LT(scope.work(), 20'000) << op;
    EXPECT_EQ(context.fold_work, PassContext::kFoldWork) << op;
    ASSERT_EQ(graph.nodes.size(), 1u) << op;
    const Value& folded = graph.values[static_cast<std::size_t>(graph.nodes[0].inputs[0])];
    ASSERT_NE(folded.constant, nullptr) << op;
    EXPECT_EQ(folded.constant->size_bytes, 0u) << op;
    EXPECT_EQ(folded.shape.elements(), 0) << op;
  }
}

TEST(FoldConstants, TheLoadsTimeEndsWithinANode) {
  for (const bool in_branch : {false, true}) {
    TestClock clock;
    PassContext context;
    context.deadline_ns = UINT64_MAX / 2;
    Graph graph = determinant(200);
    if (in_branch) {
      graph.regions.push_back({});
      graph.nodes[0].region = 0;
    }
    clock.restart(20);
    try {
      run_pass(graph, kPass, context);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
      EXPECT_STREQ(e.message, "the time to load the model is over");
      EXPECT_STREQ(e.node, "det");
    }
    EXPECT_LE(clock.looks(), 22);
  }
}

}  // namespace
}  // namespace evn::test::fold_constants_test
