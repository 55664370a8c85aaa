
#include "base/fault.h"
#include "tests/runtime/support.h"
#include "tests/support/test_clock.h"

namespace evn::test {
namespace {

using SessionTest = RuntimeTest;

// A const session gives out no part that can be changed.
template <typename T>
concept GivesStages = requires(T& session) {
  session.stages();
};
static_assert(GivesStages<Session> && !GivesStages<const Session>);
using Read = const Session&;
static_assert(std::is_same_v<decltype(std::declval<Read>().tracing()), const Tracing&>);
static_assert(std::is_same_v<decltype(std::declval<Read>().body(0)), const Session*>);
static_assert(std::is_same_v<decltype(std::declval<Read>().batcher()), const Batcher*>);
static_assert(std::is_same_v<decltype(std::declval<Read>().identity()), std::shared_ptr<const SessionIdentity>>);

std::vector<HostTensor> reference(const ModelPtr& model, const std::vector<HostTensor>& inputs) {
  return GraphRunner(model->graph()).run(inputs);
}

TEST_F(SessionTest, GivesTheReferencesResults) {
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, small_network());
  TestSession session(model, "");
  for (int batch = 1; batch <= 3; ++batch) {
    const std::vector<HostTensor> in = {random_tensor({batch, 3, 8, 8}, static_cast<std::uint64_t>(batch))};
    expect_close(run(session, in), reference(model, in));
  }
}

TEST_F(SessionTest, EveryCutBetweenThreeDevicesGivesTheSameResults) {
  std::mt19937 random(3);
  const ModelPtr plain = load(make_runtime(), small_network());
  const std::vector<HostTensor> in = {random_tensor({2, 3, 8, 8}, 5)};
  const std::vector<HostTensor> want = reference(plain, in);
  int copies = 0;
  for (int round = 0; round < 60; ++round) {
    Config config = two_mocks();
    for (const Node& node : plain->graph().nodes) {
      const char* device = (const char*[]){"cpu", "m", "n"}[random() % 3];
      if (std::string(device) != "cpu") config.rules.push_back(rule({}, {node.name}, device, Policy::kRequire, round + 1));
    }
    TestSession session(load(make_runtime(config), small_network()), "");
    expect_close(run(session, in), want);
    expect_close(run(session, in), want);
    copies += session.explain(EVN_FORMAT_TEXT).find(" -> ") != std::string::npos;
  }
  EXPECT_GT(copies, 30);
}

TEST_F(SessionTest, PackedWeightsAreUsedAndSharedBetweenSessions) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, small_network());
  TestSession a(model, "m");
  const std::uint64_t packed = runtime->find_device("m")->pool().stats().by_class[EVN_MEMORY_PACKED];
  EXPECT_GT(packed, 0u);
  TestSession b(model, "m");
  EXPECT_EQ(runtime->find_device("m")->pool().stats().by_class[EVN_MEMORY_PACKED], packed);
  run(b, {random_tensor({1, 3, 8, 8}, 1)});
  EXPECT_GT(mock_counters().packed_reads, 0);
}

TEST_F(SessionTest, AWholeModelOnOneDeviceCopiesOnlyItsInputsAndOutputs) {
  const auto runtime = make_runtime(two_mocks());
  TestSession session(load(runtime, small_network()), "m");
  const MockCounters before = mock_counters();
  run(session, {random_tensor({1, 3, 8, 8}, 1)});
  const std::int64_t constants = mock_counters().uploads - before.uploads - 1;
  EXPECT_EQ(mock_counters().downloads - before.downloads, 1);
  run(session, {random_tensor({1, 3, 8, 8}, 2)});
  EXPECT_EQ(mock_counters().uploads - before.uploads, constants + 2);  // constants went over once
  EXPECT_EQ(mock_counters().downloads - before.downloads, 2);
}

TEST_F(SessionTest, EveryFailingDeviceCallIsAnErrorAndTheNextRunIsRight) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, small_network());
  TestSession session(model, "m");
  const std::vector<HostTensor> in = {random_tensor({1, 3, 8, 8}, 9)};
  const std::vector<HostTensor> want = run(session, in);
  int failures = 0;
  for (int k = 1; k < 100; ++k) {
    mock_settings().fail_call = k;
    try {
      run(session, in);
      break;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
      EXPECT_STREQ(e.device, "m");
      ++failures;
    }
    mock_settings().fail_call = 0;
    expect_close(run(session, in), want, 0, 0);
  }
  EXPECT_GT(failures, 4);
}

