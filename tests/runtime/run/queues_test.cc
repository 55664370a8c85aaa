// Devices that work by themselves: requests that fill a pipeline of them, branches that they share, and results that do not depend
// on who is first.
#include "tests/backends/mock/queues.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/lower/plan.h"
#include "runtime/request/request.h"
#include "tests/runtime/support.h"
#include "tests/support/eventually.h"

namespace evn::test::queues_test {
namespace {

class TestRequest final : public Request {
 public:
  using Request::Request;

 private:
  void tell(const RequestPtr&) noexcept override {}
  bool calls_host() const noexcept override { return true; }
};

struct QueuesTest : RuntimeTest {
  void SetUp() override {
    RuntimeTest::SetUp();
    mock_settings().has_queues = true;
  }
  void TearDown() override {
    MockQueues::hold(false);
    RuntimeTest::TearDown();
  }

  static Config by_names() {
    Config c = two_mocks();
    c.rules = {rule({}, {"m*"}, "m", Policy::kRequire, 1), rule({}, {"n*"}, "n", Policy::kRequire, 2)};
    return c;
  }

  // A branch of the CPU, which stands first, one of m, one of n, and a sum on m.
  static OnnxWriter branches() {
    OnnxWriter w;
    w.add_input("x", kF32, {16});
    for (const char* device : {"c", "m", "n"}) {
      std::string at = "x";
      for (int i = 0; i < 3; ++i) {
        const std::string name = device + std::to_string(i);
        w.add_node(i == 1 ? "Exp" : "Softmax", {at}, {name + "_out"}, {}, name);
        at = name + "_out";
      }
    }
    w.add_node("Add", {"m2_out", "n2_out"}, {"both"}, {}, "m_add").add_node("Add", {"both", "c2_out"}, {"y"}, {}, "n_add");
    w.add_output("y", kF32, {16});
    return w;
  }

  static HostTensor input(int number) {
    HostTensor x({DType::kFloat32, {16}});
    for (std::size_t i = 0; i < 16; ++i)
      x.as<float>()[i] = 0.1f * static_cast<float>((i * 7 + static_cast<std::size_t>(number)) % 11);
    return x;
  }

