// Which library multiplies matrices: who says it, what happens where it cannot be had, and what is measured when a plan is made.
#include "backends/cpu/gemm/blas.h"
#include "runtime/lower/product_trials.h"
#include "tests/runtime/support.h"

namespace evn::test {

template <>
struct Access<ProductTrials> {
  static void set_clock(ProductTrials& trials, std::uint64_t (*now_ns)()) { trials.now_ns_ = now_ns; }
};

namespace {

// What a trial asks for the time: before all turns; around a run of each kernel, and once behind the two.
struct Script {
  std::uint64_t own_ns = 0, rival_ns = 0, now_ns = 0;
  int calls = 0;
};
Script g_script;
std::uint64_t scripted_clock() {
  const int call = g_script.calls++ % 6;
  if (call == 2) g_script.now_ns += g_script.own_ns;
  if (call == 4) g_script.now_ns += g_script.rival_ns;
  return g_script.now_ns;
}

// y = relu(x w + b) + r, by MatMul; z = y Gemm v. Two products, what may be fused into the first, and others.
OnnxWriter network() {
  OnnxWriter w(14);
  const auto values = [](std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> v(count);
    for (float& x : v) x = std::uniform_real_distribution<float>(-1, 1)(random);
    return v;
  };
  w.add_input("x", kF32, {"n", 40}).add_input("r", kF32, {"n", 50}).add_output("z");
  w.add_initializer("w", {40, 50}, values(2000, 1))
      .add_initializer("b", {50}, values(50, 2))
      .add_initializer("v", {50, 30}, values(1500, 3));
  w.add_node("MatMul", {"x", "w"}, {"p"}, {}, "first").add_node("Add", {"p", "b"}, {"s"}, {}, "bias");
  w.add_node("Relu", {"s"}, {"a"}, {}, "relu").add_node("Add", {"a", "r"}, {"y"}, {}, "residual");
  w.add_node("Gemm", {"y", "v"}, {"z"}, {{"alpha", 0.5f}}, "second");
  return w;
}

std::vector<HostTensor> inputs(std::int64_t rows) {
  std::vector<HostTensor> all;
  for (const std::int64_t columns : {40, 50}) {
    HostTensor t({DType::kFloat32, {rows, columns}});
    std::mt19937 random(static_cast<unsigned>(columns));
    for (float& x : t.as<float>()) x = std::uniform_real_distribution<float>(-1, 1)(random);
    all.push_back(std::move(t));
  }
  return all;
}

SessionRequest asks(Products products) {
  SessionRequest request("");
  request.products = products;
  return request;
}

const NodePlacement& placed(const Session& session, const std::string& name) {
  const CompiledGraph& c = session.compiled();
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    if (c.graph().nodes[i].name == name) return c.placement.nodes[i];
  }
  throw std::runtime_error("no node " + name);
}

PlacementRule by(Products products, std::vector<std::string> ops, Policy policy, int line) {
  PlacementRule r = rule(std::move(ops), {}, "", policy, line);
  r.products = products;
  return r;
}

bool near(const HostTensor& a, const HostTensor& b) {
  const auto x = a.as<float>(), y = b.as<float>();
  if (x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= 1e-4f)) return false;
  }
  return true;
}

class ProductsTest : public RuntimeTest {};

class WithOpenBlas : public ProductsTest {
 protected:
  void SetUp() override {
    if (blas_module() == nullptr) GTEST_SKIP() << "the OpenBLAS module is not built";
    if (blas_module()->row_groups[1] == 0) GTEST_SKIP() << "this machine has no kernels of OpenBLAS that keep rows apart";
  }
};

TEST_F(ProductsTest, NothingIsGivenAwayUnasked) {
  for (const Products products : {Products::kDefault, Products::kAuto, Products::kOwn}) {
    TestSession session(load(make_runtime(), network()), asks(products));
    EXPECT_EQ(placed(session, "first").kernel->library, Products::kOwn);
    EXPECT_EQ(placed(session, "first").products_reason, products == Products::kDefault ? "the default" : "the session's options");
    EXPECT_EQ(placed(session, "first").rival, nullptr);
  }
}

