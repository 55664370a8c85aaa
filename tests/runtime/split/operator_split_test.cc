// Rules with `split`: single nodes whose channels, columns or rows several devices share.
#include "runtime/split/operator_split.h"

#include <fstream>
#include <thread>

#include "base/fault.h"
#include "graph/cut_node.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/step_features.h"
#include "runtime/lower/plan_state.h"
#include "runtime/split/split_watch.h"
#include "tests/runtime/live/support.h"

namespace evn::test {
namespace {

std::vector<float> numbers(std::size_t count, int step = 7) {
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i)
    v[i] = 0.125f * static_cast<float>(static_cast<int>(i * static_cast<std::size_t>(step) % 23) - 11);
  return v;
}

HostTensor filled(const Shape& shape) {
  HostTensor t({DType::kFloat32, shape});
  const std::vector<float> v = numbers(t.as<float>().size(), 5);
  std::copy(v.begin(), v.end(), t.as<float>().begin());
  return t;
}

PlacementRule shared(std::vector<std::string> ops, std::vector<std::string> devices, Policy policy = Policy::kRequire) {
  PlacementRule r = rule(std::move(ops), {}, "", policy, 5);
  r.split = std::move(devices);
  return r;
}

class OperatorSplitTest : public RuntimeTest {
 protected:
  static Config config(PlacementRule r) {
    Config c = two_mocks();
    c.measure_costs = false;
    c.rules = {std::move(r)};
    return c;
  }

  // Conv (8 -> 48 channels) with a bias and Relu, and a product with its columns.
  static OnnxWriter network() {
    OnnxWriter w;
    w.add_input("x", kF32, {1, 8, 6, 6});
    w.add_initializer("w", {48, 8, 3, 3}, numbers(48 * 8 * 9));
    w.add_initializer("b", {48}, numbers(48));
    w.add_initializer("m", {6, 40}, numbers(240, 3));
    w.add_node("Conv", {"x", "w", "b"}, {"c"}, {Attr("pads", std::vector<std::int64_t>{1, 1, 1, 1})}, "conv");
    w.add_node("Relu", {"c"}, {"r"}, {}, "relu");
    w.add_node("MatMul", {"r", "m"}, {"y"}, {}, "matmul");
    return w.add_output("r").add_output("y");
  }

  static std::vector<std::int64_t> units(const Session& session, const std::string& node) {
    std::vector<std::int64_t> found;
    for (const Node& n : session.graph().nodes) {
      if (n.part_of == node && n.part >= 0)
        found.push_back(session.compiled().model->parts[static_cast<std::size_t>(n.part)].units);
    }
    return found;
  }

  // One backend: the same bits. With the CPU: within the tolerance.
  static void expect_parts_are_right(const OnnxWriter& w, const std::string& op, const std::vector<HostTensor>& inputs) {
    const ModelPtr whole = load(make_runtime(two_mocks()), w);
    TestSession one(whole, "m");
    const std::vector<HostTensor> want = run(one, inputs);
    const ModelPtr mocks = load(make_runtime(config(shared({op}, {"m", "n"}))), w);
    TestSession two(mocks, "m");
    int parts = 0;
    for (const Node& n : two.graph().nodes) parts += n.part >= 0 ? 1 : 0;
    EXPECT_GE(parts, 2) << op;
    const std::vector<HostTensor> got = run(two, inputs);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t j = 0; j < got.size(); ++j) {
      EXPECT_EQ(got[j].desc, want[j].desc) << op;
      EXPECT_EQ(got[j].bytes, want[j].bytes) << op;
    }
    const ModelPtr mixed = load(make_runtime(config(shared({op}, {"cpu", "m", "n"}))), w);
    TestSession three(mixed, "");
    expect_close(run(three, inputs), want);
  }
};

