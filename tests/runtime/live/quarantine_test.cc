// Devices that do not end work whose time is over: callers go free, later work is refused at once, and the device comes back.
#include <atomic>
#include <thread>

#include "runtime/cost/measure.h"
#include "runtime/split/row_split.h"
#include "tests/backends/mock/queues.h"
#include "tests/runtime/live/support.h"
#include "tests/support/eventually.h"
#include "tests/support/test_clock.h"

namespace evn::test {
namespace {

// A clock of deadlines that goes on when the test says.
class ManualClock {
 public:
  ManualClock() : before_(Access<DeadlineClock>::replace(&now)) { now_ = 1'000'000'000; }
  ~ManualClock() { Access<DeadlineClock>::replace(before_); }
  void advance(std::uint64_t ns) { now_ += ns; }

 private:
  static std::uint64_t now() { return now_; }
  static inline std::atomic<std::uint64_t> now_{0};
  std::uint64_t (*before_)();
};

struct Events {
  std::mutex mutex;
  std::vector<std::string> seen;  // "event device"

  int count(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex);
    return static_cast<int>(std::count(seen.begin(), seen.end(), what));
  }
  static void note(void* user, const evn_log_record* record) {
    auto& events = *static_cast<Events*>(user);
    const std::lock_guard<std::mutex> lock(events.mutex);
    events.seen.push_back(std::string(record->event) + " " + record->device);
  }
};

class QuarantineTest : public RuntimeTest {
 protected:
  static constexpr std::uint64_t kShort = 20'000'000;

  void SetUp() override {
    RuntimeTest::SetUp();
    mock_settings().has_queues = true;
  }
  void TearDown() override {
    MockQueues::hold(false);
    // What was left to devices keeps a runtime, which writes to events_ when it ends.
    EXPECT_TRUE(eventually([&] {
      return std::all_of(runtimes_.begin(), runtimes_.end(), [](const std::weak_ptr<Runtime>& r) { return r.expired(); });
    }));
    RuntimeTest::TearDown();
  }

  std::shared_ptr<Runtime> runtime_with(std::uint64_t grace_ns, bool moves = false) {
    static constexpr const Backend* kBackends[] = {&cpu_backend, &mock_backend};
    RuntimeOptions o;
    o.config = two_mocks();
    o.config.limits.overdue_time_ns = grace_ns;
    o.config.moves_off_lost_devices = moves;
    o.config.default_devices = {"m", "cpu"};
    o.thread_count = 2;
    o.backends = kBackends;
    o.log.sink = &Events::note;
    o.log.sink_user = &events_;
    o.log.level = EVN_LOG_WARNING;
    auto runtime = std::make_shared<Runtime>(std::move(o));
    runtimes_.push_back(runtime);
    return runtime;
  }

  // What a run comes to; its time is over after `timeout_ns` where that is not 0.
  static evn_status status_of(Session& session, std::uint64_t timeout_ns, std::string* message = nullptr) {
    try {
      std::vector<TensorPtr> out(1);
      run_tensors(session, {to_tensor(session.runtime(), network_input())}, out, timeout_ns);
      return EVN_OK;
    } catch (const Error& e) {
      if (message != nullptr) *message = e.message;
      return e.status;
    }
  }

