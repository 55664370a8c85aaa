// Names that a rewrite gives do not depend on whether the graph's list of values is reallocated while it adds some. Products of
// which sums of 8-bit numbers could overflow stay float32.
#include "quant/rewrite.h"

#include <gtest/gtest.h>

#include <functional>

#include "quant/layers.h"
#include "tests/quant/plain_graph.h"

namespace evn {
namespace {

// y = x w + b, z = y v, with names too long to lie in a string itself and room for so many more values. A row of x has `depth`
// elements.
Graph products(std::size_t room, std::int64_t depth = 3) {
  test::PlainGraph g;
  const auto value = [&](const char* name, const Shape& shape, WeightPtr constant = nullptr) {
    return g.value(std::string("a name that is longer than what a string has room for: ") + name, shape, std::move(constant));
  };
  const auto weight = [&](const char* name, const Shape& shape) {
    const std::vector<float> halves(static_cast<std::size_t>(shape.elements()), 0.5f);
    return value(name, shape, weight_of_floats(shape, halves, nullptr));
  };
  const ValueId x = value("x", {2, depth}), y = value("y", {2, 4}), z = value("z", {2, 5});
  g.node("Gemm", "first", {x, weight("w", {depth, 4}), weight("b", {4})}, y);
  g.node("MatMul", "second", {y, weight("v", {4, 5})}, z);
  Graph& graph = g.graph;
  graph.inputs = {x};
  graph.outputs = {z};
  std::vector<Value> values;
  values.reserve(graph.values.size() + room);
  for (Value& each : graph.values) values.push_back(std::move(each));
  graph.values = std::move(values);
  return std::move(graph);
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& v : graph.values) names.push_back(v.name);
  for (const Node& n : graph.nodes) names.push_back(n.name);
  return names;
}

void expect_the_same_names(const std::function<void(Graph&, QuantScheme&)>& rewrite) {
  std::vector<std::string> wanted;
  for (std::size_t room = 64; room-- > 0;) {
    Graph graph = products(room);
    const std::size_t before = graph.values.size();
    QuantScheme scheme = make_scheme(graph, {});
    rewrite(graph, scheme);
    const std::vector<std::string> names = names_of(graph);
    EXPECT_GT(graph.values.size(), before + 6);
    EXPECT_LT(graph.values.size(), before + 63);  // with the most room nothing moves
    if (wanted.empty()) wanted = names;
    EXPECT_EQ(names, wanted) << room;
  }
}

TEST(Rewrite, StaticNamesDoNotDependOnWhereValuesLie) {
  for (const bool per_tensor : {false, true}) {
    expect_the_same_names([&](Graph& graph, QuantScheme& scheme) {
      rewrite_static(&graph, &scheme, std::vector<QuantParams>(graph.values.size(), QuantParams{0.1f, 3}),
                     {.per_tensor = per_tensor, .ledger = nullptr});
    });
  }
}

TEST(Rewrite, DynamicNamesDoNotDependOnWhereValuesLie) {
  expect_the_same_names([](Graph& graph, QuantScheme& scheme) { rewrite_dynamic(&graph, &scheme, {.ledger = nullptr}); });
}

TEST(Scheme, ProductsWhoseSumsCouldOverflowStayFloat) {
  constexpr std::int64_t kDeepest = 66'311;  // times 255 * 127 is just below 2^31
  for (const bool dynamic : {false, true}) {
    SchemeOptions options;
    options.dynamic = dynamic;
    EXPECT_EQ(make_scheme(products(0, kDeepest), options).nodes[0].role, QuantRole::kProduct);
    const QuantScheme scheme = make_scheme(products(0, kDeepest + 1), options);
    EXPECT_EQ(scheme.nodes[0].role, QuantRole::kFloat);
    EXPECT_EQ(scheme.nodes[0].reason, "its sums could overflow 32 bits");
    EXPECT_EQ(scheme.nodes[1].role, QuantRole::kProduct);
  }
}

}  // namespace
}  // namespace evn