TEST(ShareUnits, TheLastDeviceEndsAsEarlyAsItCan) {
  const double equal[] = {1, 1}, unequal[] = {1, 3}, nothing[] = {0, 0}, late[] = {64, 0};
  EXPECT_EQ(share_units(128, equal, nothing), (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(share_units(128, unequal, nothing), (std::vector<std::int64_t>{96, 32}));
  EXPECT_EQ(share_units(128, equal, late), (std::vector<std::int64_t>{32, 96}));  // a copy before it begins
  EXPECT_EQ(share_units(2, unequal, nothing), (std::vector<std::int64_t>{1, 1}));
  const double slow[] = {1, 1000};
  EXPECT_EQ(share_units(100, slow, nothing), (std::vector<std::int64_t>{84, 16}));  // each has some, to be measured by
  EXPECT_EQ(end_of(share_units(128, unequal, nothing), unequal, nothing), 96);
  const std::vector<std::int64_t> vast = share_units(std::int64_t{1} << 50, unequal, nothing);  // without trying each
  EXPECT_EQ(vast[0] + vast[1], std::int64_t{1} << 50);
  EXPECT_NEAR(static_cast<double>(vast[0]) / static_cast<double>(vast[1]), 3, 0.01);
}

TEST_F(OperatorSplitTest, PartsOfAConvolutionAreItsChannels) { expect_parts_are_right(network(), "Conv", {filled({1, 8, 6, 6})}); }
TEST_F(OperatorSplitTest, PartsOfAProductAreItsColumns) { expect_parts_are_right(network(), "MatMul", {filled({1, 8, 6, 6})}); }

TEST_F(OperatorSplitTest, GroupsStayWhole) {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 12, 5, 5});
  w.add_initializer("w", {24, 2, 3, 3}, numbers(24 * 18));
  w.add_initializer("d", {24, 1, 3, 3}, numbers(24 * 9));
  w.add_node("Conv", {"x", "w"}, {"c"}, {Attr("group", 6)}, "groups");
  w.add_node("Conv", {"c", "d"}, {"y"}, {Attr("group", 24)}, "depthwise");
  w.add_output("y");
  expect_parts_are_right(w, "Conv", {filled({1, 12, 5, 5})});
}

TEST_F(OperatorSplitTest, TransposedConvolutions) {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 4, 5, 5});
  w.add_initializer("w", {4, 20, 3, 3}, numbers(4 * 20 * 9));
  w.add_initializer("b", {20}, numbers(20));
  w.add_node("ConvTranspose", {"x", "w", "b"}, {"y"}, {Attr("strides", std::vector<std::int64_t>{2, 2})}, "up").add_output("y");
  expect_parts_are_right(w, "ConvTranspose", {filled({1, 4, 5, 5})});
}

TEST_F(OperatorSplitTest, GemmInAllItsForms) {
  for (const int turned : {0, 1}) {
    for (const char* bias : {"row", "one", "column", "none"}) {
      OnnxWriter w;
      w.add_input("x", kF32, {6, 10});
      w.add_initializer("m", turned ? std::vector<std::int64_t>{34, 10} : std::vector<std::int64_t>{10, 34}, numbers(340));
      w.add_initializer("row", {34}, numbers(34));
      w.add_initializer("one", std::vector<std::int64_t>{}, std::vector<float>{0.5f});
      w.add_initializer("column", {6, 1}, numbers(6));
      std::vector<std::string> in{"x", "m"};
      if (std::string(bias) != "none") in.push_back(bias);
      w.add_node("Gemm", in, {"y"}, {Attr("transB", turned), Attr("alpha", 0.5f)}, "gemm").add_output("y");
      expect_parts_are_right(w, "Gemm", {filled({6, 10})});
    }
  }
}

TEST_F(OperatorSplitTest, ProductsOfTwoTensorsByRows) {
  OnnxWriter w;
  w.add_input("a", kF32, {2, 18, 8}).add_input("b", kF32, {2, 8, 5}).add_input("c", kF32, {18, 2});
  w.add_node("MatMul", {"a", "b"}, {"y"}, {}, "batched").add_output("y");
  expect_parts_are_right(w, "MatMul", {filled({2, 18, 8}), filled({2, 8, 5}), filled({18, 2})});
  OnnxWriter g;
  g.add_input("a", kF32, {8, 18}).add_input("b", kF32, {8, 5}).add_input("c", kF32, {18, 5});
  g.add_node("Gemm", {"a", "b", "c"}, {"y"}, {Attr("transA", 1)}, "gemm").add_output("y");
  expect_parts_are_right(g, "Gemm", {filled({8, 18}), filled({8, 5}), filled({18, 5})});
}