TEST_F(WithOpenBlas, RulesComeBeforeOptionsThenTheSessionThenTheDevice) {
  Config c = two_mocks();
  DeviceConfig cpu;
  cpu.name = cpu.type = "cpu";
  cpu.products = Products::kOpenBlas;
  c.devices.push_back(cpu);
  const auto first = [&](Products asked) {
    TestSession session(load(make_runtime(c), network()), asks(asked));
    const NodePlacement& p = placed(session, "first");
    return std::pair(p.kernel->library, p.products_reason);
  };
  EXPECT_EQ(first(Products::kDefault), std::pair(Products::kOpenBlas, std::string("the device's")));
  c.session.products = Products::kOwn;
  EXPECT_EQ(first(Products::kDefault), std::pair(Products::kOwn, std::string("the configuration's session")));
  EXPECT_EQ(first(Products::kOpenBlas), std::pair(Products::kOpenBlas, std::string("the session's options")));
  c.rules = {by(Products::kOwn, {"MatMul"}, Policy::kRequire, 9)};
  EXPECT_EQ(first(Products::kOpenBlas), std::pair(Products::kOwn, std::string("rule at line 9")));
  c.rules[0].ops = {"Gemm"};
  EXPECT_EQ(first(Products::kOpenBlas), std::pair(Products::kOpenBlas, std::string("the session's options")));
}

TEST_F(WithOpenBlas, OutputsAgreeAndHaveTheSameBitsForAnyNumberOfThreads) {
  Config c;
  c.session.products = Products::kOpenBlas;
  for (const std::int64_t rows : {1, 7, 64, 300}) {
    TestSession own(load(make_runtime(), network()), asks(Products::kOwn));
    const HostTensor expected = run(own, inputs(rows))[0];
    HostTensor first;
    for (const int threads : {1, 2, 3}) {
      TestSession session(load(make_runtime(c, 0, threads), network()), asks(Products::kDefault));
      const HostTensor got = run(session, inputs(rows))[0];
      EXPECT_TRUE(near(got, expected)) << rows << " rows";
      if (threads == 1) first = got;
      EXPECT_EQ(got.bytes, first.bytes) << rows << " rows, " << threads << " threads";
      EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("matmul_openblas"), std::string::npos);
    }
  }
}

TEST_F(ProductsTest, WhatCannotBeHadIsSaidAndDoneByOwnKernels) {
  TestSession session(load(make_runtime(), network()), asks(Products::kClBlast));
  EXPECT_EQ(placed(session, "first").kernel->library, Products::kOwn);
  EXPECT_EQ(placed(session, "first").products_reason, "the session's options; clblast: this device does not have it");
  const std::string text = session.explain(EVN_FORMAT_TEXT);
  EXPECT_NE(text.find("      products own: the session's options; clblast: this device does not have it\n"), std::string::npos)
      << text;
  const std::string json = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(json.find(R"("products":"own","products_reason":"the session's options; clblast: this device does not have it")"),
            std::string::npos)
      << json;
}

TEST_F(WithOpenBlas, OtherOperatorsAndLowerPrecisionsSayWhy) {
  SessionRequest request = asks(Products::kOpenBlas);
  request.precision = Precision::kBfloat16;
  TestSession session(load(make_runtime(), network()), request);
  EXPECT_EQ(placed(session, "first").kernel->library, Products::kOpenBlas);
  if (placed(session, "first").precision == Precision::kBfloat16) {
    EXPECT_EQ(placed(session, "first").precision_reason, "the session's options; openblas multiplies in fp32");
  }
  EXPECT_EQ(placed(session, "residual").products_reason,
            "the session's options; openblas: it multiplies for MatMul and Gemm alone");
}

TEST_F(ProductsTest, ARuleThatRequiresIsAnErrorWithFileLineNodeAndDevice) {
  Config c;
  c.source = "test.yaml";
  c.rules = {by(Products::kClBlast, {"Gemm"}, Policy::kRequire, 7)};
  try {
    TestSession session(load(make_runtime(c), network()), asks(Products::kOwn));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "second");
    EXPECT_STREQ(e.device, "cpu");
    EXPECT_STREQ(e.message,
                 "test.yaml:7: the rule requires products: clblast, which device cpu cannot have for Gemm: "
                 "this device does not have it");
  }
  c.rules[0].policy = Policy::kPrefer;
  TestSession session(load(make_runtime(c), network()), asks(Products::kOwn));
  EXPECT_EQ(placed(session, "second").products_reason, "rule at line 7; clblast: this device does not have it");
}

TEST_F(ProductsTest, ARuleThatRequiresHoldsForOperatorsThatTheLibraryLacks) {
  Config c;
  c.source = "test.yaml";
  c.rules = {by(Products::kOpenBlas, {"Add"}, Policy::kRequire, 3)};
  try {
    TestSession session(load(make_runtime(c), network()), asks(Products::kOwn));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.message).find("for Add: it multiplies for MatMul and Gemm alone"), std::string::npos) << e.message;
  }
}

