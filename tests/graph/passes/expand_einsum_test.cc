// The rewrite expand_einsum.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::expand_einsum_test {
namespace {

constexpr char kPass[] = "expand_einsum";

Graph einsum(const std::string& equation, const std::vector<Shape>& shapes, int constant = -1) {
  GraphBuilder b;
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(static_cast<int>(i) == constant ? b.random("w" + std::to_string(i), shapes[i])
                                                     : b.input("x" + std::to_string(i), shapes[i]));
  }
  b.output(b.node("Einsum", inputs, {{"equation", equation}}, "y"));
  return b.build();
}

void expect_expanded(const std::string& equation, const std::vector<Shape>& shapes) {
  SCOPED_TRACE(equation);
  for (int constant = -1; constant < static_cast<int>(shapes.size()); ++constant) {
    if (shapes.size() == 1 && constant == 0) continue;
    Graph graph = einsum(equation, shapes, constant);
    EXPECT_TRUE(run_pass(graph, kPass));
    EXPECT_EQ(count_op(graph, "Einsum"), 0);
    expect_same_results(graph, einsum(equation, shapes, constant), 1e-4, 1e-5);
  }
}

TEST(ExpandEinsum, OneOperand) {
  expect_expanded("ij->ij", {{3, 4}});
  expect_expanded("ij->ji", {{3, 4}});
  expect_expanded("ij->", {{3, 4}});
  expect_expanded("bij->jb", {{2, 3, 4}});
  expect_expanded("b...j->j...b", {{2, 3, 5, 4}});
  expect_expanded("ba", {{2, 3}});
}

