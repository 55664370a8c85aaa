// Cancellation points of the quantizer: all of its work is counted, in pieces between which it can be stopped, and grows with the
// model and not with its square.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "base/cancel.h"
#include "base/error.h"
#include "quant/block_weights.h"
#include "quant/closeness.h"
#include "quant/convert_half.h"
#include "quant/equalize.h"
#include "quant/layers.h"
#include "quant/operators.h"
#include "quant/probe.h"
#include "quant/rewrite_weights.h"
#include "quant/weights.h"
#include "tests/quant/plain_graph.h"

namespace evn {
namespace {

// Units of work of a call that takes many looks. The call ends when it is to stop.
std::int64_t units_of(const std::function<void()>& call) {
  std::atomic<bool> requested{true};
  Cancel stop;
  stop.requested = &requested;
  try {
    const CancelScope scope(stop);
    call();
    ADD_FAILURE() << "the call was not stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_CANCELLED) << e.message;
  }
  const Cancel never;
  const CancelScope scope(never);
  call();
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
  return scope.work();
}

std::vector<float> wave(std::size_t n) {
  std::vector<float> numbers;
  for (std::size_t i = 0; i < n; ++i) numbers.push_back(std::sin(static_cast<float>(i)));
  return numbers;
}

WeightPtr wave_weight(const Shape& shape) {
  return weight_of_floats(shape, wave(static_cast<std::size_t>(shape.elements())), nullptr);
}

TEST(QuantWork, EveryElementOfAWeightIsCounted) {
  for (const Shape& shape : {Shape{256, 512}, Shape{1, 65'536}, Shape{65'536, 1}}) {
    const WeightPtr w = wave_weight(shape);
    const std::int64_t all = shape.elements();
    for (const int axis : {-1, 0, 1}) {
      EXPECT_GE(units_of([&] { quantize_weight(*w, "w", axis, nullptr); }), 2 * all) << axis;
      if (axis < 0) continue;
      for (const std::int64_t block : {32, 65'536}) {
        EXPECT_GE(units_of([&] { quantize_blocks(*w, "w", axis, 8, block); }), 3 * all) << axis;
        const std::int64_t tries = shape[axis] == 1 ? 2 : 10;  // the first try of one element is exact
        EXPECT_GE(units_of([&] { quantize_blocks(*w, "w", axis, 4, block); }), tries * all) << axis;
      }
    }
  }
}

TEST(QuantWork, EveryElementThatIsObservedIsCounted) {
  constexpr std::size_t kElements = 1 << 20;
  const std::vector<float> x = wave(kElements);
  for (const bool histogram : {false, true}) {
    const std::int64_t units = units_of([&] { Observer(histogram).add(x); });
    EXPECT_GE(units, static_cast<std::int64_t>(histogram ? kElements : kElements * sizeof(float) / kBytesPerWork));
  }
  for (const std::size_t columns : {std::size_t{1}, std::size_t{64}, kElements}) {
    EXPECT_GE(units_of([&] { ColumnRanges().add(x, columns); }), static_cast<std::int64_t>(kElements));
    EXPECT_GE(units_of([&] { Closeness().add(x, x, columns); }), 3 * static_cast<std::int64_t>(kElements));
  }
}

TEST(QuantWork, EveryRangeThatIsTriedIsCounted) {
  Observer seen(true);
  ASSERT_TRUE(seen.add(wave(100'000)));
  for (const Calibration calibration : {Calibration::kEntropy, Calibration::kMse}) {
    EXPECT_GE(units_of([&] { choose_range(seen, calibration, 0); }), 40 * 2 * Observer::kHalf);
  }
}

// Products that all read x: Conv, Relu and Conv on images, else MatMul, each with a weight of its own. All results are outputs.
Graph many_products(std::int64_t count, bool images) {
  test::PlainGraph g;
  const Shape shape = images ? Shape{1, 4, 2, 2} : Shape{2, 32};
  const auto weight = [&](const std::string& name, const Shape& of) { return g.value(name, of, wave_weight(of)); };
  const ValueId x = g.value("x", shape);
  g.graph.inputs = {x};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string k = std::to_string(i);
    const ValueId y = g.value("y" + k, shape);
    if (images) {
      const ValueId a = g.value("a" + k, shape), b = g.value("b" + k, shape);
      g.node("Conv", "first" + k, {x, weight("v" + k, {4, 4, 1, 1})}, a);
      g.node("Relu", "relu" + k, {a}, b);
      g.node("Conv", "second" + k, {b, weight("w" + k, {4, 4, 1, 1})}, y);
    } else {
      g.node("MatMul", "product" + k, {x, weight("w" + k, {32, 32})}, y);
    }
    g.graph.outputs.push_back(y);
  }
  return std::move(g.graph);
}

// Calls a stage with a graph of n products and one of 2n.
void expect_linear(const char* name, bool images, const std::function<void(const Graph&)>& stage) {
  constexpr std::int64_t kSize = 400;
  constexpr double kMostGrowth = 2.3;
  const Graph small = many_products(kSize, images), large = many_products(2 * kSize, images);
  const std::int64_t units = units_of([&] { stage(small); });
  EXPECT_GE(units, kSize * kNodeWork) << name;
  EXPECT_LE(static_cast<double>(units_of([&] { stage(large); })), kMostGrowth * static_cast<double>(units)) << name;
}

TEST(QuantWork, StagesGrowWithTheGraph) {
  const auto params_of_all = [](const Graph& graph) { return std::vector<QuantParams>(graph.values.size(), QuantParams{0.1f, 3}); };
  for (const bool images : {false, true}) {
    expect_linear("scheme", images, [](const Graph& graph) { make_scheme(graph, {}).observed(graph); });
    expect_linear("static", images, [&](const Graph& graph) {
      Graph copy = graph;
      QuantScheme scheme = make_scheme(graph, {});
      rewrite_static(&copy, &scheme, params_of_all(graph), {.ledger = nullptr});
      use_byte_operators(&copy, nullptr);
    });
    expect_linear("dynamic", images, [](const Graph& graph) {
      Graph copy = graph;
      QuantScheme scheme = make_scheme(graph, {.keep = {}, .dynamic = true});
      rewrite_dynamic(&copy, &scheme, {.ledger = nullptr});
    });
    for (const bool contrib : {false, true}) {
      expect_linear("weights", images, [&](const Graph& graph) {
        Graph copy = graph;
        const WeightOptions options{4, 32, contrib, nullptr};
        rewrite_weights(&copy, make_weight_scheme(graph, {}, options), options);
      });
    }
    expect_linear("half", images, [](const Graph& graph) {
      Graph copy = graph;
      convert_half(&copy, make_half_scheme(graph, {}, DType::kFloat16), DType::kFloat16, nullptr);
    });
    expect_linear("probe", images, [](const Graph& graph) { make_probe(graph, make_scheme(graph, {})); });
    expect_linear("equalize", images, [](const Graph& graph) {
      Graph copy = graph;
      equalize_layers(copy, make_scheme(graph, {}), nullptr);
    });
  }
}

// Constants that many nodes read are looked through once.
TEST(QuantWork, ASharedConstantIsComparedWithTheLargestHalfOnce) {
  constexpr std::int64_t kReaders = 100, kColumns = 10'000;
  Graph graph;
  const auto value = [&](const std::string& name, WeightPtr constant) {
    Value v;
    v.name = name;
    v.dtype = DType::kFloat32;
    v.has_shape = true;
    v.shape = {kColumns, 1};
    v.constant = std::move(constant);
    graph.values.push_back(std::move(v));
    return static_cast<ValueId>(graph.values.size() - 1);
  };
  const ValueId w = value("w", wave_weight({kColumns, 1}));
  graph.inputs = {value("x", nullptr)};
  for (std::int64_t i = 0; i < kReaders; ++i) {
    Node n;
    n.op_type = "MatMul";
    n.inputs = {graph.inputs[0], w};
    n.outputs = {value("y" + std::to_string(i), nullptr)};
    graph.nodes.push_back(std::move(n));
  }
  const std::int64_t units = units_of([&] { make_half_scheme(graph, {}, DType::kFloat16); });
  EXPECT_GE(units, kColumns);
  EXPECT_LE(units, 2 * kColumns + 4 * kReaders * kNodeWork);
}

TEST(QuantWork, ColumnsThatAreSmoothedAreCounted) {
  constexpr std::int64_t kColumns = 4096;
  Graph graph;
  for (const char* const name : {"x", "w", "y"}) {
    Value v;
    v.name = name;
    v.dtype = DType::kFloat32;
    v.has_shape = true;
    v.shape = name[0] == 'w' ? Shape{kColumns, 4} : Shape{2, name[0] == 'x' ? kColumns : 4};
    if (name[0] == 'w') v.constant = wave_weight(v.shape);
    graph.values.push_back(std::move(v));
  }
  Node n;
  n.op_type = "MatMul";
  n.inputs = {0, 1};
  n.outputs = {2};
  graph.nodes.push_back(std::move(n));
  graph.inputs = {0};
  graph.outputs = {2};
  std::vector<float> rows = wave(static_cast<std::size_t>(kColumns));
  rows[7] = 100;
  std::map<ValueId, ColumnRanges> seen;
  ASSERT_TRUE(seen[0].add(rows, rows.size()));
  const QuantScheme scheme = make_scheme(graph, {});
  EXPECT_EQ(smooth(graph, scheme, seen).size(), 1u);
  EXPECT_GE(units_of([&] { smooth(graph, scheme, seen); }), 4 * kColumns);
}

}  // namespace
}  // namespace evn
