// `default: auto` with times that are invented: nothing here depends on how fast the machine is.
#include "runtime/cost/placement_search.h"

#include "base/fault.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/step_features.h"
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

class PlacementSearchTest : public RuntimeTest {
 protected:
  // Four times a Conv and a Softmax, which no pass fuses.
  static OnnxWriter chain(std::int64_t batch = 1) {
    OnnxWriter w;
    w.add_input("x", kF32, {batch, 4, 8, 8});
    w.add_initializer("w", {4, 4, 1, 1}, std::vector<float>(16, 0.25f));
    std::string at = "x";
    for (int i = 0; i < 4; ++i) {
      const std::string n = std::to_string(i);
      w.add_node("Conv", {at, "w"}, {"c" + n}, {}, "conv" + n);
      w.add_node("Softmax", {"c" + n}, {"s" + n}, {}, "softmax" + n);
      at = "s" + n;
    }
    w.add_output(at, kF32, {batch, 4, 8, 8});
    return w;
  }

  static Config config(Objective objective = Objective::kLatency) {
    Config c;
    c.source = "test.yaml";
    c.devices = {mock_device("m")};
    c.default_devices = {kAutoDevice};
    c.objective = objective;
    c.measure_costs = false;
    return c;
  }

  // Gives the steps of a model times by the operators of their first nodes, and copies theirs.
  static void set_costs(const ModelPtr& model, const std::map<std::string, double>& cpu, const std::map<std::string, double>& mock,
                        CopyCost copy) {
    Runtime& runtime = *model->runtime;
    for (std::size_t i = 0; i < runtime.device_count(); ++i) {
      Device& device = *runtime.device_at(i);
      auto alone = std::make_shared<Assignment>();
      alone->devices.assign(model->graph().nodes.size(), &device);
      SessionRequest request("");
      request.role.assigned = alone;
      const CompiledGraph graph = compile_unpacked(model, request);
      const std::shared_ptr<Plan> plan = make_plan(graph, signature_of_zeros(graph, assumed_inputs(runtime, model->graph(), {})));
      for (const PlanStep& step : plan->steps) {
        if (step.kernel == nullptr) continue;
        const Device& by = *graph.devices[step.slot];
        const auto& times = &by == &runtime.cpu() ? cpu : mock;
        const double ns = step.node < 0 ? 1 : times.at(graph.graph().nodes[static_cast<std::size_t>(step.node)].op_type);
        runtime.costs().with(by, [&](CostTable& t) { t.add(features_of(graph, step), ns); });
      }
      if (i == 0) continue;
      runtime.costs().with(device, [&](CostTable& t) {
        t.upload = t.download = copy;
        t.has_copies = true;
      });
    }
  }

  static std::string placed(const ModelPtr& model) {
    std::vector<std::shared_ptr<Session>> kept;
    const auto a = search_placement(model, SessionRequest(""), &kept);
    summary = a->summary;
    std::string text;
    for (const Device* d : a->devices) text += d == nullptr ? "-" : d->name() == "cpu" ? "c" : d->name();
    return text;
  }

  // Where the nodes of a session are.
  static std::string session_places(const ModelPtr& model) {
    const TestSession session(model, "");
    std::string text;
    for (const NodePlacement& p : session.compiled().placement.nodes) text += p.device->name() == "cpu" ? "c" : "m";
    return text;
  }

  static inline std::string summary;
};

TEST_F(PlacementSearchTest, EachNodeIsWhereItIsFastWhenCopiesCostNothing) {
  const ModelPtr m = load(make_runtime(config()), chain());
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 9000}}, {10, 0});
  EXPECT_EQ(placed(m), "mcmcmcmc") << summary;
  EXPECT_NE(summary.find("cpu + m"), std::string::npos) << summary;
}

TEST_F(PlacementSearchTest, CopiesThatCostMoreKeepAllOnTheFasterDevice) {
  const ModelPtr m = load(make_runtime(config()), chain());
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 8000}}, {50'000, 0});
  EXPECT_EQ(placed(m), "cccccccc") << summary;
  const ModelPtr n = load(make_runtime(config()), chain(2));
  set_costs(n, {{"Conv", 90'000}, {"Softmax", 10'000}}, {{"Conv", 1000}, {"Softmax", 8000}}, {50'000, 0});
  EXPECT_EQ(placed(n), "mmmmmmmm") << summary;
}

TEST_F(PlacementSearchTest, BytesOfCopiesCount) {
  const ModelPtr m = load(make_runtime(config()), chain());  // a value has 1024 bytes
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 9000}}, {0, 1});
  EXPECT_EQ(placed(m), "mcmcmcmc") << summary;
  const ModelPtr n = load(make_runtime(config()), chain(16));
  set_costs(n, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 9500}}, {0, 1});
  EXPECT_EQ(placed(n), "cccccccc") << summary;
}

TEST_F(PlacementSearchTest, WhatADeviceRefusesStaysOnTheCpu) {
  mock_settings().refused_ops = {"Softmax"};
  const ModelPtr m = load(make_runtime(config()), chain());
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}}, {10, 0});
  EXPECT_EQ(session_places(m), "mcmcmcmc");
}

TEST_F(PlacementSearchTest, RulesHoldBeforeTheSearch) {
  Config c = config();
  c.rules = {rule({}, {"conv1"}, "cpu", Policy::kRequire, 3), rule({}, {"conv2"}, "m", Policy::kForbid, 4)};
  const ModelPtr m = load(make_runtime(c), chain());
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 9000}}, {10, 0});
  EXPECT_EQ(session_places(m), "mcccccmc");
}