TEST_F(OperatorSplitTest, QuantizedProductsWithAScaleForEachChannel) {
  OnnxWriter w;
  w.add_input("x", kU8, {1, 3, 6, 6});
  std::vector<std::int8_t> weight(34 * 27), zeros(34, 0);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<std::int8_t>(static_cast<int>(i * 11 % 255) - 127);
  std::vector<float> scales(34);
  std::vector<std::int32_t> bias(34);
  for (std::size_t i = 0; i < 34; ++i)
    scales[i] = 0.01f * static_cast<float>(i + 1), bias[i] = static_cast<std::int32_t>(i) * 3 - 40;
  w.add_initializer("w", {34, 3, 3, 3}, weight).add_initializer("ws", {34}, scales).add_initializer("wz", {34}, zeros);
  w.add_initializer("s", std::vector<std::int64_t>{}, std::vector<float>{0.5f});
  w.add_initializer("z", std::vector<std::int64_t>{}, std::vector<std::uint8_t>{128});
  w.add_initializer("b", {34}, bias);
  w.add_node("QLinearConv", {"x", "s", "z", "w", "ws", "wz", "s", "z", "b"}, {"y"}, {}, "qconv").add_output("y", kU8);
  HostTensor x({DType::kUint8, {1, 3, 6, 6}});
  for (std::size_t i = 0; i < x.bytes.size(); ++i) x.bytes[i] = static_cast<unsigned char>(i * 37);
  expect_parts_are_right(w, "QLinearConv", {x});
}

TEST_F(OperatorSplitTest, ExplainNamesShareRuleAndDevice) {
  const ModelPtr model = load(make_runtime(config(shared({"Conv", "MatMul"}, {"m", "n"}))), network());
  TestSession session(model, "");
  EXPECT_EQ(place_of(session, "conv/part1"), "m");
  EXPECT_EQ(place_of(session, "conv/part2"), "n");
  EXPECT_EQ(place_of(session, "conv/concat"), "cpu");
  const std::string reason = reason_of(session, "conv/part2");
  EXPECT_EQ(reason.find("rule at line 5 (require split m, n): channels "), 0u) << reason;
  EXPECT_NE(reason.find(" of 48 of conv; alike, as their speeds are not known"), std::string::npos) << reason;
  EXPECT_NE(reason_of(session, "conv/concat").find("puts together the parts of conv"), std::string::npos);
  run(session, {filled({1, 8, 6, 6})});
  const std::string json = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(json.find(R"("split_nodes":[{"node":"conv","device":"m","units":24,"of":48,)"), std::string::npos) << json;
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("nodes that devices share:\n  conv: m 24 of 48"), std::string::npos);
}

TEST_F(OperatorSplitTest, WhatCannotBeSplitIsAnErrorWithPlaceAndNode) {
  const auto expect_refused = [](PlacementRule r, const OnnxWriter& w, const char* node, const std::string& word) {
    try {
      const TestSession session(load(make_runtime(config(std::move(r))), w), "");
      ADD_FAILURE() << word;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
      EXPECT_STREQ(e.node, node);
      EXPECT_NE(std::string(e.message).find("test.yaml:5: the rule at line 5 (require split m, n) decides, but"), std::string::npos)
          << e.message;
      EXPECT_NE(std::string(e.message).find(word), std::string::npos) << e.message;
    }
  };
  OnnxWriter w;
  w.add_input("x", kF32, {4, 8}).add_input("v", kF32, {Dim("n"), 8}).add_input("k", kF32, {8, 3});
  w.add_initializer("one", {8, 1}, numbers(8));
  w.add_node("Softmax", {"x"}, {"s"}, {}, "softmax").add_node("MatMul", {"x", "one"}, {"p"}, {}, "column");
  w.add_node("MatMul", {"v", "k"}, {"q"}, {}, "open").add_output("s").add_output("p").add_output("q");
  expect_refused(shared({"Softmax"}, {"m", "n"}), w, "softmax", "it is no product of matrices and no convolution");
  expect_refused(shared({"MatMul"}, {"m", "n"}), w, "column", "it has 1 columns");
  PlacementRule named = shared({}, {"m", "n"});
  named.names = {"open"};
  expect_refused(named, w, "open", "dim 0 of v is not known before a run");
  mock_settings().refused_ops = {"Conv"};
  expect_refused(shared({"Conv"}, {"m", "n"}), network(), "conv", "m cannot run it");
}

