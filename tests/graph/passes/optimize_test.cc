// optimize_graph: all rewrites together.
#include <gtest/gtest.h>

#include <chrono>
#include <new>

#include "base/error.h"
#include "base/fault.h"
#include "tests/support/pass_check.h"

namespace evn::test {
namespace {

// A block as Paddle exports it: convolution, learnable scale and offset, hard-swish, scale and offset.
ValueId paddle_block(GraphBuilder& b, ValueId x, std::int64_t channels, const std::string& name) {
  ValueId v = b.node("Conv", {x, b.random(name + ".w", Shape{channels, channels, 1, 1}), b.random(name + ".b", Shape{channels})});
  v = b.node("Mul", {b.constant<float>(name + ".s", Shape{1}, {0.9f}), v});
  v = b.node("Add", {v, b.constant<float>(name + ".t", Shape{1}, {0.1f})});
  const ValueId clipped = b.node("Clip", {b.node("Add", {v, b.scalar(3)}), b.scalar(0), b.scalar(6)});
  v = b.node("Div", {b.node("Mul", {v, clipped}), b.scalar(6)});
  v = b.node("Mul", {b.constant<float>(name + ".u", Shape{1}, {1.2f}), v});
  return b.node("Add", {v, b.constant<float>(name + ".v", Shape{1}, {-0.2f})}, {}, name);
}

Graph paddle_net() {
  GraphBuilder b(12);
  const ValueId x = b.input("x", Shape{1, 4, -1, -1});
  const ValueId first = paddle_block(b, x, 4, "first");
  const ValueId second = paddle_block(b, first, 4, "second");
  b.output(b.node("Identity", {b.node("Add", {first, second})}, {}, "y"));
  return b.build();
}

TEST(Optimize, BlockBecomesOneConvolution) {
  const Graph original = paddle_net();
  Graph graph = original;
  optimize_graph(graph, {});
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(count_op(graph, "Conv"), 2);
  EXPECT_EQ(graph.nodes[0].epilogue.count, 3);  // HardSwish, Scale, Offset
  expect_same_results(graph, original, 1e-5, 1e-5);
}

TEST(Optimize, EachPassMayBeLeftOut) {
  const Graph original = paddle_net();
  for (const Pass& pass : passes()) {
    Graph graph = original;
    const char* const disabled[] = {pass.name};
    optimize_graph(graph, {}, disabled);
    expect_same_results(graph, original, 1e-5, 1e-5);
  }
}

TEST(Optimize, AllPassesLeftOutChangeNothing) {
  const Graph original = paddle_net();
  Graph graph = original;
  std::vector<const char*> disabled;
  for (const Pass& pass : passes()) disabled.push_back(pass.name);
  optimize_graph(graph, {}, disabled);
  EXPECT_EQ(graph.nodes.size(), original.nodes.size());
}

TEST(Optimize, SecondTimeChangesNothing) {
  Graph graph = paddle_net();
  optimize_graph(graph, {});
  const std::size_t nodes = graph.nodes.size();
  const std::size_t values = graph.values.size();
  optimize_graph(graph, {});
  EXPECT_EQ(graph.nodes.size(), nodes);
  EXPECT_EQ(graph.values.size(), values);
}

// Each allocation of a load may fail: then an error comes out, and nothing else happens.
TEST(Optimize, AnyAllocationMayFail) {
  const Graph original = paddle_net();
  bool failed = true;
  for (std::int64_t k = 1; failed && k < 100000; ++k) {
    Graph graph = original;
    failed = false;
    fault_arm(Seam::kAlloc, k, false);
    try {
      optimize_graph(graph, {});
    } catch (const std::bad_alloc&) {
      failed = true;
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    if (!failed) {
      EXPECT_GT(k, 100) << "the seam was not passed";
      EXPECT_EQ(graph.nodes.size(), 3u);
    }
  }
  EXPECT_FALSE(failed);
}

// Quadratic rewrites would not end within the deadline, which is far above what linear ones take.
TEST(Optimize, LongChainEndsBeforeTheDeadline) {
  GraphBuilder b;
  ValueId v = b.input("x", Shape{2});
  for (int i = 0; i < 60000; ++i) v = b.node(i % 3 == 0 ? "Identity" : i % 3 == 1 ? "Relu" : "Neg", {v});
  b.output(v);
  Graph graph = b.build();
  PassContext context;
  context.deadline_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch() + std::chrono::seconds(60)).count());
  optimize_graph(graph, context);
  EXPECT_EQ(graph.nodes.size(), 40000u);
}

}  // namespace
}  // namespace evn::test
