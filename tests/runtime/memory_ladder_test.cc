// Sessions that do not fit under a device's memory limit: the same results with less memory, another device, or an error with the
// bytes asked and left. docs/decisions/0073-memory-ladder.md
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "base/fault.h"
#include "base/guarded.h"
#include "runtime/loaded/weight_pager.h"
#include "tests/runtime/support.h"

namespace evn::test::memory_ladder_test {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::size_t kWeightBytes = kWidth * kWidth * 4;
constexpr int kLayers = 8;

// A chain of products, whose weights take almost all of its memory.
OnnxWriter chain(int layers = kLayers) {
  OnnxWriter m(17);
  m.add_input("x", kF32, {"n", kWidth}).add_output("y");
  std::string from = "x";
  for (int l = 0; l < layers; ++l) {
    std::vector<float> w(static_cast<std::size_t>(kWidth * kWidth));
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<float>(static_cast<int>((i * 37 + static_cast<std::size_t>(l) * 11) % 101) - 50) / 1024;
    const std::string number = std::to_string(l);
    m.add_initializer("w" + number, {kWidth, kWidth}, w);
    m.add_node("MatMul", {from, "w" + number}, {"p" + number}, {}, "product" + number);
    from = l + 1 == layers ? "y" : "r" + number;
    m.add_node("Relu", {"p" + number}, {from}, {}, "relu" + number);
  }
  return m;
}

// Three branches, each of which widens its input eight times and narrows it again; all are widened before any is narrowed, as an
// exporter may have it.
OnnxWriter branches() {
  OnnxWriter m(17);
  m.add_input("x", kF32, {1, 4096}).add_output("y");
  m.add_initializer("ones", {8, 1}, std::vector<float>(8, 0.5f));
  m.add_initializer("axis", {1}, std::vector<std::int64_t>{0});
  for (const char* b : {"a", "b", "c"}) {
    const std::string s(b);
    m.add_node(s == "a" ? "Sin" : s == "b" ? "Cos" : "Tanh", {"x"}, {"f" + s}, {}, "f" + s);
    m.add_node("Mul", {"f" + s, "ones"}, {"wide" + s}, {}, "wide" + s);
  }
  for (const char* b : {"a", "b", "c"}) {
    const std::string s(b);
    m.add_node("ReduceSum", {"wide" + s, "axis"}, {"narrow" + s}, {}, "narrow" + s);
  }
  m.add_node("Add", {"narrowa", "narrowb"}, {"ab"}, {}, "ab").add_node("Add", {"ab", "narrowc"}, {"y"}, {}, "abc");
  return m;
}

// 3 x 3 convolutions of many channels, which Winograd's method takes.
OnnxWriter convolutions() {
  OnnxWriter m(17);
  m.add_input("x", kF32, {1, 64, 24, 24}).add_output("y");
  std::vector<float> w(64 * 64 * 9);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 29 % 97) - 48) / 2048;
  m.add_initializer("w", {64, 64, 3, 3}, w);
  m.add_node("Conv", {"x", "w"}, {"y"}, {Attr("pads", std::vector<std::int64_t>{1, 1, 1, 1})}, "conv");
  return m;
}