  Events events_;
  std::vector<std::weak_ptr<Runtime>> runtimes_;
};

TEST_F(QuarantineTest, TheCallerGoesFreeAndLaterWorkIsRefusedAtOnce) {
  const ModelPtr model = load(runtime_with(1), small_network());
  const auto live = make_live(model);
  Runtime& runtime = *model->runtime;
  Device& device = *runtime.find_device("m");
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  auto there = std::make_shared<Tensor>(model->runtime, &device, TensorDesc{DType::kFloat32, {4}}, false);
  EXPECT_FALSE(device.is_out());
  EXPECT_EQ(device.why_out(), "");

  MockQueues::hold(true);  // nothing ends any more, until this test says so
  EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_TIMEOUT);
  EXPECT_TRUE(device.is_out());
  EXPECT_EQ(device.why_out(), "it is in quarantine: it has not ended work whose time was over");
  EXPECT_EQ(events_.count("device.quarantined m"), 1);
  std::string message;
  EXPECT_EQ(status_of(*live->current(), 0, &message), EVN_ERROR_DEVICE_LOST);  // without a time of its own
  EXPECT_NE(message.find("device m is in quarantine"), std::string::npos) << message;
  EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_DEVICE_LOST);
  const auto refused = [&](auto&& f) {
    try {
      f();
      return false;
    } catch (const Error& e) {
      return e.status == EVN_ERROR_DEVICE_LOST && std::string(e.message).find("in quarantine") != std::string::npos;
    }
  };
  const auto here = std::make_shared<Tensor>(model->runtime, &runtime.cpu(), TensorDesc{DType::kFloat32, {4}}, false);
  EXPECT_TRUE(refused([&] { copy_tensor(*here, *there); }));
  EXPECT_TRUE(refused([&] { copy_tensor(*there, *here); }));
  EXPECT_TRUE(refused([&] { copy_tensor_behind(here, there, {}); }));
  EXPECT_TRUE(refused([&] { copy_tensor_behind(there, here, {}); }));
  EXPECT_TRUE(refused([&] { there->map(EVN_MAP_READ); }));
  // Without the device there is no placement by a rule that requires it, and one by a list goes on.
  EXPECT_EQ(place_of(*make_live(model, "cpu")->current(), "conv"), "cpu");
  EXPECT_EQ(place_of(*make_live(model)->current(), "conv"), "cpu");
  EXPECT_NE(runtime.describe_devices(EVN_FORMAT_TEXT).find("device m: it is in quarantine"), std::string::npos);

  MockQueues::hold(false);
  ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
  ASSERT_TRUE(eventually([&] { return events_.count("device.returned m") == 1; }));
  expect_close(run(*live->current(), {network_input()}), want);
  copy_tensor(*here, *there);
  EXPECT_EQ(device.quarantine().count(), 1u);
  EXPECT_EQ(events_.count("device.quarantined m"), 1);
  EXPECT_EQ(place_of(*make_live(model)->current(), "conv"), "m");
}

TEST_F(QuarantineTest, UntilItsGraceIsOverTheDeviceIsWaitedFor) {
  const ModelPtr model = load(runtime_with(1'000'000'000), small_network());
  const auto live = make_live(model);
  Device& device = *model->runtime->find_device("m");
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  ManualClock clock;
  const auto cancel_one = [&] {
    std::atomic<bool> stop{false};
    MockQueues::hold(true);
    std::thread stopper([&] {
      EXPECT_TRUE(eventually([] { return MockQueues::begun() > 0; }));
      stop = true;
    });
    std::vector<RunValue> in = {{to_tensor(model->runtime, network_input()), nullptr}}, out(1);
    RunRequest request;
    request.stop.requested = &stop;
    try {
      live->current()->run(in, out, request);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_CANCELLED);
    }
    stopper.join();
  };
  cancel_one();
  clock.advance(999'999'999);
  EXPECT_FALSE(device.is_out());
  std::atomic<bool> done{false};
  std::thread waits([&] {
    expect_close(run(*live->current(), {network_input()}), want);
    done = true;
  });
  EXPECT_FALSE(done);
  MockQueues::hold(false);
  waits.join();
  EXPECT_EQ(device.quarantine().count(), 0u);

  cancel_one();
  std::thread refused([&] { EXPECT_EQ(status_of(*live->current(), 0), EVN_ERROR_DEVICE_LOST); });  // whenever it looks
  clock.advance(1'000'000'000);
  refused.join();
  EXPECT_TRUE(device.is_out());
  EXPECT_EQ(device.quarantine().count(), 1u);
  MockQueues::hold(false);
  ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
  EXPECT_EQ(status_of(*live->current(), 0), EVN_OK);
}

TEST_F(QuarantineTest, SessionsMoveAsOffADeviceThatIsLost) {
  const ModelPtr model = load(runtime_with(1, true), small_network());
  const auto live = make_live(model);
  Device& device = *model->runtime->find_device("m");
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  ASSERT_EQ(place_of(*live->current(), "conv"), "m");
  MockQueues::hold(true);
  EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_TIMEOUT);  // its time is over: it is not repeated
  expect_close(run(*live->current(), {network_input()}), want);
  EXPECT_EQ(place_of(*live->current(), "conv"), "cpu");
  EXPECT_NE(reason_of(*live->current(), "conv").find("the default device m is absent: it is in quarantine"), std::string::npos);
  EXPECT_EQ(events_.count("device.lost m"), 0);
  EXPECT_FALSE(device.is_lost());
  EXPECT_EQ(model->runtime->lost_devices(), 0u);
  MockQueues::hold(false);
  ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
  EXPECT_EQ(place_of(*make_live(model)->current(), "conv"), "m");  // those that are made from now on
}

TEST_F(QuarantineTest, ReleasingEverythingDoesNotWaitForTheDevice) {
  std::weak_ptr<Runtime> runtime;
  {
    ModelPtr model = load(runtime_with(1), small_network());
    runtime = model->runtime;
    auto live = make_live(model);
    run(*live->current(), {network_input()});
    MockQueues::hold(true);
    EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_TIMEOUT);
  }
  EXPECT_FALSE(runtime.expired());  // what the kernel uses is there still
  MockQueues::hold(false);
  EXPECT_TRUE(eventually([&] { return runtime.expired(); }));
  EXPECT_EQ(events_.count("device.quarantined m"), 0);  // nobody has asked
}