TEST_F(OperatorSplitTest, WithPreferSuchNodesGoOnToTheDefault) {
  OnnxWriter w;
  w.add_input("x", kF32, {4, 8});
  w.add_initializer("k", {8, 40}, numbers(320));
  w.add_node("MatMul", {"x", "k"}, {"p"}, {}, "matmul").add_node("Softmax", {"p"}, {"s"}, {}, "softmax").add_output("s");
  TestSession session(load(make_runtime(config(shared({}, {"m", "n"}, Policy::kPrefer))), w), "n");
  EXPECT_EQ(units(session, "matmul"), (std::vector<std::int64_t>{24, 16}));
  EXPECT_EQ(place_of(session, "softmax"), "n");
  EXPECT_NE(reason_of(session, "softmax").find("(prefer split m, n) not possible: Softmax cannot be split"), std::string::npos)
      << reason_of(session, "softmax");
}

TEST_F(OperatorSplitTest, TheFirstRuleThatMatchesDecides) {
  Config c = config(rule({"Conv"}, {}, "m", Policy::kRequire, 4));
  c.rules.push_back(shared({"Conv", "MatMul"}, {"m", "n"}));
  TestSession session(load(make_runtime(c), network()), "");
  EXPECT_EQ(place_of(session, "conv"), "m");
  EXPECT_EQ(units(session, "matmul").size(), 2u);
}

TEST_F(OperatorSplitTest, RulesOfPrecisionAndNumericsAreThoseOfTheNode) {
  Config c = config(shared({"Conv"}, {"cpu", "m"}));
  PlacementRule strict;
  strict.names = {"conv"};
  strict.numerics = Numerics::kStrict;
  strict.line = 6;
  c.rules.push_back(strict);
  TestSession session(load(make_runtime(c), network()), "");
  for (std::size_t i = 0; i < session.graph().nodes.size(); ++i) {
    const bool is_part = session.graph().nodes[i].part >= 0;
    EXPECT_TRUE(!is_part || session.compiled().placement.nodes[i].numerics == Numerics::kStrict);
  }
}

TEST_F(OperatorSplitTest, PartsOfANodeThatStaysFloat32StaySoToo) {
  for (const std::string pattern : {"conv", "c?nv"}) {
    SessionRequest request("");
    request.precision = Precision::kBfloat16;
    request.keep_fp32 = {pattern};
    TestSession session(load(make_runtime(config(shared({"Conv"}, {"cpu", "m"}))), network()), request);
    ASSERT_EQ(units(session, "conv").size(), 2u);
    for (std::size_t i = 0; i < session.graph().nodes.size(); ++i) {
      const NodePlacement& p = session.compiled().placement.nodes[i];
      if (session.graph().nodes[i].part < 0) continue;
      EXPECT_EQ(p.precision, Precision::kFloat32);
      EXPECT_EQ(p.precision_reason, "keep_fp32 \"" + pattern + "\"");
    }
  }
}

// Sessions of models with gradients, and of models with operators for the caller's thread, have rules of their own.
TEST_F(OperatorSplitTest, AModelInPartsHasGradientsAsTheWholeOneHas) {
  constexpr const char* kTraining = "ai.onnx.preview.training";
  OnnxWriter w;
  w.import(kTraining, 1).add_input("x", kF32, {4, 8}).add_output("p").add_output("dx");
  w.add_initializer("k", {8, 40}, numbers(320)).add_node("MatMul", {"x", "k"}, {"p"}, {}, "matmul");
  w.add_node("Gradient", {"x"}, {"dx"}, {Attr(Proto().bytes(1, "xs").bytes(9, "x").varint(20, 8)), Attr("y", "p")}, "g", kTraining);
  PlacementRule named = shared({}, {"m", "n"});
  named.names = {"matmul"};
  TestSession session(load(make_runtime(config(named)), w), "");
  EXPECT_EQ(units(session, "matmul").size(), 2u);
  EXPECT_TRUE(session.compiled().model->model.has_gradients);
}