HostTensor rows(std::int64_t n, std::int64_t width = kWidth) {
  HostTensor x({DType::kFloat32, {n, width}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(static_cast<int>(i % 17) - 8) / 8;
  return x;
}

struct MemoryLadderTest : RuntimeTest {
  std::string path =
      (std::filesystem::temp_directory_path() / ("evener_memory_ladder_" + std::to_string(getpid()) + ".onnx")).string();

  void SetUp() override {
    RuntimeTest::SetUp();
    write(chain());
  }
  void TearDown() override {
    for (int i = 0; i < kSeamCount; ++i) fault_arm(static_cast<Seam>(i), 0, false);
    std::filesystem::remove(path);
    RuntimeTest::TearDown();
  }
  void write(const OnnxWriter& model) const { std::ofstream(path, std::ios::binary) << model.serialize(); }

  std::vector<HostTensor> unlimited(const std::vector<HostTensor>& in) const {
    TestSession session(load_model_file(make_runtime(), path), "");
    return run(session, in);
  }
};

void expect_bits(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_EQ(got[k].bytes, want[k].bytes) << "output " << k;
}

PoolStats stats(const Session& session) { return session.runtime()->cpu().pool().stats(); }

TEST_F(MemoryLadderTest, ALimitThatAllFitsUnderDropsNothing) {
  const std::vector<HostTensor> in = {rows(3)};
  const auto runtime = make_runtime({}, 64 << 20);
  TestSession session(load_model_file(runtime, path), "");
  for (int i = 0; i < 3; ++i) expect_bits(run(session, in), unlimited(in));
  EXPECT_EQ(stats(session).weights_dropped, 0u);
  EXPECT_EQ(stats(session).weights_restored, 0u);
  EXPECT_GE(stats(session).by_class[EVN_MEMORY_PACKED], kLayers * kWeightBytes) << "they are packed before the first run";
}

TEST_F(MemoryLadderTest, WeightsThatDoNotFitTogetherArePackedAgainWithTheSameBits) {
  const std::vector<HostTensor> in = {rows(3)};
  const std::vector<HostTensor> want = unlimited(in);
  const std::uint64_t limit = kLayers / 2 * kWeightBytes;
  const auto runtime = make_runtime({}, limit);
  TestSession session(load_model_file(runtime, path), "");
  for (int i = 0; i < 3; ++i) expect_bits(run(session, in), want);
  const PoolStats s = stats(session);
  EXPECT_GT(s.weights_dropped, 0u);
  EXPECT_GT(s.weights_restored, 0u);
  EXPECT_LE(s.reserved, limit);
  EXPECT_LE(s.peak, limit);
}

TEST_F(MemoryLadderTest, ALimitThatIsLoweredDropsWeightsAndOneThatIsRaisedKeepsThem) {
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime({}, 64 << 20);
  TestSession session(load_model_file(runtime, path), "");
  runtime->cpu().set_memory_limit(3 * kWeightBytes);
  EXPECT_LE(stats(session).reserved, 3 * kWeightBytes);
  expect_bits(run(session, in), want);
  runtime->cpu().set_memory_limit(UINT64_MAX);
  expect_bits(run(session, in), want);
  const std::uint64_t restored = stats(session).weights_restored;
  expect_bits(run(session, in), want);
  EXPECT_EQ(stats(session).weights_restored, restored);
}

TEST_F(MemoryLadderTest, WithoutMemoryForOneWeightThereIsAnErrorWithTheNodeAndTheBytes) {
  const auto runtime = make_runtime({}, 64 << 20);
  TestSession session(load_model_file(runtime, path), "");
  const std::vector<HostTensor> want = run(session, {rows(1)});
  runtime->cpu().set_memory_limit(kWeightBytes / 2);
  try {
    run(session, {rows(1)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(e.node, "product0");
    EXPECT_STREQ(e.device, "cpu");
    EXPECT_GE(e.bytes_requested, kWeightBytes);
    EXPECT_LT(e.bytes_available, kWeightBytes);
  }
  runtime->cpu().set_memory_limit(64 << 20);
  expect_bits(run(session, {rows(1)}), want);
}

TEST_F(MemoryLadderTest, SessionsOfSeveralThreadsShareWhatThereIs) {
  const std::vector<HostTensor> in = {rows(3)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime({}, 3 * kWeightBytes);
  const ModelPtr first = load_model_file(runtime, path), second = load_model_file(runtime, path);
  TestSession a(first, ""), b(second, "");
  std::vector<std::thread> threads;
  for (TestSession* const s : {&a, &b, &a, &b, &a, &b, &a, &b}) {
    threads.emplace_back([&, s] {
      try {
        for (int i = 0; i < 10; ++i) expect_bits(run(*s, in), want);
      } catch (const Error& e) {
        ADD_FAILURE() << e.node << ": " << e.message;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(stats(a).reserved, 3 * kWeightBytes);
  EXPECT_GT(stats(a).weights_dropped, 0u);
}

// A run that needs a packed copy waits for another thread that packs it, that packs others, or that has the plain weights.
TEST_F(MemoryLadderTest, WaitsForAThreadThatPacksEndWhenTheRunMustStop) {
  const auto runtime = make_runtime({}, 64 << 20);
  const ModelPtr model = load_model_file(runtime, path);
  TestSession session(model, "");
  runtime->weight_pagers()->reclaim(runtime->cpu().pool(), SIZE_MAX);
  PagedWeight* page = nullptr;
  for (const CompiledNode& n : session.compiled().nodes) {
    for (const Buffer& b : n.packed) page = is_paged(b) ? &page_of(b) : page;
  }
  ASSERT_NE(page, nullptr);
  // `let_go` ends what the run waits for, so that a wait that does not end by itself fails the test and does not hang it.
  const auto expect_stopped = [&](auto&& let_go) {
    std::future<evn_status> waiting = std::async(std::launch::async, [&] {
      const std::atomic<bool> requested{true};
      Cancel cancel;
      cancel.requested = &requested;
      const CancelScope scope(cancel);
      const std::optional<Error> failure = error_of([&] {
        model->store.pin(*page, *model, 0);
        model->store.unpin(*page);
      });
      return failure ? failure->status : EVN_OK;
    });
    EXPECT_EQ(waiting.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    let_go();
    EXPECT_EQ(waiting.get(), EVN_ERROR_CANCELLED);
  };
  ASSERT_TRUE(model->store.pager().begin(*page));
  expect_stopped([&] { model->store.pager().give_up(*page); });
  std::optional<PackedStore::Batch> batch;
  batch.emplace(model->store, nullptr);
  expect_stopped([&] { batch.reset(); });
  std::optional<PlainWeights::Access> plain;
  plain.emplace(*model);
  expect_stopped([&] { plain.reset(); });
  expect_bits(run(session, {rows(2)}), unlimited({rows(2)}));
}

TEST_F(MemoryLadderTest, AFileThatHasChangedIsAnErrorAndNotOtherNumbers) {
  const auto runtime = make_runtime({}, 3 * kWeightBytes);
  TestSession session(load_model_file(runtime, path), "");
  run(session, {rows(1)});
  std::string bytes = chain().serialize();
  for (std::size_t i = bytes.size() / 8; i < bytes.size(); i += bytes.size() / 8) bytes[i] = static_cast<char>(bytes[i] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    run(session, {rows(1)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_IO) << e.message;
  }
}

// What fails in the course of a run under a limit fails that run; the next one is right, and nothing is lost.
TEST_F(MemoryLadderTest, EachCallThatFailsWhileWeightsArePackedAgainIsAnError) {
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime({}, 4 * kWeightBytes, 1);
  TestSession session(load_model_file(runtime, path), "");
  expect_bits(run(session, in), want);
  for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
    int failed = 0;
    for (int k = 1; k < 2000; ++k) {
      fault_arm(seam, k, false);
      bool reached = false;
      try {
        const std::vector<HostTensor> got = run(session, in);
        reached = fault_count(seam) >= k;
        fault_arm(seam, 0, false);
        expect_bits(got, want);
      } catch (const Error&) {
        reached = true;
        fault_arm(seam, 0, false);
        ++failed;
      } catch (const std::bad_alloc&) {
        reached = true;
        fault_arm(seam, 0, false);
        ++failed;
      }
      expect_bits(run(session, in), want);
      EXPECT_LE(stats(session).reserved, 4 * kWeightBytes);
      if (!reached) break;
    }
    EXPECT_GT(failed, 3) << static_cast<int>(seam);
  }
}

// Allocations fail while the session is made, in the midst of the ladder.
TEST_F(MemoryLadderTest, EachCallThatFailsWhileASessionIsMadeIsAnErrorOrDoesNoHarm) {
  for (const bool winograd : {false, true}) {
    if (winograd) write(convolutions());
    const std::vector<HostTensor> in = {winograd ? random_tensor({1, 64, 24, 24}, 4) : rows(2)};
    TestSession fast(load_model_file(make_runtime({}, 0, 1), path), "");
    const std::vector<HostTensor> want = run(fast, in);
    const std::uint64_t limit = winograd ? stats(fast).peak - stats(fast).by_class[EVN_MEMORY_PACKED] / 2 : 4 * kWeightBytes;
    const auto runtime = make_runtime({}, limit, 1);
    const std::uint64_t before = runtime->cpu().pool().stats().current;
    for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
      int failed = 0;
      bool reached = true;
      for (int k = 1; k < 5000 && reached; ++k) {
        fault_arm(seam, k, false);
        try {
          TestSession session(load_model_file(runtime, path), "");
          reached = fault_count(seam) >= k;
          fault_arm(seam, 0, false);
          expect_close(run(session, in), want);
        } catch (const Error&) {
          ++failed;
        } catch (const std::bad_alloc&) {
          ++failed;
        }
        fault_arm(seam, 0, false);
        runtime->cpu().pool().trim();
        EXPECT_EQ(runtime->cpu().pool().stats().current, before) << "call " << k;
      }
      EXPECT_FALSE(reached);
      EXPECT_GT(failed, 3) << static_cast<int>(seam);
    }
  }
}

TEST_F(MemoryLadderTest, AnotherOrderOfStepsTakesLessAndHasTheSameBits) {
  write(branches());
  const std::vector<HostTensor> in = {rows(1, 4096)};
  const auto runtime = make_runtime();
  const ModelPtr model = load_model_file(runtime, path);
  TestSession fast(model, "");
  SessionRequest request("");
  request.memory = MemoryPlan::kSmall;
  TestSession small(model, request);
  const std::vector<HostTensor> want = run(fast, in);
  expect_bits(run(small, in), want);
  const std::size_t most = fast.latest_plans()[0]->arena_bytes[0], least = small.latest_plans()[0]->arena_bytes[0];
  EXPECT_LT(least, most * 3 / 4);
  EXPECT_NE(small.explain(EVN_FORMAT_TEXT).find("memory plan: small; another order of steps"), std::string::npos);
  EXPECT_EQ(fast.explain(EVN_FORMAT_TEXT).find("memory plan"), std::string::npos);

  const auto limited = make_runtime({}, (most + least) / 2);
  TestSession session(load_model_file(limited, path), "");
  expect_bits(run(session, in), want);
  EXPECT_EQ(session.latest_plans()[0]->arena_bytes[0], least);
}

// A block of the heap that is refused leads to the smaller plan, as an arena does that is refused.
TEST_F(MemoryLadderTest, ARefusedBlockOfTheHeapLeadsToAnotherOrderOfSteps) {
  write(branches());
  const std::vector<HostTensor> in = {rows(1, 4096)};
  const ModelPtr model = load_model_file(make_runtime({}, 0, 1), path);
  TestSession fast(model, "");
  const std::vector<HostTensor> want = run(fast, in);
  const std::size_t most = fast.latest_plans()[0]->arena_bytes[0];
  int smaller = 0;
  bool reached = true;
  for (int k = 1; k < 5000 && reached; ++k) {
    TestSession session(model, "");
    fault_arm(Seam::kAlloc, k, false);
    std::vector<HostTensor> got;
    const std::optional<Error> failure = error_of([&] { got = run(session, in); });
    reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    if (failure) {
      EXPECT_EQ(failure->status, EVN_ERROR_OUT_OF_MEMORY) << "call " << k << ": " << failure->message;
      continue;
    }
    expect_bits(got, want);
    if (session.latest_plans()[0]->arena_bytes[0] < most) ++smaller;
  }
  EXPECT_FALSE(reached);
  EXPECT_GT(smaller, 2);  // blocks of the run's state, and not the arena alone
}

TEST_F(MemoryLadderTest, WinogradIsLeftOutWhereItsWeightsDoNotFit) {
  write(convolutions());
  const std::vector<HostTensor> in = {random_tensor({1, 64, 24, 24}, 4)};
  const auto runtime = make_runtime();
  TestSession fast(load_model_file(runtime, path), "");
  const std::vector<HostTensor> want = run(fast, in);
  EXPECT_NE(fast.explain(EVN_FORMAT_TEXT).find("conv_winograd"), std::string::npos);
  const std::uint64_t packed = stats(fast).by_class[EVN_MEMORY_PACKED];
  const auto limited = make_runtime({}, stats(fast).peak - packed / 2);
  TestSession session(load_model_file(limited, path), "");
  expect_close(run(session, in), want);
  EXPECT_LT(stats(session).by_class[EVN_MEMORY_PACKED], packed / 2);
  const std::string text = session.explain(EVN_FORMAT_TEXT);
  EXPECT_EQ(text.find("\nnodes:\n"), text.rfind("\nnodes:\n")) << text;
  EXPECT_NE(text.find("kernels of small packed weights"), std::string::npos) << text;
  EXPECT_NE(text.find("memory: small, and Winograd's"), std::string::npos) << text;
}

Config with_mock(Policy policy, bool prefers_list = false) {
  Config c;
  c.source = "test.yaml";
  c.devices = {mock_device("m")};
  c.devices[0].memory_limit = 2 * kWeightBytes;
  c.rules.push_back(rule({"MatMul"}, {}, "m", policy, 3));
  if (prefers_list) c.rules[0].devices = {"m", "cpu"};
  return c;
}

TEST_F(MemoryLadderTest, NodesGoToTheNextDeviceThatRulesAllow) {
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = unlimited(in);
  for (const Config& config : {with_mock(Policy::kPrefer), with_mock(Policy::kRequire, true)}) {
    const auto runtime = make_runtime(config);
    TestSession session(load_model_file(runtime, path), "");
    expect_close(run(session, in), want);
    const std::string text = session.explain(EVN_FORMAT_TEXT);
    EXPECT_NE(text.find("m: it has no memory left for the model"), std::string::npos) << text;
    EXPECT_EQ(runtime->find_device("m")->pool().stats().current, 0u) << "what was packed for it is let go";
  }
}

TEST_F(MemoryLadderTest, AnExclusiveRuleGivesTheErrorOfTheDevice) {
  const auto runtime = make_runtime(with_mock(Policy::kRequire));
  const ModelPtr model = load_model_file(runtime, path);
  for (int i = 0; i < 2; ++i) {
    try {
      TestSession session(model, "");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
      EXPECT_STREQ(e.device, "m");
      EXPECT_GT(e.bytes_requested, e.bytes_available);
      EXPECT_NE(std::string(e.node).find("product"), std::string::npos);
    }
    EXPECT_EQ(runtime->find_device("m")->pool().stats().current, 0u);
  }
}

// Devices "m", which has room for `limit` bytes, and "n" share the products with the CPU.
Config with_split(Policy policy, std::vector<std::string> devices, std::uint64_t limit = 2 * kWeightBytes) {
  Config c = two_mocks();
  c.measure_costs = false;
  c.devices[0].memory_limit = limit;
  c.rules = {rule({"MatMul"}, {}, "", policy, 3)};
  c.rules[0].split = std::move(devices);
  return c;
}

std::vector<std::string> devices_of_parts(const TestSession& session) {
  std::vector<std::string> devices;
  for (std::size_t i = 0; i < session.graph().nodes.size(); ++i) {
    if (session.graph().nodes[i].part >= 0) devices.push_back(session.compiled().placement.nodes[i].device->name());
  }
  return devices;
}

TEST_F(MemoryLadderTest, NodesThatDevicesShareAreSplitAmongTheOthers) {
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime(with_split(Policy::kPrefer, {"m", "n", "cpu"}));
  TestSession session(load_model_file(runtime, path), "");
  std::vector<std::string> shared;
  for (int l = 0; l < kLayers; ++l) shared.insert(shared.end(), {"n", "cpu"});
  EXPECT_EQ(devices_of_parts(session), shared);
  expect_close(run(session, in), want);
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("device m was full"), std::string::npos);
  EXPECT_EQ(runtime->find_device("m")->pool().stats().current, 0u) << "what was packed for it is let go";
}

TEST_F(MemoryLadderTest, NodesThatDevicesShareAreWholeOnTheOnlyOtherOne) {
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime(with_split(Policy::kPrefer, {"m", "n"}));
  TestSession session(load_model_file(runtime, path), "");
  EXPECT_TRUE(devices_of_parts(session).empty());
  expect_close(run(session, in), want);
  const std::string text = session.explain(EVN_FORMAT_TEXT);
  EXPECT_NE(text.find("has no other device; m cannot run it: it has no memory left for the model; the device that is there"),
            std::string::npos)
      << text;
  EXPECT_GT(runtime->find_device("n")->pool().stats().current, 0u);
}

TEST_F(MemoryLadderTest, NodesOfABodyThatDevicesShareGoElsewhereToo) {
  OnnxWriter body, w(17);
  body.add_input("i", kI64, {}).add_input("go", kBool, {}).add_input("v", kF32, {1, kWidth});
  body.add_initializer("weight", {kWidth, kWidth}, std::vector<float>(static_cast<std::size_t>(kWidth * kWidth), 1.0f / 512));
  body.add_node("Identity", {"go"}, {"more"}).add_node("MatMul", {"v", "weight"}, {"o"}, {}, "product");
  body.add_output("more", kBool).add_output("o", kF32, {1, kWidth});
  w.add_input("x", kF32, {1, kWidth}).add_initializer("turns", {}, std::vector<std::int64_t>{2}).add_output("y");
  write(w.add_node("Loop", {"turns", "", "x"}, {"y"}, {Attr::graph("body", body.graph())}, "loop"));
  const std::vector<HostTensor> in = {rows(1)};
  const std::vector<HostTensor> want = unlimited(in);
  const auto runtime = make_runtime(with_split(Policy::kPrefer, {"m", "cpu"}, kWeightBytes / 4));
  TestSession session(load_model_file(runtime, path), "");
  expect_close(run(session, in), want);
  EXPECT_EQ(runtime->find_device("m")->pool().stats().current, 0u);
}

TEST_F(MemoryLadderTest, ARuleThatRequiresASplitGivesTheErrorOfTheDevice) {
  const auto runtime = make_runtime(with_split(Policy::kRequire, {"m", "n", "cpu"}));
  const std::optional<Error> failure = error_of([&] { TestSession session(load_model_file(runtime, path), ""); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, EVN_ERROR_OUT_OF_MEMORY) << failure->message;
  EXPECT_STREQ(failure->device, "m");
}

TEST_F(MemoryLadderTest, IdleDevicesGiveBackWhatTheyKeep) {
  Config config;
  DeviceConfig cpu;
  cpu.name = "cpu";
  cpu.type = "cpu";
  cpu.trim = static_cast<std::uint64_t>(TrimWhen::kIdle);
  config.devices = {cpu};
  const auto runtime = make_runtime(config);
  TestSession session(load_model_file(runtime, path), "");
  run(session, {rows(2)});
  EXPECT_EQ(stats(session).by_class[EVN_MEMORY_ARENAS], 0u);
  EXPECT_EQ(session.memory_stats().arenas.idle_bytes, 0u);
}

TEST_F(MemoryLadderTest, SessionsThatShareArenasHaveThatOfOne) {
  Config config;
  config.session.share_arenas = true;
  const auto runtime = make_runtime(config);
  const ModelPtr model = load_model_file(runtime, path);
  TestSession a(model, ""), b(model, "");
  const std::vector<HostTensor> in = {rows(2)};
  const std::vector<HostTensor> want = run(a, in);
  const std::uint64_t one = stats(a).by_class[EVN_MEMORY_ARENAS];
  EXPECT_GT(one, 0u);
  expect_bits(run(b, in), want);
  EXPECT_EQ(stats(a).by_class[EVN_MEMORY_ARENAS], one);
  EXPECT_EQ(b.memory_stats().arenas.reused, 1u);
}

}  // namespace
}  // namespace evn::test::memory_ladder_test