TEST_F(QuarantineTest, ACopyWhoseTimeIsOverCountsAsWell) {
  const auto runtime = runtime_with(1);
  Device& device = *runtime->find_device("m");
  const TensorDesc desc{DType::kFloat32, {4}};
  const auto here = std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false);
  const auto there = std::make_shared<Tensor>(runtime, &device, desc, false);
  MockQueues::hold(true);
  Cancel cancel;
  cancel.deadline_ns = deadline_clock_ns() + kShort;
  try {
    copy_tensor_or_stop(here, there, cancel);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
  EXPECT_TRUE(device.is_out());
  MockQueues::hold(false);
  ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
  copy_tensor(*here, *there);
}

TEST_F(QuarantineTest, AProbeWhoseTimeIsOverIsLeftToTheDevice) {
  const auto runtime = runtime_with(1);
  Device& device = *runtime->find_device("m");
  MockQueues::hold(true);
  StopCondition stop;
  stop.join_timeout(kShort);
  EXPECT_FALSE(runtime->examine(device, make_error(EVN_ERROR_DEVICE_LOST, "a command failed"), stop));
  EXPECT_TRUE(device.is_out()) << "the copies of the probe have not ended";
  MockQueues::hold(false);
  EXPECT_TRUE(device.settle({}));
  EXPECT_FALSE(device.is_out());
}

