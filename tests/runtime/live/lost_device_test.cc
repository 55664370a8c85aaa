// Devices that stop working: runs go on elsewhere where the configuration says so, and else fail.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "runtime/dispatch/dispatcher.h"
#include "runtime/live/deployment.h"
#include "runtime/request/request.h"
#include "runtime/state/state.h"
#include "tests/runtime/live/support.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

class LostDeviceTest : public RuntimeTest {
 protected:
  static Config config(bool moves = true) {
    Config c = two_mocks();
    c.moves_off_lost_devices = moves;
    c.default_devices = {"m", "n", "cpu"};
    return c;
  }

  static evn_status status_of(Session& session, std::string* message = nullptr) {
    try {
      run(session, {network_input()});
      return EVN_OK;
    } catch (const Error& e) {
      if (message != nullptr) *message = e.message;
      return e.status;
    }
  }
};

TEST_F(LostDeviceTest, RunsGoOnOnTheOtherDevices) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  const std::vector<HostTensor> want = run(*first, {network_input()});
  EXPECT_EQ(place_of(*first, "conv"), "m");
  mock_settings().lost = "m";
  expect_close(run(*first, {network_input()}), want);  // the very run that finds it out
  const std::shared_ptr<Session> second = live->current();
  EXPECT_NE(second, first);
  EXPECT_EQ(place_of(*second, "conv"), "n");
  EXPECT_EQ(reason_of(*second, "conv"),
            "the default device m is absent: it is lost: the mock device is gone; the first of the default devices that can");
  expect_close(run(*first, {network_input()}), want);  // who has the old placement still
  EXPECT_EQ(live->current(), second);
  EXPECT_EQ(second->identity()->statistics.read().all().outcomes[0], 3u);
  EXPECT_EQ(second->identity()->statistics.read().all().outcomes[1], 0u);
  mock_settings().lost = "n";
  expect_close(run(*second, {network_input()}), want);
  EXPECT_EQ(place_of(*live->current(), "conv"), "cpu");
  EXPECT_EQ(model->runtime->lost_devices(), 2u);
}

TEST_F(LostDeviceTest, SessionsThatAreMadeLaterDoWithoutIt) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  const auto live = make_live(model);
  mock_settings().lost = "m";
  ASSERT_EQ(status_of(*live->current()), EVN_OK);
  EXPECT_EQ(place_of(*make_live(model)->current(), "conv"), "n");
  EXPECT_EQ(place_of(TestSession(model, "m"), "conv"), "cpu");
}

TEST_F(LostDeviceTest, WithoutThePolicyEachRunFails) {
  const ModelPtr model = load(make_runtime(config(false)), small_network());
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  mock_settings().lost = "m";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(status_of(*live->current()), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(live->current(), first);
  mock_settings().lost = "";
  EXPECT_EQ(status_of(*live->current()), EVN_OK);  // the driver works again
}

TEST_F(LostDeviceTest, ACommandThatFailsOnADeviceThatAnswersIsAnErrorAlone) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  mock_settings().fail_call = 2;
  EXPECT_EQ(status_of(*first), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(live->current(), first);
  EXPECT_EQ(model->runtime->lost_devices(), 0u);
  EXPECT_EQ(status_of(*first), EVN_OK);
}

TEST_F(LostDeviceTest, ARuleThatRequiresItIsSkipped) {
  Config c = config();
  c.default_devices = {};
  c.rules = {rule({"Conv"}, {}, "m", Policy::kRequire, 3)};
  const ModelPtr model = load(make_runtime(c), small_network());
  const auto live = make_live(model);
  mock_settings().lost = "m";
  ASSERT_EQ(status_of(*live->current()), EVN_OK);
  EXPECT_EQ(place_of(*live->current(), "conv"), "cpu");
  EXPECT_NE(reason_of(*live->current(), "conv").find("it is lost: the mock device is gone"), std::string::npos);
}

TEST_F(LostDeviceTest, WhereNoOtherDeviceCanTheErrorSaysBoth) {
  Config c = config();
  c.default_devices = {};
  c.rules = {rule({"Softmax"}, {}, "cpu", Policy::kForbid, 5)};
  c.devices = {mock_device("m")};
  const ModelPtr model = load(make_runtime(c), small_network());
  const auto live = make_live(model);
  const std::shared_ptr<Session> first = live->current();
  mock_settings().lost = "m";
  std::string message;
  EXPECT_EQ(status_of(*live->current(), &message), EVN_ERROR_DEVICE_LOST);
  EXPECT_NE(message.find("the mock device is gone"), std::string::npos) << message;
  EXPECT_NE(message.find("the session cannot do without the device"), std::string::npos) << message;
  EXPECT_EQ(live->current(), first);
  EXPECT_EQ(status_of(*live->current(), &message), EVN_ERROR_DEVICE_LOST);
}

TEST_F(LostDeviceTest, ARunThatMayHaveOverwrittenItsInputsIsNotRepeated) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  const auto live = make_live(model);
  mock_settings().lost = "m";
  std::vector<RunValue> in = {{to_tensor(model->runtime, network_input()), nullptr}}, out(1);
  RunRequest request;
  request.overwrite_inputs = true;
  try {
    live->current()->run(in, out, request);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
    EXPECT_NE(std::string(e.message).find("not repeated elsewhere"), std::string::npos) << e.message;
  }
  ASSERT_EQ(status_of(*live->current()), EVN_OK);
}

