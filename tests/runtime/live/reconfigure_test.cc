// Another configuration for a runtime with sessions: what follows it, and that a failure changes nothing.
#include <thread>

#include "base/fault.h"
#include "tests/runtime/live/support.h"

namespace evn::test {
namespace {

class ReconfigureTest : public RuntimeTest {
 protected:
  static Config conv_on(const std::string& device, Policy policy = Policy::kRequire) {
    Config c = two_mocks();
    c.source = "next.yaml";
    c.rules = {rule({"Conv"}, {}, device, policy, 7)};
    return c;
  }

  static void reconfigure(const std::shared_ptr<Runtime>& runtime, Config config) {
    runtime->live().reconfigure(runtime, std::move(config));
  }

  // Expects that it fails so, and that nothing has changed.
  static void expect_refused(const std::shared_ptr<LiveSession>& live, Config config, evn_status status,
                             const std::vector<const char*>& words) {
    const std::shared_ptr<Session> before = live->current();
    const std::shared_ptr<Runtime> runtime = before->runtime();
    const SettingsPtr settings = runtime->settings();
    const std::size_t devices = runtime->device_count();
    try {
      reconfigure(runtime, std::move(config));
      ADD_FAILURE() << "it was not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, status) << e.message;
      for (const char* word : words) EXPECT_NE(std::string(e.message).find(word), std::string::npos) << e.message;
    }
    EXPECT_EQ(runtime->settings(), settings);
    EXPECT_EQ(runtime->device_count(), devices);
    EXPECT_EQ(live->current(), before);
  }
};

TEST_F(ReconfigureTest, SessionsFollowTheNewRules) {
  const ModelPtr model = load(make_runtime(two_mocks()), small_network());
  const auto live = make_live(model), other = make_live(model);
  const std::shared_ptr<Session> before = live->current();
  const std::vector<HostTensor> want = run(*before, {network_input()});
  reconfigure(model->runtime, conv_on("m"));
  EXPECT_NE(live->current(), before);
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
  EXPECT_EQ(place_of(*other->current(), "conv"), "m");
  EXPECT_EQ(reason_of(*live->current(), "conv"), "rule at line 7 (require m)");
  expect_close(run(*live->current(), {network_input()}), want);
  expect_close(run(*before, {network_input()}), want);  // a run that began before
  reconfigure(model->runtime, {});
  EXPECT_EQ(place_of(*live->current(), "conv"), "cpu");
  EXPECT_EQ(place_of(TestSession(model, ""), "conv"), "cpu");
}

TEST_F(ReconfigureTest, StatisticsAndRequestsAreThoseOfTheSession) {
  const ModelPtr model = load(make_runtime(two_mocks()), small_network());
  const auto live = make_live(model);
  run(*live->current(), {network_input()});
  reconfigure(model->runtime, conv_on("m"));
  run(*live->current(), {network_input()});
  EXPECT_EQ(live->current()->identity()->statistics.read().all().outcomes[0], 2u);
  int sessions = 0;
  model->runtime->statistics().for_each([&](const RunStatistics&) { ++sessions; });
  EXPECT_EQ(sessions, 1);
}

TEST_F(ReconfigureTest, ATraceGoesOn) {
  const ModelPtr model = load(make_runtime(two_mocks()), small_network());
  const auto live = make_live(model);
  live->current()->tracing().start(live->current()->shared_graph(), 1000);
  run(*live->current(), {network_input()});
  reconfigure(model->runtime, conv_on("m"));
  run(*live->current(), {network_input()});
  live->current()->tracing().stop();
  EXPECT_NE(render_trace(*live->current(), EVN_FORMAT_JSON).find("\"m\""), std::string::npos);
}

TEST_F(ReconfigureTest, NewDevicesAreOpenedAndOldOnesStayUnused) {
  const ModelPtr model = load(make_runtime({}), small_network());
  const auto live = make_live(model);
  EXPECT_EQ(model->runtime->device_count(), 1u);
  reconfigure(model->runtime, conv_on("m"));
  EXPECT_EQ(model->runtime->device_count(), 3u);
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
  Config only_n;
  only_n.devices = {mock_device("n")};
  only_n.rules = {rule({"Conv"}, {}, "cpu", Policy::kForbid, 3)};
  reconfigure(model->runtime, only_n);
  EXPECT_EQ(model->runtime->device_count(), 3u);
  EXPECT_EQ(place_of(*live->current(), "conv"), "n");  // and not m, which comes first and which nothing names any more
  reconfigure(model->runtime, conv_on("m"));
  EXPECT_EQ(model->runtime->device_count(), 3u);  // the one that was open
}

TEST_F(ReconfigureTest, ARuleThatCannotBeKeptChangesNothing) {
  const ModelPtr model = load(make_runtime({}), small_network());
  const auto live = make_live(model);
  mock_settings().refused_ops = {"Conv"};
  expect_refused(live, conv_on("m"), EVN_ERROR_UNSUPPORTED, {"session of a model from a buffer", "line 7", "refused by the test"});
  mock_settings().refused_ops = {};
  reconfigure(model->runtime, conv_on("m"));  // with devices that are opened anew
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
}

TEST_F(ReconfigureTest, AbsentDevicesAreRefusedUnlessOptional) {
  const ModelPtr model = load(make_runtime({}), small_network());
  const auto live = make_live(model);
  Config c = conv_on("m");
  c.devices[1].type = "nothing";
  c.devices[1].line = 5;
  expect_refused(live, c, EVN_ERROR_CONFIG, {"next.yaml:5", "device n"});
}

TEST_F(ReconfigureTest, OpenDevicesKeepTheirOptions) {
  const ModelPtr model = load(make_runtime(two_mocks()), small_network());
  const auto live = make_live(model);
  Config c = two_mocks();
  c.source = "next.yaml";
  c.devices[0].settings.set("refuse", {.texts = {"Conv"}});
  c.devices[0].line = 4;
  expect_refused(live, c, EVN_ERROR_CONFIG, {"next.yaml:4", "device m", "refuse", "Conv"});
  Config cpus = two_mocks();
  DeviceConfig cpu;
  cpu.name = "cpu";
  cpu.type = "cpu";
  cpus.devices.push_back(cpu);
  cpus.devices.push_back(cpu);
  cpus.devices[3].line = 9;
  expect_refused(live, cpus, EVN_ERROR_CONFIG, {":9", "second device of type cpu"});
}

// A configuration between that does not name the device changes nothing of it.
TEST_F(ReconfigureTest, DevicesThatWereLeftOutHaveTheOptionsThatTheyAreOpenWith) {
  Config a = two_mocks();
  a.devices[0].settings.set("refuse", {.texts = {"Softmax"}});
  a.devices[0].memory_limit = 1 << 20;
  const std::shared_ptr<Runtime> runtime = make_runtime(a);
  const ModelPtr model = load(runtime, small_network());
  const auto live = make_live(model);
  Device& m = *runtime->device_at(1);
  Config only_n;
  only_n.devices = {mock_device("n")};
  reconfigure(runtime, only_n);
  reconfigure(runtime, a);
  EXPECT_EQ(m.pool().stats().limit, 1u << 20);
  reconfigure(runtime, only_n);
  Config other = two_mocks();
  other.source = "next.yaml";
  expect_refused(live, other, EVN_ERROR_CONFIG, {"device m", "refuse", "Softmax"});
  a.devices[0].memory_limit = UINT64_MAX;
  reconfigure(runtime, a);
  EXPECT_EQ(m.pool().stats().limit, m.traits().memory_bytes);
}

TEST_F(ReconfigureTest, LimitsOfMemoryChangeAndAreHeld) {
  const std::shared_ptr<Runtime> runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, small_network());
  const auto live = make_live(model);
  Device& m = *runtime->device_at(1);
  Config limited = conv_on("m");
  limited.devices[0].memory_limit = 1 << 20;
  reconfigure(runtime, limited);
  EXPECT_EQ(m.pool().stats().limit, 1u << 20);
  EXPECT_GT(m.pool().stats().current, 0u);  // the packed weights of conv
  limited.devices[0].memory_limit = 16;
  limited.devices[0].line = 3;
  expect_refused(live, limited, EVN_ERROR_OUT_OF_MEMORY, {"next.yaml:3", "device m holds", "16"});
  EXPECT_EQ(m.pool().stats().limit, 1u << 20);
  Config wide = conv_on("m");
  mock_settings().refused_ops = {"Conv"};
  expect_refused(live, wide, EVN_ERROR_UNSUPPORTED, {});  // the limit was raised for the attempt, and is back
  mock_settings().refused_ops = {};
  EXPECT_EQ(m.pool().stats().limit, 1u << 20);
  reconfigure(runtime, wide);
  EXPECT_EQ(m.pool().stats().limit, m.traits().memory_bytes);
}

TEST_F(ReconfigureTest, OptionsOfTheCallerStay) {
  const ModelPtr model = load(make_runtime(two_mocks()), small_network());
  const auto live = make_live(model, "n,cpu");
  EXPECT_EQ(place_of(*live->current(), "conv"), "n");
  reconfigure(model->runtime, conv_on("m"));
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
  EXPECT_EQ(place_of(*live->current(), "softmax"), "n");
}

TEST_F(ReconfigureTest, EachFailingAllocationChangesNothing) {
  const ModelPtr model = load(make_runtime({}), small_network());
  const auto live = make_live(model);
  const std::vector<HostTensor> want = run(*live->current(), {network_input()});
  int failed = 0;
  for (std::int64_t k = 1; k < 10'000; ++k) {
    const std::shared_ptr<Session> before = live->current();
    Config config = conv_on("m");
    fault_arm(Seam::kAlloc, k, false);
    bool threw = false;
    try {
      reconfigure(model->runtime, std::move(config));
    } catch (const std::bad_alloc&) {
      threw = true;
    } catch (const Error& e) {
      threw = true;
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    if (!threw) break;
    ++failed;
    ASSERT_EQ(live->current(), before) << k;
    ASSERT_EQ(model->runtime->device_count(), 1u) << k;
  }
  EXPECT_GT(failed, 20);
  EXPECT_EQ(place_of(*live->current(), "conv"), "m");
  expect_close(run(*live->current(), {network_input()}), want);
}

// Threads make sessions, run them and let go of them while the configuration changes: at the end all have the newest settings.
TEST_F(ReconfigureTest, SessionsThatAreMadeMeanwhileFollowToo) {
  const ModelPtr model = load(make_runtime({}), small_network());
  std::vector<std::shared_ptr<LiveSession>> kept(2);
  std::vector<HostTensor> want = run(*make_live(model)->current(), {network_input()});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        kept[t] = make_live(model);
        for (int j = 0; j < 3; ++j) expect_close(run(*kept[t]->current(), {network_input()}), want);
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    Config c;
    c.session.numerics = i % 2 == 0 ? Numerics::kStrict : Numerics::kFast;
    reconfigure(model->runtime, c);
  }
  for (std::thread& t : threads) t.join();
  for (const auto& live : kept) EXPECT_EQ(live->current()->compiled().settings, model->runtime->settings());
}

}  // namespace
}  // namespace evn::test