TEST_F(OperatorSplitTest, OneDeviceThatIsThereTakesTheNode) {
  Config c = config(shared({"Conv"}, {"m", "n"}));
  c.moves_off_lost_devices = true;
  const ModelPtr model = load(make_runtime(c), network());
  const auto live = make_live(model);
  EXPECT_EQ(units(*live->current(), "conv").size(), 2u);
  const std::shared_ptr<Session> before = live->current();
  const std::vector<HostTensor> want = run(*before, {filled({1, 8, 6, 6})});
  mock_settings().lost = "n";
  EXPECT_EQ(run(*before, {filled({1, 8, 6, 6})})[0].bytes, want[0].bytes);  // fails on n, and goes on
  EXPECT_NE(live->current(), before);
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
  EXPECT_NE(reason_of(*live->current(), "conv").find("n is absent"), std::string::npos) << reason_of(*live->current(), "conv");
}

// What the tables say that the nodes of a graph take on a device.
void set_costs(const ModelPtr& model, const std::string& device, double ns) {
  Runtime& runtime = *model->runtime;
  Device& d = *runtime.find_device(device, runtime.settings());
  auto alone = std::make_shared<Assignment>();
  alone->devices.assign(model->graph().nodes.size(), &d);
  SessionRequest request("");
  request.settings = runtime.settings();
  request.role.assigned = alone;
  const CompiledGraph graph = compile_unpacked(model, request);
  const std::vector<TensorDesc> inputs = assumed_inputs(runtime, model->graph(), {});
  const std::shared_ptr<Plan> plan = make_plan(graph, signature_of_zeros(graph, inputs));
  runtime.costs().with(d, [&](CostTable& t) {
    for (const PlanStep& step : plan->steps) {
      if (step.kernel != nullptr) t.add(features_of(graph, step), ns);
    }
    t.has_copies = true;
    t.upload = t.download = {};
  });
}

TEST_F(OperatorSplitTest, SharesAreByWhatTheNodeTakesOnEachDevice) {
  const ModelPtr model = load(make_runtime(config(shared({"Conv"}, {"m", "n"}))), network());
  set_costs(model, "m", 1e6);
  set_costs(model, "n", 2e6);
  TestSession session(model, "m");
  EXPECT_EQ(units(session, "conv"), (std::vector<std::int64_t>{32, 16}));
  EXPECT_NE(reason_of(session, "conv/part1").find("m 1.00 ms, n 2.00 ms"), std::string::npos) << reason_of(session, "conv/part1");
}

TEST_F(OperatorSplitTest, AutoSplitsWhereItPays) {
  const auto make = [](double cpu, double m, double n) {
    const ModelPtr model = load(make_runtime(config(shared({"Conv"}, {"auto"}))), network());
    set_costs(model, "cpu", cpu);
    set_costs(model, "m", m);
    set_costs(model, "n", n);
    return make_session(model, "m");
  };
  const auto pays = make(3e6, 1e6, 1e6);
  EXPECT_EQ(units(*pays, "conv").size(), 3u);
  const auto not_known = make_session(load(make_runtime(config(shared({"Conv"}, {"auto"}))), network()), "m");
  EXPECT_TRUE(units(*not_known, "conv").empty());
  EXPECT_NE(reason_of(*not_known, "conv").find("does not pay: alike, as their speeds are not known"), std::string::npos)
      << reason_of(*not_known, "conv");
  const auto slow = make(1e6, 1e8, 1e8);
  EXPECT_TRUE(units(*slow, "conv").empty());
  EXPECT_NE(reason_of(*slow, "conv").find("does not pay: cpu 1.00 ms, m 100.00 ms, n 100.00 ms"), std::string::npos)
      << reason_of(*slow, "conv");
}