TEST_F(LostDeviceTest, ASplitRunGoesOnWithTheDevicesThatAreLeft) {
  OnnxWriter w;
  w.add_input("x", kF32, {Dim("n"), 4});
  w.add_node("Softmax", {"x"}, {"y"}, {}, "softmax");
  w.add_output("y");
  Config c = two_mocks();
  c.moves_off_lost_devices = true;
  c.split_devices = {"m", "n"};
  const ModelPtr model = load(make_runtime(c), w);
  const auto live = make_live(model);
  HostTensor x({DType::kFloat32, {6, 4}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(i);
  const std::vector<HostTensor> want = run(*live->current(), {x});
  mock_settings().lost = "n";
  expect_close(run(*live->current(), {x}), want);
  EXPECT_EQ(explain(*live->current(), EVN_FORMAT_JSON).find(R"({"device":"n")"), std::string::npos);
}

// The only one who has the session then is the request.
TEST_F(LostDeviceTest, ARequestGoesOnElsewhereThoughTheSessionWasReleased) {
  struct TestRequest final : Request {
    using Request::Request;
    void tell(const RequestPtr&) noexcept override {}
    bool calls_host() const noexcept override { return true; }
  };
  const ModelPtr model = load(make_runtime(config()), small_network());
  auto live = make_live(model);
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  mock_settings().lost = "m";
  std::vector<RunValue> in = {{to_tensor(model->runtime, network_input()), nullptr}}, out(1);
  const auto request = std::make_shared<TestRequest>(live->current(), std::move(in), std::move(out), RunRequest{}, nullptr);
  const std::weak_ptr<LiveSession> released = live;
  live.reset();
  EXPECT_FALSE(released.expired());
  model->runtime->dispatcher().submit(request, false, {});
  ASSERT_TRUE(request->wait(UINT64_MAX));
  std::vector<HostTensor> got;
  request->take([&](std::span<const RunValue> outputs) {
    HostTensor h(outputs[0].tensor->desc());
    std::memcpy(h.bytes.data(), outputs[0].tensor->buffer().address(), outputs[0].tensor->size_bytes());
    got.push_back(std::move(h));
  });
  expect_close(got, want);
  EXPECT_EQ(model->runtime->lost_devices(), 1u);
  EXPECT_TRUE(eventually([&] { return released.expired(); }));  // with the end of the request
}

TEST_F(LostDeviceTest, AReconfigurationDoesWithoutItToo) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  const auto live = make_live(model);
  mock_settings().lost = "m";
  ASSERT_EQ(status_of(*live->current()), EVN_OK);
  Config c = config();
  c.rules = {rule({"Conv"}, {}, "m", Policy::kPrefer, 3)};
  model->runtime->live().reconfigure(model->runtime, c);
  EXPECT_EQ(place_of(*live->current(), "conv"), "n");
}

// A state of two tensors that lie on the device that is lost.
TEST_F(LostDeviceTest, AStateThatLayThereIsAnErrorUntilItIsReset) {
  OnnxWriter w;
  w.add_input("x", kF32, {2}).add_input("h", kF32, {2});
  w.add_node("Add", {"x", "h"}, {"next"}, {}, "add");
  w.add_output("next", kF32, {2});
  Config c = config();
  const ModelPtr model = load(make_runtime(c), w);
  const auto live = make_live(model);
  StateRequest request;
  request.pairs = {{"next", "h", 0}};
  const auto state = std::make_shared<State>(live->current(), request);
  HostTensor x({DType::kFloat32, {2}});
  x.as<float>()[0] = 1;
  x.as<float>()[1] = 2;
  const auto step = [&](const StatePtr& with) {
    std::vector<RunValue> in = {{to_tensor(model->runtime, x), nullptr}, {}}, out(1);
    RunRequest run;
    run.state = State::lease(with);
    live->current()->run(in, out, run);
  };
  const auto sums = [&](const StatePtr& of) {
    std::vector<unsigned char> bytes(of->saved_size());
    of->save(bytes);
    std::vector<float> values(2);
    std::memcpy(values.data(), bytes.data() + bytes.size() - 8, 8);
    return values;
  };
  step(state);
  step(state);
  EXPECT_EQ(sums(state), (std::vector<float>{2, 4}));
  std::vector<unsigned char> saved(state->saved_size());
  state->save(saved);
  const StatePtr second = state->fork();
  mock_settings().lost = "m";
  for (int i = 0; i < 2; ++i) {
    try {
      step(state);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
      EXPECT_NE(std::string(e.message).find("\"h\" lay on device m, which is lost"), std::string::npos) << e.message;
    }
  }
  EXPECT_EQ(place_of(*live->current(), "add"), "n");
  std::vector<unsigned char> damaged = saved;
  damaged.back() ^= 1;
  EXPECT_THROW(state->restore(damaged), Error);
  EXPECT_THROW(step(state), Error);  // as it was: what it held is lost, and not zeros
  state->reset();
  step(state);
  EXPECT_EQ(sums(state), (std::vector<float>{1, 2}));
  second->restore(saved);
  step(second);
  EXPECT_EQ(sums(second), (std::vector<float>{3, 6}));
}

// Makes the sessions that replace the first one when it is let.
class GatedRecipe final : public SessionRecipe {
 public:
  explicit GatedRecipe(const ModelPtr& model) : recipe_(model, "", std::nullopt, std::nullopt) {}
  std::shared_ptr<Session> make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings,
                                const std::shared_ptr<Session>& before) const override {
    if (before != nullptr) {
      makes.set_value();
      go.get_future().wait();
    }
    return recipe_.make(runtime, settings, before);
  }
  std::string name() const override { return recipe_.name(); }

  mutable std::promise<void> makes, go;

 private:
  GivenRecipe recipe_;
};