OnnxWriter shape_model() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", "C", 4}).add_output("y", kF32).add_output("s", kI64);
  w.add_node("Shape", {"x"}, {"shape"});
  w.add_initializer("zero", {1}, std::vector<std::int64_t>{0});
  w.add_initializer("two", {1}, std::vector<std::int64_t>{2});
  w.add_initializer("minus", {1}, std::vector<std::int64_t>{-1});
  w.add_node("Slice", {"shape", "zero", "two"}, {"front"});
  w.add_node("Concat", {"minus", "zero2"}, {"target"}, {{"axis", 0}});
  w.add_initializer("zero2", {1}, std::vector<std::int64_t>{4});
  w.add_node("Relu", {"x"}, {"r"});
  w.add_node("Reshape", {"r", "target"}, {"flat"});
  w.add_node("Concat", {"front", "minus"}, {"back"}, {{"axis", 0}});
  w.add_node("Reshape", {"flat", "back"}, {"y"});
  w.add_node("Identity", {"shape"}, {"s"});
  return w;
}

TEST_F(SessionTest, ShapeArithmeticIsEvaluatedForEachShape) {
  for (const char* device : {"", "m"}) {
    TestSession session(load(make_runtime(two_mocks()), shape_model()), device);
    for (int n = 1; n < 4; ++n) {
      const HostTensor x = random_tensor({n, 5, 4}, static_cast<std::uint64_t>(n));
      const std::vector<HostTensor> got = run(session, {x});
      EXPECT_EQ(got[0].desc.shape, (Shape{n, 5, 4}));
      EXPECT_EQ(got[1].as<std::int64_t>()[0], n);
      for (std::size_t i = 0; i < x.as<float>().size(); ++i) EXPECT_EQ(got[0].as<float>()[i], std::max(x.as<float>()[i], 0.0f));
    }
  }
}

TEST_F(SessionTest, AShapeGivenAsAnInputIsPartOfThePlan) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {6}).add_input("shape", kI64, {2}).add_output("y", kF32).add_node("Reshape", {"x", "shape"}, {"y"});
  TestSession session(load(make_runtime(), w), "");
  const HostTensor x = random_tensor({6}, 1);
  EXPECT_EQ(run(session, {x, int_tensor({2, 3})})[0].desc.shape, (Shape{2, 3}));
  EXPECT_EQ(run(session, {x, int_tensor({3, 2})})[0].desc.shape, (Shape{3, 2}));
  EXPECT_EQ(run(session, {x, int_tensor({-1, 1})})[0].desc.shape, (Shape{6, 1}));
  EXPECT_THROW(run(session, {x, int_tensor({4, 2})}), Error);
}

OnnxWriter data_dependent(int n) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {n}).add_output("y", kF32).add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 1}}, "maximum");
  w.add_node("Cast", {"m"}, {"i"}, {{"to", 7}}, "cast").add_node("Reshape", {"x", "i"}, {"y"}, {}, "reshape");
  return w;
}

TEST_F(SessionTest, AShapeMayDependOnALargeInputsData) {
  TestSession session(load(make_runtime(), data_dependent(4096)), "");
  HostTensor x({DType::kFloat32, {4096}});
  x.as<float>()[7] = 4096;
  EXPECT_EQ(run(session, {x})[0].desc.shape, (Shape{4096}));
  x.as<float>()[7] = 4095;
  EXPECT_THROW(run(session, {x}), Error);
}

TEST_F(SessionTest, AShapeMayDependOnASmallInputsData) {
  TestSession session(load(make_runtime(), data_dependent(3)), "");
  HostTensor x({DType::kFloat32, {3}});
  x.as<float>()[1] = 3;
  EXPECT_EQ(run(session, {x})[0].desc.shape, (Shape{3}));
  x.as<float>()[1] = 2;
  EXPECT_THROW(run(session, {x}), Error);
}