  static RequestPtr submit(const std::shared_ptr<Session>& session, int number) {
    const TensorPtr x = to_tensor(session->runtime(), input(number));
    auto request = std::make_shared<TestRequest>(session, std::vector<RunValue>{{x, nullptr}}, std::vector<RunValue>(1),
                                                 RunRequest{}, nullptr);
    session->runtime()->dispatcher().submit(request, false, {});
    return request;
  }
};

TEST_F(QueuesTest, DevicesBeginBeforeTheHostDoesWhatTheyDoNotNeed) {
  const ModelPtr model = load(make_runtime(by_names()), branches());
  TestSession session(model, "");
  std::string order;
  for (const Node& node : session.graph().nodes) order += node.name + " ";
  EXPECT_EQ(order, "m0 m1 m2 n0 n1 n2 m_add c0 c1 c2 n_add ");
  EXPECT_EQ(session.compiled().pipeline_depth, 4);
  TestSession alone(load(make_runtime(), branches()), "");
  order.clear();
  for (const Node& node : alone.graph().nodes) order += node.name + " ";
  EXPECT_EQ(order.substr(0, 9), "c0 c1 c2 ");
  EXPECT_EQ(alone.compiled().pipeline_depth, 0);
  expect_close(run(session, {input(1)}), run(alone, {input(1)}));
}

TEST_F(QueuesTest, ADeviceThatNeedsTheHostComesAfterThoseThatDoNot) {
  OnnxWriter w;
  w.add_input("x", kF32, {16});
  w.add_node("Exp", {"x"}, {"a"}, {}, "c0").add_node("Softmax", {"a"}, {"b"}, {}, "m0");
  w.add_node("Softmax", {"x"}, {"d"}, {}, "n0").add_node("Neg", {"x"}, {"e"}, {}, "c1");
  w.add_output("b", kF32, {16}).add_output("d", kF32, {16}).add_output("e", kF32, {16});
  TestSession session(load(make_runtime(by_names()), w), "");
  std::string order;
  for (const Node& node : session.graph().nodes) order += node.name + " ";
  EXPECT_EQ(order, "n0 c0 m0 c1 ");
  TestSession alone(load(make_runtime(), w), "");
  expect_close(run(session, {input(2)}), run(alone, {input(2)}));
}

// Both devices have work at one time: neither waits for the other, nor for the host.
TEST_F(QueuesTest, BranchesAreUnderWayAtOnce) {
  const ModelPtr model = load(make_runtime(by_names()), branches());
  const auto session = make_session(model, "");
  const std::vector<HostTensor> want = run(*session, {input(3)});
  MockQueues::hold(true);
  const RequestPtr request = submit(session, 3);
  EXPECT_TRUE(eventually([] { return MockQueues::begun() >= 4; }));  // copies and, behind them, kernels of two devices
  MockQueues::hold(false);
  EXPECT_TRUE(request->wait(UINT64_MAX));
  request->take([&](std::span<const RunValue> out) {
    EXPECT_EQ(std::memcmp(out[0].tensor->buffer().address(), want[0].bytes.data(), 64), 0);
  });
}

// With one core, as many requests are under way as fill the devices, and no more.
TEST_F(QueuesTest, RequestsFillThePipeline) {
  mock_settings().kernel_ns = mock_settings().copy_ns = 50'000;
  OnnxWriter w;
  w.add_input("x", kF32, {16});
  w.add_node("Softmax", {"x"}, {"a"}, {}, "m0").add_node("Exp", {"a"}, {"b"}, {}, "n0").add_output("b", kF32, {16});
  const ModelPtr model = load(make_runtime(by_names(), 0, 1), w);
  const auto session = make_session(model, "");
  EXPECT_EQ(session->compiled().pipeline_depth, 3);
  std::vector<std::vector<HostTensor>> want;
  for (int i = 0; i < 12; ++i) want.push_back(run(*session, {input(i)}));
  MockQueues::hold(true);
  std::vector<RequestPtr> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(submit(session, i));
  EXPECT_TRUE(eventually([&] { return session->identity()->statistics.read().running == 3; }));
  EXPECT_EQ(session->identity()->requests.waiting(), 9u);
  MockQueues::hold(false);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(requests[static_cast<std::size_t>(i)]->wait(UINT64_MAX));
    requests[static_cast<std::size_t>(i)]->take([&](std::span<const RunValue> out) {
      EXPECT_EQ(std::memcmp(out[0].tensor->buffer().address(), want[static_cast<std::size_t>(i)][0].bytes.data(), 64), 0) << i;
    });
  }
}

// A session that is to compute one run at a time does.
TEST_F(QueuesTest, ConcurrencyBoundsThePipeline) {
  OnnxWriter w;
  w.add_input("x", kF32, {16});
  w.add_node("Softmax", {"x"}, {"a"}, {}, "m0").add_node("Exp", {"a"}, {"b"}, {}, "n0").add_output("b", kF32, {16});
  SessionRequest request("");
  request.concurrency = 1;
  const auto session = make_session(load(make_runtime(by_names(), 0, 1), w), request);
  run(*session, {input(0)});
  MockQueues::hold(true);
  const RequestPtr first = submit(session, 0), second = submit(session, 1);
  EXPECT_TRUE(eventually([&] { return session->identity()->statistics.read().running == 1; }));
  EXPECT_TRUE(eventually([] { return MockQueues::begun() > 0; }));
  EXPECT_EQ(session->identity()->requests.waiting(), 1u);
  MockQueues::hold(false);
  EXPECT_TRUE(first->wait(UINT64_MAX));
  EXPECT_TRUE(second->wait(UINT64_MAX));
}

}  // namespace
}  // namespace evn::test::queues_test