// Whichever of the two kernels is chosen, the choice stays: the same bits, run after run and plan after plan.
TEST_F(WithOpenBlas, MeasuredChoicesStay) {
  TestSession session(load(make_runtime(), network()), asks(Products::kMeasured));
  ASSERT_NE(placed(session, "first").rival, nullptr);
  EXPECT_STREQ(placed(session, "first").rival->name, "matmul_openblas");
  EXPECT_EQ(placed(session, "residual").rival, nullptr);
  TestSession own(session.compiled().model, asks(Products::kOwn)), theirs(session.compiled().model, asks(Products::kOpenBlas));
  for (const std::int64_t rows : {1, 40, 7, 300, 40, 1}) {
    const HostTensor got = run(session, inputs(rows))[0];
    EXPECT_TRUE(near(got, run(own, inputs(rows))[0])) << rows;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(run(session, inputs(rows))[0].bytes, got.bytes) << rows;
    const std::string text = session.explain(EVN_FORMAT_TEXT);
    const bool by_rival = text.find("matmul_openblas") != std::string::npos;
    EXPECT_NE(text.find(by_rival ? "products openblas: the session's options; measured: own "
                                 : "products own: the session's options; measured: own "),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(" us, openblas "), std::string::npos) << text;
  }
}

// Both kernels read what they need: the packed copy, and the plain constant, which stays for the other one.
TEST_F(WithOpenBlas, BothKernelsOfAMeasuredNodeAreRight) {
  for (const bool by_rival : {false, true}) {
    TestSession session(load(make_runtime(), network()), asks(Products::kMeasured));
    const CompiledGraph& c = session.compiled();
    ASSERT_NE(c.trials, nullptr);
    g_script = {by_rival ? 20'000'000u : 10'000'000u, by_rival ? 15'000'000u : 25'000'000u, 0, 0};  // one turn is enough
    Access<ProductTrials>::set_clock(*c.trials, scripted_clock);
    TestSession own(c.model, asks(Products::kOwn));
    for (const std::int64_t rows : {5, 200}) {
      EXPECT_TRUE(near(run(session, inputs(rows))[0], run(own, inputs(rows))[0])) << rows;
      const std::string text = session.explain(EVN_FORMAT_TEXT);
      EXPECT_EQ(text.find("matmul_openblas") != std::string::npos, by_rival) << text;
      EXPECT_EQ(text.find("gemm_openblas") != std::string::npos, by_rival) << text;
      EXPECT_NE(
          text.find(by_rival ? "measured: own 20000.0 us, openblas 15000.0 us" : "measured: own 10000.0 us, openblas 25000.0 us"),
          std::string::npos)
          << text;
      EXPECT_NE(text.find("sum_epilogue"), std::string::npos) << text;
    }
  }
}

TEST_F(WithOpenBlas, WhereRequestsAreJoinedNothingIsMeasured) {
  SessionRequest request = asks(Products::kMeasured);
  request.batching.max_batch = 8;
  TestSession session(load(make_runtime(), network()), request);
  EXPECT_EQ(placed(session, "first").rival, nullptr);
  EXPECT_EQ(placed(session, "first").products_reason,
            "the session's options; not measured: requests that are joined have the bits that they have alone");
}

TEST_F(ProductsTest, WithoutARivalNothingIsMeasured) {
  TestSession session(load(make_runtime(), small_network()), asks(Products::kMeasured));
  EXPECT_EQ(placed(session, "conv").rival, nullptr);
  EXPECT_EQ(placed(session, "conv").products_reason.find("the session's options; not measured: "), 0u);
}

// A rank that is known when a run is planned: the kernel is chosen then.
TEST_F(WithOpenBlas, LateRanksGoThereToo) {
  OnnxWriter w(14);
  w.add_input("x", kF32, {4, 6}).add_input("shape", kI64, {"rank"}).add_input("b", kF32, {6, 5}).add_output("y");
  w.add_node("Reshape", {"x", "shape"}, {"r"}, {}, "reshape").add_node("MatMul", {"r", "b"}, {"y"}, {}, "late");
  TestSession session(load(make_runtime(), w), asks(Products::kOpenBlas));
  HostTensor x({DType::kFloat32, {4, 6}}), b({DType::kFloat32, {6, 5}});
  std::fill(x.as<float>().begin(), x.as<float>().end(), 0.5f);
  std::fill(b.as<float>().begin(), b.as<float>().end(), 2.0f);
  const HostTensor y = run(session, {x, int_tensor({2, 2, 6}), b})[0];
  for (const float v : y.as<float>()) EXPECT_EQ(v, 6.0f);
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("matmul_openblas"), std::string::npos);
}

}  // namespace
}  // namespace evn::test