// Plans bring constants to the device: the first run with a shape may find that it does not take them.
TEST_F(QuarantineTest, AnUploadOfWeightsIsLeftAtTheDeadlineToo) {
  OnnxWriter w;
  w.add_input("x", kF32, {2, 4});
  w.add_initializer("c", {2, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  w.add_node("Add", {"x", "c"}, {"y"}, {}, "add");
  w.add_output("y");
  std::weak_ptr<Runtime> runtime;
  HostTensor x({DType::kFloat32, {2, 4}});
  for (std::size_t i = 0; i < 8; ++i) x.as<float>()[i] = static_cast<float>(i);
  {
    const ModelPtr model = load(runtime_with(1), w);
    runtime = model->runtime;
    const auto live = make_live(model);
    ASSERT_EQ(place_of(*live->current(), "add"), "m");
    ASSERT_EQ(mock_counters().uploads, 0);  // the constant is still to come
    MockQueues::hold(true);
    std::vector<TensorPtr> out(1);
    try {
      run_tensors(*live->current(), {to_tensor(model->runtime, x)}, out, kShort);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT) << e.message;
    }
    MockQueues::hold(false);
    Device& device = *model->runtime->find_device("m");
    ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
    const std::vector<HostTensor> y = run(*live->current(), {x});
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(y[0].as<float>()[i], static_cast<float>(2 * i + 1));
  }
  EXPECT_TRUE(eventually([&] { return runtime.expired(); }));
}

// Sessions bring packed constants there, one while the next is packed.
TEST_F(QuarantineTest, AnUploadOfPackedWeightsIsLeftAtTheDeadlineToo) {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 1, 4, 4}).add_output("y");
  w.add_initializer("a", {1, 1, 1, 1}, std::vector<float>{2}).add_initializer("b", {1, 1, 1, 1}, std::vector<float>{3});
  w.add_node("Conv", {"x", "a"}, {"p"}, {}, "first").add_node("Conv", {"p", "b"}, {"y"}, {}, "second");
  std::weak_ptr<Runtime> runtime;
  HostTensor x({DType::kFloat32, {1, 1, 4, 4}});
  for (std::size_t i = 0; i < 16; ++i) x.as<float>()[i] = static_cast<float>(i);
  {
    const ModelPtr model = load(runtime_with(1), w);
    runtime = model->runtime;
    Device& device = *model->runtime->find_device("m");
    MockQueues::hold(true);
    Cancel cancel;
    cancel.deadline_ns = deadline_clock_ns() + kShort;
    try {
      const CancelScope scope(cancel);
      TestSession session(model, "m");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT) << e.message;
    }
    EXPECT_TRUE(device.is_out());
    MockQueues::hold(false);
    ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
    TestSession session(model, "m");
    const std::vector<HostTensor> y = run(session, {x});
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(y[0].as<float>()[i], static_cast<float>(6 * i));
  }
  EXPECT_TRUE(eventually([&] { return runtime.expired(); }));
}

TEST_F(QuarantineTest, AReconfigurationChangesTheGrace) {
  const ModelPtr model = load(runtime_with(1), small_network());
  const auto live = make_live(model);
  Device& device = *model->runtime->find_device("m");
  Config c = two_mocks();
  c.default_devices = {"m", "cpu"};
  c.limits.overdue_time_ns = INT64_MAX;
  model->runtime->live().reconfigure(model->runtime, c);
  ASSERT_EQ(status_of(*live->current(), 0), EVN_OK);  // so that its plan is made
  MockQueues::hold(true);
  EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_TIMEOUT);
  EXPECT_FALSE(device.is_out());
  EXPECT_EQ(status_of(*live->current(), kShort), EVN_ERROR_TIMEOUT);  // it waits for the device, no longer than it may
  MockQueues::hold(false);
  EXPECT_EQ(status_of(*live->current(), 0), EVN_OK);
}

// A run with a token, whose commands do not end; asked to stop, it leaves them behind.
class Hanging {
 public:
  explicit Hanging(Session& session) {
    MockQueues::hold(true);
    thread_ = std::thread([&session, this] {
      std::vector<RunValue> in = {{to_tensor(session.runtime(), network_input()), nullptr}}, out(1);
      RunRequest request;
      request.stop.requested = &stop_;
      try {
        session.run(in, out, request);
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_EQ(e.status, EVN_ERROR_CANCELLED) << e.message;
      }
    });
    EXPECT_TRUE(eventually([] { return MockQueues::begun() > 0; }));
  }
  ~Hanging() {
    if (thread_.joinable()) leave();
  }
  void leave() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void some_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }  // so that what began comes to its wait

TEST_F(QuarantineTest, ARunThatWaitsAlreadyEndsWithIt) {
  std::weak_ptr<Runtime> runtime;
  {
    const ModelPtr model = load(runtime_with(1), small_network());
    runtime = model->runtime;
    const auto live = make_live(model);
    Device& device = *model->runtime->find_device("m");
    const std::vector<HostTensor> want = run(*live->current(), {network_input()});
    Hanging hanging(*live->current());
    std::string message;
    std::thread waits([&] { EXPECT_EQ(status_of(*live->current(), 0, &message), EVN_ERROR_DEVICE_LOST); });
    some_time();
    EXPECT_FALSE(device.is_out()) << "nobody's time is over";
    hanging.leave();
    waits.join();  // while nothing has ended
    EXPECT_NE(message.find("device m is in quarantine"), std::string::npos) << message;
    MockQueues::hold(false);
    ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
    expect_close(run(*live->current(), {network_input()}), want);
  }
  EXPECT_TRUE(eventually([&] { return runtime.expired(); }));
}

