// RunRequest::listener: outputs that are told of while the run goes on are whole then, each is told of once, and those of devices
// do not wait for the end of the devices' work.
#include "tests/runtime/run/outputs_support.h"

namespace evn::test::listener_test {
namespace {

constexpr std::int64_t kElements = 256;
constexpr int kOutputs = 4;

struct Told {
  std::uint32_t output = 0;
  std::vector<float> bytes;  // of the output when it was told of
  std::int64_t kernels = 0;  // that mock devices had run then
};

struct ListenerTest : RuntimeTest {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Session> session;
  std::vector<RunValue> outputs;
  std::vector<Told> told;

  // A chain of nodes, each of which makes an output. device(i): of node i.
  void make(const std::function<std::string(int)>& device) {
    Config config = two_mocks();
    OnnxWriter w(13);
    w.add_input("x", kF32, {kElements});
    for (int i = 0; i < kOutputs; ++i) {
      const std::string n = std::to_string(i), before = i == 0 ? "x" : "y" + std::to_string(i - 1);
      w.add_node(i % 2 == 0 ? "Neg" : "Exp", {before}, {"y" + n}, {}, "node" + n).add_output("y" + n);
      config.rules.push_back(rule({}, {"node" + n}, device(i), Policy::kRequire, i + 1));
    }
    runtime = make_runtime(std::move(config));
    session = make_session(load(runtime, w), "");
  }

  void run() {
    const HostTensor x = random_tensor({kElements}, 1);
    std::vector<RunValue> in = {{to_tensor(runtime, x), nullptr}};
    outputs.clear();
    told.clear();
    for (int j = 0; j < kOutputs; ++j) outputs.push_back({to_tensor(runtime, HostTensor(x.desc)), nullptr});
    RunRequest request;
    request.allow_copies = true;
    request.listener = {[](void* self, std::uint32_t output) { static_cast<ListenerTest*>(self)->note(output); }, this};
    session->run(in, outputs, request);
  }
  void note(std::uint32_t output) {
    const auto* const data = static_cast<const float*>(outputs[output].tensor->buffer().address());
    told.push_back({output, std::vector<float>(data, data + kElements), counters_of_working_mocks().kernels});
  }
  void expect_all_told() {
    ASSERT_EQ(told.size(), kOutputs);
    std::vector<int> times(kOutputs);
    for (const Told& t : told) {
      ++times[t.output];
      EXPECT_EQ(std::memcmp(t.bytes.data(), outputs[t.output].tensor->buffer().address(), kElements * sizeof(float)), 0)
          << t.output;
    }
    EXPECT_EQ(times, std::vector<int>(kOutputs, 1));
  }
};

TEST_F(ListenerTest, OfTheHostAsTheyAreMade) {
  make([](int) { return "cpu"; });
  run();
  expect_all_told();
  for (std::uint32_t i = 0; i + 2 < kOutputs; ++i) EXPECT_EQ(told[i].output, i);  // the last node uses the last two
}

TEST_F(ListenerTest, OfADeviceWhileItWorks) {
  mock_settings().has_queues = true;
  mock_settings().kernel_ns = 20'000'000;
  make([](int) { return "m"; });
  run();
  expect_all_told();
  EXPECT_EQ(told.front().output, 0u);
  EXPECT_LT(told.front().kernels, kOutputs);
  EXPECT_EQ(told.back().kernels, kOutputs);
}

// A node of the host reads an output that a device has made: it is told of behind that.
TEST_F(ListenerTest, OfBothInTurns) {
  for (const bool has_queues : {false, true}) {
    mock_settings().has_queues = has_queues;
    for (const int first : {0, 1}) {
      make([&](int i) { return i % 2 == first ? "m" : "cpu"; });
      for (int times = 0; times < 2; ++times) {
        run();
        expect_all_told();
      }
    }
  }
}

TEST_F(ListenerTest, OfTwoDevices) {
  mock_settings().has_queues = true;
  make([](int i) { return i < 2 ? "m" : "n"; });
  run();
  expect_all_told();
}

}  // namespace
}  // namespace evn::test::listener_test