TEST_F(LostDeviceTest, ARunWaitsForAPlacementThatAnotherMakesUntilItsTimeIsOver) {
  const ModelPtr model = load(make_runtime(config()), small_network());
  auto owned = std::make_unique<GatedRecipe>(model);
  GatedRecipe& recipe = *owned;
  const auto live = LiveSession::create(model->runtime, std::move(owned));
  const std::shared_ptr<Session> first = live->current();
  const std::vector<HostTensor> want = run(*first, {network_input()});
  mock_settings().lost = "m";
  std::thread maker([&] { expect_close(run(*first, {network_input()}), want); });
  recipe.makes.get_future().wait();
  std::atomic<bool> cancelled{false};
  for (const evn_status expected : {EVN_ERROR_TIMEOUT, EVN_ERROR_CANCELLED}) {
    std::vector<RunValue> in = {{to_tensor(model->runtime, network_input()), nullptr}}, out(1);
    RunRequest request;
    if (expected == EVN_ERROR_TIMEOUT) request.stop.deadline_ns = deadline_clock_ns() + 50'000'000;
    else request.stop.requested = &cancelled;
    std::thread canceller([&] {
      if (expected != EVN_ERROR_CANCELLED) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      cancelled = true;
    });
    try {
      first->run(in, out, request);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, expected) << e.message;
    }
    canceller.join();
  }
  recipe.go.set_value();
  maker.join();
  EXPECT_EQ(place_of(*live->current(), "conv"), "n");
}

// A model that the configuration names, whose session is made anew after the loss of "m". The warm run of the new session finds out
// that "n" is lost too, on the thread that replaces the session. The model has no weights: before the warm run nothing is copied.
TEST_F(LostDeviceTest, AWarmRunThatLosesAnotherDeviceDoesNotWaitForItself) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("evener_lost_device_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  OnnxWriter w;
  w.add_input("x", kF32, {4}).add_node("Neg", {"x"}, {"y"}, {}, "neg").add_output("y", kF32, {4});
  std::ofstream(folder / "net.onnx", std::ios::binary) << w.serialize();
  Config c = config();
  c.folder = folder.string() + "/";
  ModelConfig named;
  named.name = "net";
  named.path = "net.onnx";
  named.warm.emplace_back();
  c.models = {named};
  const std::shared_ptr<Runtime> runtime = make_runtime(c);
  DeployedSessions deployed;
  const std::shared_ptr<LiveSession> live = deployed.get(runtime, "net");
  const std::shared_ptr<Session> first = live->current();
  ASSERT_EQ(place_of(*first, "neg"), "m");
  HostTensor x({DType::kFloat32, {4}});
  for (std::size_t i = 0; i < 4; ++i) x.as<float>()[i] = static_cast<float>(i) - 1.5f;
  const std::vector<HostTensor> want = run(*first, {x});
  mock_settings().lost = "m,n";
  std::packaged_task<evn_status()> task([first, x]() -> evn_status {
    try {
      run(*first, {x});
      return EVN_OK;
    } catch (const Error& e) {
      return e.status;
    }
  });
  std::future<evn_status> ended = task.get_future();
  std::thread runner(std::move(task));
  if (ended.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    runner.detach();
    FAIL() << "the run waits for itself";
  }
  runner.join();
  EXPECT_EQ(ended.get(), EVN_OK);
  expect_close(run(*first, {x}), want);
  EXPECT_EQ(place_of(*live->current(), "neg"), "cpu");
  EXPECT_EQ(runtime->lost_devices(), 2u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace evn::test