TEST_F(OperatorSplitTest, AutoLeavesOutADeviceThatIsFull) {
  Config c = config(shared({"Conv"}, {"auto"}));
  c.devices[0].memory_limit = 1024;
  const ModelPtr model = load(make_runtime(c), network());
  set_costs(model, "cpu", 3e6);
  for (const char* device : {"m", "n"}) set_costs(model, device, 1e6);
  TestSession session(model, "");
  ASSERT_EQ(units(session, "conv").size(), 2u);
  EXPECT_EQ(place_of(session, "conv/part1"), "cpu");
  EXPECT_EQ(place_of(session, "conv/part2"), "n");
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("device m was full"), std::string::npos);
}

TEST_F(OperatorSplitTest, SharesFollowTheDevicesWhenTheyDrift) {
  Config c = config(shared({"Conv"}, {"m", "n"}));
  c.measure_costs = true;
  const ModelPtr model = load(make_runtime(c), network());
  for (const char* device : {"m", "n"}) set_costs(model, device, 1e6);  // copies cost nothing
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  const HostTensor x = filled({1, 8, 6, 6});
  const std::vector<HostTensor> want = run(*first, {x});
  EXPECT_EQ(units(*first, "conv"), (std::vector<std::int64_t>{24, 24}));
  const auto drift_to = [&](double m, double n, const std::vector<std::int64_t>& shares) {
    mock_settings().element_ns = {{"m", m}, {"n", n}};
    for (int i = 0; i < 4000 && units(*live->current(), "conv") != shares; ++i) {
      EXPECT_EQ(run(*live->current(), {x})[0].bytes, want[0].bytes);
      std::this_thread::yield();
    }
    EXPECT_EQ(units(*live->current(), "conv"), shares);
  };
  drift_to(10, 30, {40, 8});
  drift_to(30, 10, {8, 40});
  EXPECT_NE(live->current(), first);
  const std::shared_ptr<Session> settled = live->current();
  for (int i = 0; i < 300; ++i) run(*live->current(), {x});
  EXPECT_EQ(live->current(), settled);  // as fast as it can be: it stays
  EXPECT_EQ(run(*first, {x})[0].bytes, want[0].bytes);
}

TEST_F(OperatorSplitTest, WithAnExecutorOfTheHostSharesStayAndNoThreadStarts) {
  Config c = config(shared({"Conv"}, {"m", "n"}));
  c.measure_costs = true;
  const ModelPtr model = load(make_runtime(c, 0, 2, callers_thread()), network());
  for (const char* device : {"m", "n"}) set_costs(model, device, 1e6);
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  mock_settings().element_ns = {{"m", 10}, {"n", 30}};
  fault_count_reset(Seam::kThread);
  for (int i = 0; i < 200; ++i) run(*live->current(), {filled({1, 8, 6, 6})});
  const std::int64_t started = fault_count(Seam::kThread);
  fault_arm(Seam::kThread, 0, false);
  EXPECT_EQ(started, 0);
  EXPECT_EQ(live->current(), first);
}

TEST_F(OperatorSplitTest, WithoutMeasurementsSharesStay) {
  const ModelPtr model = load(make_runtime(config(shared({"Conv"}, {"m", "n"}))), network());
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  EXPECT_EQ(units(*first, "conv"), (std::vector<std::int64_t>{24, 24}));
  mock_settings().element_ns = {{"m", 10}, {"n", 30}};
  for (int i = 0; i < 200; ++i) run(*live->current(), {filled({1, 8, 6, 6})});
  EXPECT_EQ(live->current(), first);
}

TEST_F(OperatorSplitTest, SessionsWithTheSameSharesHaveOneModel) {
  const ModelPtr model = load(make_runtime(config(shared({"Conv"}, {"m", "n"}))), network());
  TestSession a(model, ""), b(model, "");
  EXPECT_NE(a.compiled().model, model);
  EXPECT_EQ(a.compiled().model, b.compiled().model);
  EXPECT_EQ(a.compiled().model->whole, model);
  EXPECT_EQ(&a.compiled(), &b.compiled());
}