TEST_F(PlacementSearchTest, ThroughputSharesTheWorkWhereOneDeviceIsFasterAtAll) {
  const ModelPtr m = load(make_runtime(config(Objective::kThroughput)), chain());
  set_costs(m, {{"Conv", 10'000}, {"Softmax", 10'000}}, {{"Conv", 9000}, {"Softmax", 9000}}, {100, 0});
  const std::string places = placed(m);
  EXPECT_NE(places.find('c'), std::string::npos) << summary;
  EXPECT_NE(places.find('m'), std::string::npos) << summary;
  const ModelPtr n = load(make_runtime(config()), chain());
  set_costs(n, {{"Conv", 10'000}, {"Softmax", 10'000}}, {{"Conv", 9000}, {"Softmax", 9000}}, {100, 0});
  EXPECT_EQ(placed(n), "mmmmmmmm") << summary;
}

TEST_F(PlacementSearchTest, WithoutCostsNothingIsAssignedAndSaidSo) {
  const ModelPtr m = load(make_runtime(config()), chain());
  EXPECT_EQ(placed(m), "--------");
  EXPECT_NE(summary.find("placement.measure is false"), std::string::npos) << summary;
  const TestSession session(m, "");
  for (const NodePlacement& p : session.compiled().placement.nodes) EXPECT_EQ(p.device->name(), "cpu");
}

TEST_F(PlacementSearchTest, ADeviceOfWhichNothingIsKnownIsLeftOut) {
  const ModelPtr m = load(make_runtime(config()), chain());
  set_costs(m, {{"Conv", 9000}, {"Softmax", 1000}}, {{"Conv", 1000}, {"Softmax", 9000}}, {10, 0});
  m->runtime->costs().forget(*m->runtime->device_at(1));
  EXPECT_EQ(placed(m), "cccccccc") << summary;
  EXPECT_NE(summary.find("not m: nothing is known"), std::string::npos) << summary;
}

TEST_F(PlacementSearchTest, OpenDimsAreTakenForWhatTheGraphAccepts) {
  Config c = config();
  c.measure_costs = true;
  OnnxWriter w;
  w.add_input("x", kF32, {"n", "h", 8});
  w.add_initializer("y", {1, 48, 8}, std::vector<float>(48 * 8, 1.0f));
  w.add_node("Add", {"x", "y"}, {"z"}, {}, "add").add_output("z");
  const ModelPtr m = load(make_runtime(c), w);
  EXPECT_EQ(placed(m).find('-'), std::string::npos) << summary;
  EXPECT_EQ(assumed_inputs(*m->runtime, m->graph(), {}, 48)[0].shape, (Shape{1, 48, 8}));
}

TEST_F(PlacementSearchTest, AModelWithOpenRankIsNotSearchedFor) {
  OnnxWriter w;
  w.graph().message(11, value_info_proto("x", kF32, {}, false));
  w.add_node("Relu", {"x"}, {"y"}, {}, "relu");
  w.add_output("y");
  const ModelPtr m = load(make_runtime(config()), w);
  EXPECT_EQ(placed(m), "-");
  EXPECT_NE(summary.find("rank of input \"x\""), std::string::npos) << summary;
}

// Measured for real: whatever comes out, it is right, it is kept, and a second session finds what the first has measured.
TEST_F(PlacementSearchTest, MeasuresWhatItLacksAndStaysWithIt) {
  Config c = config();
  c.measure_costs = true;
  const ModelPtr m = load(make_runtime(c), chain());
  const std::string first = placed(m);
  EXPECT_EQ(first.find('-'), std::string::npos) << summary;
  Device& mock = *m->runtime->device_at(1);
  EXPECT_GT(m->runtime->costs().with(mock, [](const CostTable& t) { return t.size(); }), 0u);
  const std::int64_t kernels = mock_counters().kernels;
  EXPECT_GT(kernels, 0);
  EXPECT_EQ(placed(m), first);
  EXPECT_EQ(mock_counters().kernels, kernels);  // nothing was measured again
  TestSession session(m, "");
  TestSession on_cpu(m, "cpu");
  HostTensor x({DType::kFloat32, {1, 4, 8, 8}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(i % 7);
  expect_close(run(session, {x}), run(on_cpu, {x}));
}

TEST_F(PlacementSearchTest, EachFailingAllocationIsAnErrorOrNoSearch) {
  Config c = config();
  c.measure_costs = true;
  const std::shared_ptr<Runtime> runtime = make_runtime(c);
  const std::uint64_t before = runtime->device_at(1)->pool().stats().current;
  int failed = 0;
  for (std::int64_t k = 1;; k += 1 + k / 50) {
    for (std::size_t i = 0; i < 2; ++i) runtime->costs().forget(*runtime->device_at(i));
    ModelPtr m = load(runtime, chain());
    fault_count_reset(Seam::kAlloc);
    fault_arm(Seam::kAlloc, k, false);
    std::int64_t calls = 0;
    try {
      const TestSession session(m, "");
      calls = fault_count(Seam::kAlloc);
    } catch (const std::bad_alloc&) {
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    m.reset();
    EXPECT_EQ(runtime->device_at(1)->pool().stats().current, before) << k;
    if (calls != 0 && calls < k) break;
    ++failed;
  }
  EXPECT_GT(failed, 20);
}

TEST_F(PlacementSearchTest, MemoryOfWhatWasTriedIsGivenBack) {
  Config c = config();
  c.measure_costs = true;
  const std::shared_ptr<Runtime> runtime = make_runtime(c);
  const std::uint64_t before = runtime->device_at(1)->pool().stats().current;
  {
    const ModelPtr m = load(runtime, chain());
    const TestSession session(m, "");
  }
  EXPECT_EQ(runtime->device_at(1)->pool().stats().current, before);
}

}  // namespace
}  // namespace evn::test