TEST(ExpandEinsum, ProductsOfMatrices) {
  expect_expanded("ij,jk->ik", {{3, 4}, {4, 5}});
  expect_expanded("ij,jk->ki", {{3, 4}, {4, 5}});
  expect_expanded("ij,kj", {{3, 4}, {5, 4}});
  expect_expanded("bij,jk->bik", {{2, 3, 4}, {4, 5}});
  expect_expanded("...ij,...jk->...ik", {{2, 1, 3, 4}, {6, 4, 5}});
  expect_expanded("bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}});
  expect_expanded("bqhd,bkhd->bhqk", {{2, 4, 3, 5}, {2, 6, 3, 5}});
  expect_expanded("bhqk,bkhd->bqhd", {{2, 3, 4, 6}, {2, 6, 3, 5}});
  expect_expanded("bhwc,hkc->bhwk", {{2, 3, 4, 5}, {3, 6, 5}});
  expect_expanded("bhwc,wkc->bhwk", {{2, 3, 4, 5}, {4, 6, 5}});
  expect_expanded("nctkv,kvw->nctw", {{2, 3, 4, 2, 5}, {2, 5, 6}});
  expect_expanded("abc,bcd->ad", {{2, 3, 4}, {3, 4, 5}});
}

// One product, of all rows by all columns.
TEST(ExpandEinsum, SeveralAxesOfColumnsAreOne) {
  for (const auto& [equation, shapes] : {std::pair{"ibh,hnd->ibnd", std::vector<Shape>{{3, 2, 4}, {4, 5, 6}}},
                                         std::pair{"ibh,hnd->bnid", std::vector<Shape>{{3, 2, 4}, {4, 5, 6}}},
                                         std::pair{"ibnd,hnd->ibh", std::vector<Shape>{{3, 2, 5, 6}, {4, 5, 6}}},
                                         std::pair{"h,hnd->nd", std::vector<Shape>{{4}, {4, 5, 6}}},
                                         std::pair{"abc,cbde->ade", std::vector<Shape>{{2, 3, 4}, {4, 3, 5, 6}}}}) {
    expect_expanded(equation, shapes);
    Graph graph = einsum(equation, shapes);
    EXPECT_TRUE(run_pass(graph, kPass));
    const Node* product = find_node(graph, "MatMul");
    ASSERT_NE(product, nullptr);
    EXPECT_LE(graph.values[product->inputs[1]].shape.rank(), 2) << equation;
  }
  const std::vector<Shape> open = {{-1, -1, 4}, {4, 5, 6}};
  Graph graph = einsum("ibh,hnd->ibnd", open);
  EXPECT_TRUE(run_pass(graph, kPass));
  expect_same_results(graph, einsum("ibh,hnd->ibnd", open), 1e-4, 1e-5);
}

TEST(ExpandEinsum, DimsOfOneThatALaterOperandBroadcasts) {
  expect_expanded("ij,jkl,kl->ikl", {{2, 3}, {3, 1, 4}, {5, 4}});
  expect_expanded("kl,ij,jkl->ikl", {{5, 4}, {2, 3}, {3, 1, 4}});
}

TEST(ExpandEinsum, BatchesWithoutElements) {
  expect_expanded("bqhd,hdm->bqm", {{0, 2, 3, 4}, {3, 4, 5}});
  expect_expanded("bqhd,hdm->bqm", {{2, 0, 3, 4}, {3, 4, 5}});
  expect_expanded("bij,bij->b", {{0, 3, 4}, {0, 3, 4}});
}

TEST(ExpandEinsum, VectorsAndSums) {
  expect_expanded("i,i->", {{4}, {4}});
  expect_expanded("ij,j->i", {{3, 4}, {4}});
  expect_expanded("j,ij->i", {{4}, {3, 4}});
  expect_expanded("bij,bj->bi", {{2, 3, 4}, {2, 4}});
  expect_expanded("ijl,jk->ik", {{3, 4, 2}, {4, 5}});
  expect_expanded("ij,k->ik", {{3, 4}, {5}});
}

TEST(ExpandEinsum, Multiplications) {
  expect_expanded("i,j->ij", {{3}, {4}});
  expect_expanded("i,j->ji", {{3}, {4}});
  expect_expanded("bij,bij->bij", {{2, 3, 4}, {2, 3, 4}});
  expect_expanded("bi,bj->bij", {{2, 3}, {2, 4}});
  expect_expanded("bhi,i->bhi", {{2, 3, 4}, {4}});
  expect_expanded("b,bhi->bhi", {{2}, {2, 3, 4}});
}

TEST(ExpandEinsum, SeveralOperands) {
  expect_expanded("ij,jk,kl->il", {{3, 4}, {4, 5}, {5, 6}});
  expect_expanded("bi,bij,bj->b", {{2, 3}, {2, 3, 4}, {2, 4}});
  expect_expanded("a,ab,abc,bd->cd", {{2}, {2, 3}, {2, 3, 4}, {3, 5}});
}

// Dims of a letter that are not known are taken to be alike; those of axes of "..." where they have one name.
TEST(ExpandEinsum, UnknownDims) {
  for (const char* equation : {"bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd"}) {
    const std::vector<Shape> shapes = {{-1, 3, 4, -1}, {-1, 3, -1, -1}};
    Graph graph = einsum(equation, shapes);
    EXPECT_TRUE(run_pass(graph, kPass)) << equation;
    EXPECT_EQ(count_op(graph, "MatMul"), 1);
    expect_same_results(graph, einsum(equation, shapes), 1e-4, 1e-5);
  }
  const std::vector<Shape> dots = {{-1, -1, 4, 3, 5}, {-1, -1, 5, 4, 6}};
  Graph kept = einsum("...hqk,...khd->...qhd", dots);
  EXPECT_TRUE(run_pass(kept, kPass));
  expect_same_results(kept, einsum("...hqk,...khd->...qhd", dots), 1e-4, 1e-5);
  const auto dotted = [](const std::string& first, const std::string& second) {
    Graph graph = einsum("...d,...d->d", {{-1, 5}, {-1, 5}});
    graph.values[graph.inputs[0]].symbols = {first, ""};
    graph.values[graph.inputs[1]].symbols = {second, ""};
    return graph;
  };
  Graph named = dotted("rows", "rows");
  EXPECT_TRUE(run_pass(named, kPass));
  for (const char* other : {"", "others"}) {
    Graph stays = dotted(other, "rows");
    EXPECT_FALSE(run_pass(stays, kPass));
  }
  Graph one = einsum("ij,jk->ik", {{3, 1}, {-1, 5}});  // it may be that 1 is broadcast
  EXPECT_FALSE(run_pass(one, kPass));
  Graph open = einsum("ij,k->ijk", {{-1, -1}, {-1}});  // no letter is shared
  EXPECT_TRUE(run_pass(open, kPass));
}

TEST(ExpandEinsum, WhatNeedsNoTranspositionHasNone) {
  for (const auto& [equation, shapes, transpositions] :
       {std::tuple{"bhqd,bhkd->bhqk", std::vector<Shape>{{2, 3, 4, 5}, {2, 3, 6, 5}}, 1},
        std::tuple{"bhqk,bhkd->bhqd", std::vector<Shape>{{2, 3, 4, 6}, {2, 3, 6, 5}}, 0},
        std::tuple{"bij,jk->bik", std::vector<Shape>{{2, 3, 4}, {4, 5}}, 0},
        std::tuple{"jk,bij->bik", std::vector<Shape>{{4, 5}, {2, 3, 4}}, 0}}) {
    Graph graph = einsum(equation, shapes);
    EXPECT_TRUE(run_pass(graph, kPass));
    EXPECT_EQ(count_op(graph, "Transpose"), transpositions) << equation;
    EXPECT_EQ(count_op(graph, "MatMul"), 1) << equation;
  }
}

TEST(ExpandEinsum, AttentionIsFused) {
  GraphBuilder b;
  const ValueId q = b.input("q", Shape{2, 7, 4, 16}), k = b.input("k", Shape{2, 9, 4, 16}), v = b.input("v", Shape{2, 9, 4, 16});
  const ValueId scores = b.node("Einsum", {q, k}, {{"equation", std::string("bqhd,bkhd->bhqk")}});
  const ValueId weights = b.node("Softmax", {b.node("Mul", {scores, b.scalar(0.25f)})}, {{"axis", std::int64_t{-1}}});
  b.output(b.node("Einsum", {weights, v}, {{"equation", std::string("bhqk,bkhd->bqhd")}}, "y"));
  Graph graph = b.build();
  optimize_graph(graph, {});
  EXPECT_EQ(count_op(graph, "Attention"), 1);
  EXPECT_EQ(graph.nodes.size(), 1u);
}

TEST(ExpandEinsum, OthersStay) {
  for (const auto& [equation, shapes] :
       {std::pair{"ii->i", std::vector<Shape>{{3, 3}}}, std::pair{"ij,jj->i", std::vector<Shape>{{3, 4}, {4, 4}}},
        std::pair{"ij,jk->ik", std::vector<Shape>{{3, 1}, {4, 5}}}}) {
    Graph graph = einsum(equation, shapes);
    EXPECT_FALSE(run_pass(graph, kPass)) << equation;
  }
}

TEST(ExpandEinsum, RulesForTheOperatorStillMatch) {
  Graph graph = einsum("ij,jk->ik", {{3, 4}, {4, 5}});
  EXPECT_TRUE(run_pass(graph, kPass));
  for (const Node& node : graph.nodes) EXPECT_EQ(node.model_op, "Einsum");
}

}  // namespace
}  // namespace evn::test::expand_einsum_test