// A model in a file, whose constants are large enough to be let go.
class OperatorSplitFileTest : public OperatorSplitTest {
 protected:
  static OnnxWriter large() {
    OnnxWriter w;
    w.add_input("x", kF32, {3, 128});
    w.add_initializer("k", {128, 512}, numbers(128 * 512));
    w.add_initializer("t", {512, 512}, numbers(512 * 512, 3));
    w.add_node("MatMul", {"x", "k"}, {"p"}, {}, "first").add_node("Gemm", {"p", "t"}, {"y"}, {Attr("transB", 1)}, "second");
    return w.add_output("y");
  }
  void SetUp() override {
    OperatorSplitTest::SetUp();
    path_ = testing::TempDir() + "operator_split_" + std::to_string(::getpid()) + ".onnx";
    const std::string bytes = large().serialize();
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void TearDown() override {
    std::remove(path_.c_str());
    std::remove((path_ + ".evc").c_str());
    OperatorSplitTest::TearDown();
  }
  std::string path_;
};

TEST_F(OperatorSplitFileTest, SlicesAreMadeOfTheFileAndLetGoOf) {
  TestSession whole(load(make_runtime(two_mocks()), large()), "cpu");
  const HostTensor x = filled({3, 128});
  const std::vector<HostTensor> want = run(whole, {x});
  const ModelPtr model = load_model_file(make_runtime(config(shared({"MatMul", "Gemm"}, {"cpu", "m"}))), path_);
  for (int round = 0; round < 2; ++round) {
    TestSession split(model, "");
    expect_close(run(split, {x}), want);
    TestSession unsplit(model, [&] {
      SessionRequest r("cpu");
      r.role.assigned = std::make_shared<Assignment>(Assignment{{model->runtime->devices_for(*model->runtime->settings())[0],
                                                                 model->runtime->devices_for(*model->runtime->settings())[0]},
                                                                {},
                                                                ""});
      return r;
    }());
    EXPECT_EQ(run(unsplit, {x})[0].bytes, want[0].bytes);
    expect_close(run(split, {x}), want);
  }
}

TEST_F(OperatorSplitFileTest, PackedSlicesComeFromACacheFile) {
  const HostTensor x = filled({3, 128});
  std::vector<HostTensor> want;
  for (int round = 0; round < 3; ++round) {
    const ModelPtr model = load_model_file(make_runtime(config(shared({"MatMul", "Gemm"}, {"cpu", "m"}))), path_);
    TestSession split(model, SessionRequest(""), CacheConfig{path_ + ".evc", true, round == 2});
    const std::vector<HostTensor> got = run(split, {x});
    if (round == 0) want = got;
    EXPECT_EQ(got[0].bytes, want[0].bytes);
  }
}

TEST_F(OperatorSplitFileTest, EachFailingAllocationIsAnErrorAndLeaksNothing) {
  const std::shared_ptr<Runtime> runtime = make_runtime(config(shared({"MatMul", "Gemm"}, {"cpu", "m"})));
  const ModelPtr model = load_model_file(runtime, path_);
  { const TestSession warm(model, ""); }
  model->store.drop_unused();
  const std::uint64_t before = runtime->cpu().pool().stats().current;
  int failed = 0;
  for (std::int64_t k = 1; k < 100'000; ++k) {
    bool threw = false;
    fault_arm(Seam::kAlloc, k, false);
    try {
      const TestSession session(model, "");
    } catch (const std::bad_alloc&) {
      threw = true;
    } catch (const Error& e) {
      threw = true;
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    if (!threw) break;
    ++failed;
  }
  EXPECT_GT(failed, 50);
  model->store.drop_unused();
  EXPECT_LE(runtime->cpu().pool().stats().by_class[EVN_MEMORY_PACKED], before);
  TestSession after(model, "");
  expect_close(run(after, {filled({3, 128})}), run(after, {filled({3, 128})}));
}

}  // namespace
}  // namespace evn::test