TEST_F(QuarantineTest, ARunThatWaitsAlreadyMoves) {
  const ModelPtr model = load(runtime_with(1, true), small_network());
  const auto live = make_live(model);
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  const std::shared_ptr<Session> before = live->current();
  Hanging hanging(*before);
  std::thread waits([&] { expect_close(run(*before, {network_input()}), want); });
  some_time();
  hanging.leave();
  waits.join();
  EXPECT_EQ(place_of(*live->current(), "conv"), "cpu");
  MockQueues::hold(false);
}

// What devices write to when the run has returned must not be the caller's.
TEST_F(QuarantineTest, ARunThatWritesTheCallersMemoryWaitsOn) {
  const ModelPtr model = load(runtime_with(1), small_network());
  const auto live = make_live(model);
  Device& device = *model->runtime->find_device("m");
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  Hanging hanging(*live->current());
  std::atomic<bool> done{false};
  std::thread waits([&] {
    std::vector<TensorPtr> out = {
        std::make_shared<Tensor>(model->runtime, &model->runtime->cpu(), TensorDesc(want[0].desc), false)};
    run_tensors(*live->current(), {to_tensor(model->runtime, network_input())}, out);
    HostTensor got(want[0].desc);
    std::memcpy(got.bytes.data(), out[0]->buffer().address(), out[0]->size_bytes());
    expect_close({got}, want);
    done = true;
  });
  some_time();
  hanging.leave();
  ASSERT_TRUE(eventually([&] { return device.is_out(); }));
  EXPECT_FALSE(done);
  MockQueues::hold(false);
  waits.join();
  EXPECT_TRUE(done);
}

// Copies of memory that may go have ended, or the run waits on.
TEST_F(QuarantineTest, ARunThatBorrowsItsInputsWaitsForTheirCopies) {
  const ModelPtr model = load(runtime_with(1), small_network());
  const auto live = make_live(model);
  Device& device = *model->runtime->find_device("m");
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  HostTensor x = network_input();
  Hanging hanging(*live->current());  // copies of inputs hang too
  std::atomic<bool> done{false};
  std::thread waits([&] {
    const auto borrowed = std::make_shared<Tensor>(model->runtime, x.bytes.data(), x.desc);
    std::vector<TensorPtr> out(1);
    run_tensors(*live->current(), {borrowed}, out);
    done = true;
  });
  some_time();
  hanging.leave();
  ASSERT_TRUE(eventually([&] { return device.is_out(); }));
  EXPECT_FALSE(done);
  MockQueues::hold(false);
  waits.join();
  EXPECT_TRUE(done);
}

TEST_F(QuarantineTest, MeasuringCopiesEndsWithIt) {
  const ModelPtr model = load(runtime_with(1), small_network());
  const auto live = make_live(model);
  Runtime& runtime = *model->runtime;
  Device& device = *runtime.find_device("m");
  run(*live->current(), {network_input()});
  Hanging hanging(*live->current());
  std::thread measures([&] {
    try {
      measure_copies(device, runtime.costs());
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
      EXPECT_NE(std::string(e.message).find("device m is in quarantine"), std::string::npos) << e.message;
    }
  });
  some_time();
  hanging.leave();
  measures.join();
  EXPECT_FALSE(runtime.costs().with(device, [](const CostTable& t) { return t.has_copies; }));
  MockQueues::hold(false);
  ASSERT_TRUE(eventually([&] { return !device.is_out(); }));
  measure_copies(device, runtime.costs());
  EXPECT_TRUE(runtime.costs().with(device, [](const CostTable& t) { return t.has_copies; }));
}

}  // namespace
}  // namespace evn::test