TEST_F(SessionTest, OutputsMayBeInputsConstantsViewsAndEachOther) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {2, 3})
      .add_initializer("c", {2}, std::vector<float>{1, 2})
      .add_initializer("flat", {1}, std::vector<std::int64_t>{6});
  w.add_node("Reshape", {"x", "flat"}, {"v"}).add_node("Relu", {"v"}, {"r"}).add_node("Relu", {"r"}, {"rr"});
  w.add_output("x", kF32, {2, 3}).add_output("c", kF32, {2}).add_output("v", kF32).add_output("r", kF32).add_output("rr", kF32);
  for (const char* device : {"", "m"}) {
    const ModelPtr model = load(make_runtime(two_mocks()), w);
    TestSession session(model, device);
    const std::vector<HostTensor> in = {random_tensor({2, 3}, 4)};
    expect_close(run(session, in), reference(model, in), 0, 0);
  }
}

TEST_F(SessionTest, OutputsBetweenThoseThatAreWantedMayBeLeftOut) {
  OnnxWriter w(17);
  w.import("com.microsoft", 1)
      .add_input("x", kF32, {2, 3, 40})
      .add_input("z", kF32, {1, 3, 40})
      .add_output("y", kF32)
      .add_output("s", kF32);
  w.add_initializer("scale", {40}, std::vector<float>(40, 1.5f)).add_initializer("bias", {40}, std::vector<float>(40, 0.25f));
  w.add_node("SkipLayerNormalization", {"x", "z", "scale", "bias"}, {"y", "", "", "s"}, {}, "", "com.microsoft");
  const ModelPtr model = load(make_runtime(), w);
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({2, 3, 40}, 2), random_tensor({1, 3, 40}, 3)};
  expect_close(run(session, in), reference(model, in));
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("skip_layer_norm"), std::string::npos);
}

TEST_F(SessionTest, LayerNormalizationOverADimensionThatOnlyARunKnowsHasAFastKernel) {
  for (const std::int64_t scales : {40, 1}) {
    OnnxWriter w(17);
    w.add_input("x", kF32, {240}).add_input("shape", kI64, {3}).add_output("y", kF32).add_node("Reshape", {"x", "shape"}, {"r"});
    w.add_initializer("scale", {scales}, std::vector<float>(static_cast<std::size_t>(scales), 1.5f));
    w.add_node("LayerNormalization", {"r", "scale"}, {"y"});
    const ModelPtr model = load(make_runtime(), w);
    TestSession session(model, "");
    const std::vector<HostTensor> in = {random_tensor({240}, 2), int_tensor({2, 3, 40})};
    expect_close(run(session, in), reference(model, in));
    const bool is_fast = session.explain(EVN_FORMAT_TEXT).find("cpu  layer_norm  ") != std::string::npos;
    EXPECT_EQ(is_fast, scales == 40);  // a scale of 1 may be broadcast
    if (scales == 1) continue;
    EXPECT_THROW(run(session, {in[0], int_tensor({2, 40, 3})}), Error);
    EXPECT_THROW(run(session, {in[0], int_tensor({6, 40, 1})}), Error);
  }
}

TEST_F(SessionTest, AChainWrittenInPlaceLeavesTheInputAlone) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {64}).add_initializer("k", {64}, std::vector<float>(64, 0.5f)).add_output("y", kF32);
  w.add_node("Add", {"x", "k"}, {"a"})
      .add_node("Mul", {"a", "x"}, {"b"})
      .add_node("Sub", {"b", "a"}, {"c"})
      .add_node("Add", {"c", "b"}, {"y"});
  const ModelPtr model = load(make_runtime(two_mocks()), w);
  const std::vector<HostTensor> in = {random_tensor({64}, 2)};
  for (const char* device : {"", "m"}) {
    TestSession session(model, device);
    expect_close(run(session, in), reference(model, in), 1e-6, 1e-7);
  }
}

