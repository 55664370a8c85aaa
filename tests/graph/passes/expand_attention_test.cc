// The rewrite expand_attention.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::expand_attention_test {
namespace {

constexpr char kPass[] = "expand_attention";
constexpr char kProjected[] = "com.microsoft::Attention", kMulti[] = "com.microsoft::MultiHeadAttention";

std::vector<Attribute> with_heads(std::vector<Attribute> more = {}) {
  more.push_back({"num_heads", std::int64_t{3}});
  return more;
}

ValueId mask_of(GraphBuilder& b, const Shape& shape) {
  std::vector<std::int32_t> seen(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = i % 3 == 1 ? 0 : 1;
  return b.constant<std::int32_t>("mask", shape, seen);
}

void expect_expanded(GraphBuilder& b, int nodes) {
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(static_cast<int>(graph.nodes.size()), nodes);
  const Node* const node = find_node(graph, "Attention");
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->domain, "");
  EXPECT_FALSE(run_pass(graph, kPass));
  expect_same_results(graph, b.build(), 1e-4, 1e-5);
}

void expect_stays(GraphBuilder& b) {
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].domain, "com.microsoft");
}

TEST(ExpandAttention, ProjectionIsAProductAndASum) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 5, 7}), w = b.random("w", Shape{7, 72}), bias = b.random("bias", Shape{72});
  b.output(b.node(kProjected, {x, w, bias}, with_heads({{"unidirectional", std::int64_t{1}}})));
  expect_expanded(b, 4);
}

TEST(ExpandAttention, WidthsOfTheirOwnAndAMask) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 5, 7}), w = b.random("w", Shape{7, 60});
  const Attribute widths = {"qkv_hidden_sizes", std::vector<std::int64_t>{24, 24, 12}};
  b.output(b.node(kProjected, {x, w, kNoValue, mask_of(b, Shape{2, 5})}, with_heads({widths, {"mask_filter_value", -3.0f}})));
  expect_expanded(b, 6);
}

TEST(ExpandAttention, SeveralHeadsWithBiasMaskAndSum) {
  GraphBuilder b;
  const ValueId q = b.input("q", Shape{2, 4, 24}), k = b.input("k", Shape{2, 5, 24}), v = b.input("v", Shape{2, 5, 12});
  const ValueId bias = b.random("bias", Shape{60}), sum = b.input("sum", Shape{1, 3, 4, 5});
  b.output(b.node(kMulti, {q, k, v, bias, mask_of(b, Shape{2, 4, 5}), sum}, with_heads({{"scale", 0.3f}})));
  expect_expanded(b, 9);
}

TEST(ExpandAttention, WhatHasNoEquivalentStays) {
  GraphBuilder lengths;
  const ValueId x = lengths.input("x", Shape{2, 5, 7}), w = lengths.random("w", Shape{7, 72}),
                bias = lengths.random("bias", Shape{72});
  lengths.output(lengths.node(kProjected, {x, w, bias, mask_of(lengths, Shape{2})}, with_heads()));
  expect_stays(lengths);
  GraphBuilder past;
  const ValueId y = past.input("x", Shape{2, 5, 7}), u = past.random("w", Shape{7, 72}), c = past.random("bias", Shape{72});
  past.output(past.node(kProjected, {y, u, c, kNoValue, past.input("past", Shape{2, 2, 3, 4, 8})}, with_heads()));
  expect_stays(past);
  GraphBuilder packed;
  packed.output(packed.node(kMulti, {packed.input("q", Shape{2, 5, 3, 3, 8})}, with_heads()));
  expect_stays(packed);
}

}  // namespace
}  // namespace evn::test::expand_attention_test
