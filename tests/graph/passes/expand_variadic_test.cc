// The rewrite expand_variadic.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::expand_variadic_test {
namespace {

constexpr char kPass[] = "expand_variadic";

Graph variadic(const char* op, const std::vector<Shape>& shapes, bool constant = false) {
  GraphBuilder b;
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const bool is_constant = constant && i == 1;
    inputs.push_back(is_constant ? b.random("w", shapes[i]) : b.input("x" + std::to_string(i), shapes[i]));
  }
  b.output(b.node(op, inputs, {}, "y"));
  return b.build();
}

void expect_expanded(const char* op, const char* of_two, const std::vector<Shape>& shapes) {
  for (const bool constant : {false, true}) {
    Graph graph = variadic(op, shapes, constant);
    EXPECT_TRUE(run_pass(graph, kPass)) << op;
    EXPECT_EQ(count_op(graph, of_two), static_cast<int>(shapes.size()) - 1) << op;
    EXPECT_EQ(graph.nodes.size(), shapes.size() - 1) << op;
    EXPECT_FALSE(run_pass(graph, kPass)) << op;
    expect_same_results(graph, variadic(op, shapes, constant), 1e-5, 1e-6);
  }
}

TEST(ExpandVariadic, SeveralOperandsAreTakenTwoByTwo) {
  const std::vector<Shape> alike = {{2, 3, 4}, {2, 3, 4}, {2, 3, 4}};
  const std::vector<Shape> broadcast = {{4}, {3, 1}, {2, 1, 1}, {1, 3, 4}};
  for (const auto& [op, of_two] : {std::pair{"Sum", "Add"}, {"Mean", "Add"}, {"Max", "Max"}, {"Min", "Min"}}) {
    expect_expanded(op, of_two, alike);
    expect_expanded(op, of_two, broadcast);
  }
  expect_expanded("Mean", "Add", {{2, 3}, {3}});
}

TEST(ExpandVariadic, FewOperandsAndOtherTypesStay) {
  for (const char* op : {"Sum", "Max", "Min"}) {
    Graph graph = variadic(op, {{2, 3}, {3}});
    EXPECT_FALSE(run_pass(graph, kPass)) << op;
  }
  Graph one = variadic("Mean", {{2, 3}});
  EXPECT_FALSE(run_pass(one, kPass));
  GraphBuilder b;
  const DType wide = DType::kFloat64;
  b.output(b.node("Max", {b.input("a", Shape{3}, wide), b.input("b", Shape{3}, wide), b.input("c", Shape{3}, wide)}, {}, "y"));
  Graph doubles = b.build();
  EXPECT_FALSE(run_pass(doubles, kPass));
}

}  // namespace
}  // namespace evn::test::expand_variadic_test