TEST_F(SessionTest, GivenOutputsAreWrittenWithoutACopy) {
  const auto runtime = make_runtime();
  TestSession session(load(runtime, small_network()), "");
  const std::vector<TensorPtr> in = {to_tensor(runtime, random_tensor({1, 3, 8, 8}, 3))};
  const auto given = std::make_shared<Tensor>(runtime, &runtime->cpu(), TensorDesc{DType::kFloat32, {1, 10}}, false);
  std::vector<TensorPtr> out = {given};
  run_tensors(session, in, out);
  const std::uint64_t before = runtime->cpu().pool().stats().allocations;
  run_tensors(session, in, out);
  EXPECT_EQ(runtime->cpu().pool().stats().allocations, before);
  EXPECT_EQ(out[0], given);
  float sum = 0;
  for (int i = 0; i < 10; ++i) sum += static_cast<const float*>(given->buffer().address())[i];
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST_F(SessionTest, AfterTheFirstRunNothingIsAllocated) {
  const auto runtime = make_runtime({}, 0, 1);
  TestSession session(load(runtime, small_network()), "");
  const std::vector<TensorPtr> in = {to_tensor(runtime, random_tensor({1, 3, 8, 8}, 3))};
  const std::vector<TensorPtr> out = {
      std::make_shared<Tensor>(runtime, &runtime->cpu(), TensorDesc{DType::kFloat32, {1, 10}}, false)};
  const RunValue inputs[] = {{in[0], nullptr}};
  RunValue outputs[] = {{out[0], nullptr}};
  for (int i = 0; i < 2; ++i) session.run(inputs, outputs, {});
  fault_count_reset(Seam::kAlloc);
  session.run(inputs, outputs, {});
  EXPECT_EQ(fault_count(Seam::kAlloc), 0);
  fault_arm(Seam::kAlloc, 0, false);
}

TEST_F(SessionTest, ChangingShapesKeepMemoryBounded) {
  const auto runtime = make_runtime();
  TestSession session(load(runtime, small_network()), "");
  std::uint64_t reserved = 0;
  for (int round = 0; round < 3; ++round) {
    for (int n = 1; n <= 100; ++n) run(session, {random_tensor({n, 3, 8, 8}, 1)});
    runtime->cpu().pool().trim();
    if (round == 0) reserved = runtime->cpu().pool().stats().reserved;
    EXPECT_LE(runtime->cpu().pool().stats().reserved, reserved);
  }
}

TEST_F(SessionTest, AMemoryCapIsAnErrorAndALargeEnoughOneWorks) {
  const std::vector<HostTensor> in = {random_tensor({16, 3, 8, 8}, 1)};
  bool refused = false;
  bool worked = false;
  for (std::uint64_t limit = 1 << 10; limit <= 1 << 22; limit *= 2) {
    try {
      const auto runtime = make_runtime({}, limit);
      TestSession session(load(runtime, small_network()), "");
      run(session, in);
      EXPECT_LE(runtime->cpu().pool().stats().peak, limit);
      worked = true;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
      EXPECT_GT(e.bytes_requested, 0u);
      EXPECT_FALSE(worked);
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(worked);
}

TEST_F(SessionTest, AMockOutOfMemoryNamesTheDevice) {
  mock_settings().memory_bytes = 100;
  try {
    TestSession session(load(make_runtime(two_mocks()), small_network()), "m");
    run(session, {random_tensor({1, 3, 8, 8}, 1)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(e.device, "m");
  }
}

TEST_F(SessionTest, AnExpiredRunTimeIsATimeoutAndTheNextRunIsRight) {
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, small_network());
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({8, 3, 8, 8}, 1)};
  std::vector<TensorPtr> tensors = {to_tensor(runtime, in[0])};
  std::vector<TensorPtr> out(1);
  try {
    run_tensors(session, tensors, out, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
  EXPECT_EQ(out[0], nullptr);
  expect_close(run(session, in), reference(model, in));
}

// A row without an optimized kernel: the determinant of x [n, n].
OnnxWriter determinant(std::int64_t n) {
  OnnxWriter w(13);
  w.add_node("Det", {"x"}, {"y"}, {}, "det").add_input("x", kF32, {n, n}).add_output("y");
  return w;
}

TEST_F(SessionTest, ARunsTimeEndsWithinAReferenceKernel) {
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, determinant(80));
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({80, 80}, 1, -1, 1)};
  std::vector<TensorPtr> tensors = {to_tensor(runtime, in[0])};
  TestClock clock;
  std::vector<TensorPtr> want(1), again(1), out(1);
  run_tensors(session, tensors, want, 1'000);
  const std::int64_t looks = clock.looks();
  EXPECT_GT(looks, 10);
  clock.restart(looks / 2);
  try {
    run_tensors(session, tensors, out, 1'000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
    EXPECT_STREQ(e.node, "det");
    EXPECT_STREQ(e.message, "the run's time is over");
  }
  EXPECT_EQ(out[0], nullptr);
  EXPECT_LE(clock.looks(), looks / 2 + 3);
  clock.restart();
  run_tensors(session, tensors, again, 1'000);
  EXPECT_EQ(std::memcmp(again[0]->buffer().address(), want[0]->buffer().address(), want[0]->size_bytes()), 0);
}

// Eight vectors, each element of one times each of all others: 128^8 products.
OnnxWriter product_of_eight() {
  OnnxWriter w(13);
  std::vector<std::string> names;
  for (char name = 'a'; name <= 'h'; ++name) {
    names.emplace_back(1, name);
    w.add_initializer(names.back(), {128, 128}, std::vector<float>(128 * 128, 0.5f));
  }
  // Diagonals, which do not become products of matrices.
  w.add_node("Einsum", names, {"p"}, {{"equation", "aa,bb,cc,dd,ee,ff,gg,hh->"}}, "product");
  w.add_node("Add", {"x", "p"}, {"y"}).add_input("x", kF32, {1}).add_output("y");
  return w;
}

TEST_F(SessionTest, AnEinsumThatNobodyCanWaitForIsLoadedAndEndsWithTheRunsTime) {
  Config config;
  config.limits.load_time_ns = 2'000'000'000;
  const auto runtime = make_runtime(config);
  TestSession session(load(runtime, product_of_eight()), "");
  std::vector<TensorPtr> tensors = {to_tensor(runtime, random_tensor({1}, 1))};
  std::vector<TensorPtr> out(1);
  try {
    run_tensors(session, tensors, out, 20'000'000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
    EXPECT_STREQ(e.node, "product");
  }
}

// A shape that is computed: planning runs the determinant's reference.
TEST_F(SessionTest, ARunsTimeEndsWithinPlanning) {
  OnnxWriter w(13);
  w.add_node("Shape", {"x"}, {"s"}).add_node("ConstantOfShape", {"s"}, {"zeros"}).add_node("EyeLike", {"zeros"}, {"m"});
  w.add_node("Det", {"m"}, {"d"}, {}, "det");  // of zeros it would end at the first pivot
  w.add_node("Cast", {"d"}, {"i"}, {{"to", kI64}})
      .add_node("Unsqueeze", {"i", "axes"}, {"dims"})
      .add_node("Max", {"dims", "one"}, {"shape"});
  w.add_initializer("axes", {1}, std::vector<std::int64_t>{0}).add_initializer("one", {1}, std::vector<std::int64_t>{1});
  w.add_node("Expand", {"one", "shape"}, {"y"}).add_input("x", kF32, {"N", "N"}).add_output("y", kI64);
  const auto runtime = make_runtime();
  TestSession session(load(runtime, w), "");
  std::vector<TensorPtr> tensors = {to_tensor(runtime, random_tensor({120, 120}, 1))};
  std::vector<TensorPtr> out(1);
  TestClock clock;
  clock.restart(20);
  try {
    run_tensors(session, tensors, out, 1'000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
    EXPECT_STREQ(e.node, "det");
  }
}

TEST_F(SessionTest, EmptyBatchesRun) {
  TestSession session(load(make_runtime(), small_network()), "");
  EXPECT_EQ(run(session, {HostTensor({DType::kFloat32, {0, 3, 8, 8}})})[0].desc.shape, (Shape{0, 10}));
}

TEST_F(SessionTest, TheTensorLimitHoldsWhileRunning) {
  Config config;
  config.limits.tensor_bytes = 4096;
  TestSession session(load(make_runtime(config), small_network()), "");
  try {
    run(session, {random_tensor({100, 3, 8, 8}, 1)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  }
}

TEST_F(SessionTest, ResultsAreBitEqualOverThreadsAndBatchNeighbours) {
  const std::vector<HostTensor> one = {random_tensor({1, 3, 8, 8}, 11)};
  HostTensor three = random_tensor({3, 3, 8, 8}, 12);
  std::copy(one[0].as<float>().begin(), one[0].as<float>().end(), three.as<float>().begin() + 192);
  std::vector<float> want;
  for (int threads = 1; threads <= 4; ++threads) {
    TestSession session(load(make_runtime({}, 0, threads), small_network()), "");
    const auto single = run(session, one)[0];
    const auto batched = run(session, {three})[0];
    if (want.empty()) want.assign(single.as<float>().begin(), single.as<float>().end());
    EXPECT_TRUE(std::equal(want.begin(), want.end(), single.as<float>().begin()));
    EXPECT_TRUE(std::equal(want.begin(), want.end(), batched.as<float>().begin() + 10));
  }
}

}  // namespace
}  // namespace evn::test
