// evn_runtime_reconfigure: what hosts see of it. Runs are held at a gate, so that nothing depends on how long anything takes.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "evener/request.h"
#include "tests/api/gate.h"
#include "tests/api/opencl_support.h"
#include "tests/api/state_fixture.h"

namespace evn::test {
namespace {

evn_status reconfigure(evn_runtime runtime, const std::string& text, evn_error* error) {
  evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
  o.config_text = text.c_str();
  o.config_size = text.size();
  *error = EVN_ERROR_INIT;
  return evn_runtime_reconfigure(runtime, &o, error);
}

std::string explained(evn_session session) {
  evn_error error = EVN_ERROR_INIT;
  std::size_t size = 0;
  EXPECT_OK(evn_session_explain(session, EVN_FORMAT_TEXT, nullptr, 0, &size, &error));
  std::string text(size + 64, ' ');  // sizes of memory in it may get more digits meanwhile
  EXPECT_OK(evn_session_explain(session, EVN_FORMAT_TEXT, text.data(), text.size(), &size, &error));
  text.resize(size);
  return text;
}

struct Reconfigure : ApiTest {
  std::vector<float> run() {
    const evn_tensor x = input();
    evn_tensor y = nullptr;
    EXPECT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
    void* data = nullptr;
    std::size_t size = 0;
    EXPECT_OK(evn_tensor_map(y, EVN_MAP_READ, &data, &size, &error));
    std::vector<float> out(static_cast<const float*>(data), static_cast<const float*>(data) + size / 4);
    EXPECT_OK(evn_tensor_unmap(y, &error));
    evn_tensor_release(x);
    evn_tensor_release(y);
    return out;
  }
};

TEST_F(Reconfigure, SessionsFollowAndHandlesStay) {
  const std::vector<float> want = run();
  ASSERT_EQ(reconfigure(runtime, "session: {numerics: strict}\nplacement: {default: cpu}\n", &error), EVN_OK) << error.message;
  EXPECT_NE(explained(session).find("the default device"), std::string::npos);
  const std::vector<float> got = run();
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  ASSERT_OK(evn_runtime_reconfigure(runtime, nullptr, &error));
  EXPECT_EQ(explained(session).find("the default device"), std::string::npos);
  EXPECT_EQ(run(), want);
}

TEST_F(Reconfigure, AFileIsReadAndABadOneChangesNothing) {
  // Without what the heap has: the first error of the parser leaves it tables of its own.
  const auto placed = [&] {
    const std::string text = explained(session);
    return text.substr(0, text.find("\nmemory:"));
  };
  const std::string path = testing::TempDir() + "/evener_reconfigure.yaml";
  std::ofstream(path) << "placement:\n  default: cpu\n";
  evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
  o.config_path = path.c_str();
  ASSERT_OK(evn_runtime_reconfigure(runtime, &o, &error));
  const std::string before = placed();
  std::ofstream(path) << "placement:\n  default: cpu\n  rules: [{match: {op: Conv}, device: nowhere}]\n";
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_CONFIG);
  EXPECT_NE(std::string(error.message).find("evener_reconfigure.yaml:3"), std::string::npos) << error.message;
  std::ofstream(path) << "placement:\n  rules: [{match: {op: Conv}, device: cpu, policy: forbid}]\n";
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(error.message).find("session of a model from a buffer: "), std::string::npos) << error.message;
  EXPECT_STREQ(error.node, "conv");
  std::remove(path.c_str());
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_IO);
  EXPECT_EQ(placed(), before);
}

TEST_F(Reconfigure, MisuseIsRefused) {
  evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
  o.reserved = 1;
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_INVALID_ARGUMENT);
  o = EVN_RECONFIGURE_OPTIONS_INIT;
  o.config_path = o.config_text = "both";
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_INVALID_ARGUMENT);
  o = EVN_RECONFIGURE_OPTIONS_INIT;
  o.struct_size = 3;
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_runtime_reconfigure(nullptr, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_runtime_reconfigure(reinterpret_cast<evn_runtime>(session), nullptr, &error), EVN_ERROR_INVALID_HANDLE);
}

// The first reconfiguration of a runtime moves its list of devices, so each round has a runtime of its own.
TEST(ReconfiguredTensors, AreMadeMeanwhile) {
  for (int round = 0; round < 100; ++round) {
    evn_error error = EVN_ERROR_INIT;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    evn_runtime runtime = nullptr;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    std::atomic<bool> begun{false}, stop{false};
    std::thread maker([&] {
      float number = 0, copy = 1;
      while (!stop) {
        evn_tensor from = nullptr, to = nullptr;
        EXPECT_EQ(evn_tensor_wrap(runtime, &number, sizeof number, EVN_DTYPE_FLOAT32, nullptr, 0, nullptr, nullptr, &from, nullptr),
                  EVN_OK);
        EXPECT_EQ(evn_tensor_wrap(runtime, &copy, sizeof copy, EVN_DTYPE_FLOAT32, nullptr, 0, nullptr, nullptr, &to, nullptr),
                  EVN_OK);
        EXPECT_EQ(evn_tensor_copy(from, to, nullptr), EVN_OK);
        EXPECT_EQ(evn_tensor_release(from), EVN_OK);
        EXPECT_EQ(evn_tensor_release(to), EVN_OK);
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    EXPECT_EQ(reconfigure(runtime, "placement: {default: cpu}\n", &error), EVN_OK) << error.message;
    stop = true;
    maker.join();
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
}

TEST_F(Reconfigure, ItMayBeCancelledAndIsLateThen) {
  const std::string before = explained(session);
  evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
  const std::string text = "placement: {default: cpu}\n";
  o.config_text = text.c_str();
  o.config_size = text.size();
  ASSERT_OK(evn_cancel_create(&o.cancel, &error));
  ASSERT_OK(evn_cancel_request(o.cancel));
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(o.cancel), EVN_OK);
  o.cancel = nullptr;
  o.deadline_ns = 1;
  EXPECT_EQ(evn_runtime_reconfigure(runtime, &o, &error), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(explained(session), before);
}

TEST_F(Reconfigure, TheNumberOfThreadsIsTheRuntimes) {
  EXPECT_EQ(reconfigure(runtime, "devices: {cpu: {type: cpu, threads: 7}}\n", &error), EVN_OK)
      << "the options of the runtime say how many: " << error.message;
  evn_runtime other = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &other, &error));
  EXPECT_EQ(reconfigure(other, "devices: {cpu: {type: cpu, threads: 7}}\n", &error), EVN_ERROR_CONFIG);
  EXPECT_NE(std::string(error.message).find("threads"), std::string::npos) << error.message;
  EXPECT_EQ(reconfigure(other, "devices: {cpu: {type: cpu, memory_limit: 64MiB}}\n", &error), EVN_OK) << error.message;
  evn_device device = nullptr;
  ASSERT_OK(evn_runtime_device_at(other, 0, &device, &error));
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(device, &stats, &error));
  EXPECT_EQ(stats.limit, 64u << 20);
  EXPECT_EQ(evn_device_release(device), EVN_OK);
  EXPECT_EQ(evn_runtime_release(other), EVN_OK);
}

// One run computes and one waits while the configuration changes; all three have the right outputs.
TEST_F(Reconfigure, RequestsGoOnMeanwhile) {
  Gate gate;
  ASSERT_OK(gate.register_at(runtime, &error));
  OnnxWriter w;
  w.add_input("x", kF32, {2}).import("mine", 1);
  w.add_node("Gate", {"x"}, {"g"}, {}, "gate", "mine").add_node("Abs", {"g"}, {"y"}, {}, "abs").add_output("y", kF32, {2});
  const std::string net = w.serialize();
  evn_model m = nullptr;
  evn_session s = nullptr;
  ASSERT_OK(evn_model_load_buffer(runtime, net.data(), net.size(), nullptr, &m, &error));
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.concurrency = 1;
  ASSERT_OK(evn_session_create(runtime, m, &options, &s, &error));
  gate.set(true);
  float values[3][2] = {{-1, 2}, {3, -4}, {-5, -6}};
  evn_tensor in[3] = {};
  evn_request requests[3] = {};
  const int64_t two = 2;
  const auto submit = [&](int i) {
    ASSERT_OK(evn_tensor_wrap(runtime, values[i], sizeof values[i], EVN_DTYPE_FLOAT32, &two, 1, nullptr, nullptr, &in[i], &error));
    ASSERT_OK(evn_session_submit(s, &in[i], 1, nullptr, 1, nullptr, nullptr, &requests[i], &error));
  };
  submit(0);
  gate.await(1);
  submit(1);
  ASSERT_EQ(reconfigure(runtime, "placement: {default: cpu}\nsession: {concurrency: 2}\n", &error), EVN_OK) << error.message;
  EXPECT_NE(explained(s).find("the default device"), std::string::npos);
  submit(2);
  gate.set(false);
  for (int i = 0; i < 3; ++i) {
    bool done = false;
    ASSERT_OK(evn_request_wait(requests[i], kForever, &done, &error));
    evn_tensor y = nullptr;
    ASSERT_OK(evn_request_take(requests[i], &y, 1, &error));
    void* data = nullptr;
    ASSERT_OK(evn_tensor_map(y, EVN_MAP_READ, &data, nullptr, &error));
    for (int j = 0; j < 2; ++j) EXPECT_EQ(static_cast<const float*>(data)[j], std::abs(values[i][j]));
    EXPECT_OK(evn_tensor_unmap(y, &error));
    evn_tensor_release(y);
    evn_tensor_release(in[i]);
    evn_request_release(requests[i]);
  }
  EXPECT_OK(evn_session_finish(s, kForever, &error));
  EXPECT_EQ(evn_model_release(m), EVN_OK);
}

TEST_F(Reconfigure, SoManyRequestsWaitAsTheNewConfigurationLets) {
  Gate gate;
  ASSERT_OK(gate.register_at(runtime, &error));
  OnnxWriter w;
  w.add_input("x", kF32, {2}).import("mine", 1).add_node("Gate", {"x"}, {"y"}, {}, "gate", "mine").add_output("y", kF32, {2});
  const std::string net = w.serialize();
  evn_model m = nullptr;
  evn_session s = nullptr;
  ASSERT_OK(evn_model_load_buffer(runtime, net.data(), net.size(), nullptr, &m, &error));
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.concurrency = 1;
  ASSERT_OK(evn_session_create(runtime, m, &options, &s, &error));
  gate.set(true);
  float values[2] = {1, 2};
  const int64_t two = 2;
  evn_tensor x = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, &two, 1, nullptr, nullptr, &x, &error));
  std::vector<evn_request> requests;
  const auto submit = [&] {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.flags = EVN_SUBMIT_FAIL_WHEN_FULL;
    evn_request r = nullptr;
    const evn_status status = evn_session_submit(s, &x, 1, nullptr, 1, nullptr, &o, &r, &error);
    if (status == EVN_OK) requests.push_back(r);
    return status;
  };
  EXPECT_EQ(submit(), EVN_OK);
  gate.await(1);
  ASSERT_EQ(reconfigure(runtime, "limits: {queued_requests: 1}\n", &error), EVN_OK) << error.message;
  EXPECT_EQ(submit(), EVN_OK) << error.message;
  EXPECT_EQ(submit(), EVN_ERROR_BUSY);
  ASSERT_EQ(reconfigure(runtime, "limits: {queued_requests: 2}\n", &error), EVN_OK) << error.message;
  EXPECT_EQ(submit(), EVN_OK) << error.message;
  gate.set(false);
  EXPECT_OK(evn_session_finish(s, kForever, &error));
  for (const evn_request r : requests) evn_request_release(r);
  evn_tensor_release(x);
  EXPECT_EQ(evn_model_release(m), EVN_OK);
}

// Sessions of one name, and the next placement of one, write files of their own.
TEST_F(Reconfigure, NoRecordedRunIsWrittenOver) {
  const std::string folder = testing::TempDir() + "/evener_recorded_" + std::to_string(getpid());
  const std::string recording = "recording: {folder: " + folder + "}\n";
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  ASSERT_EQ(reconfigure(runtime, recording, &error), EVN_OK) << error.message;
  evn_session first = session;
  (void)run();
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  (void)run();
  (void)run();
  EXPECT_EQ(count(), 3);
  ASSERT_EQ(reconfigure(runtime, recording + "placement: {default: cpu}\n", &error), EVN_OK) << error.message;
  (void)run();
  std::swap(first, session);
  (void)run();
  EXPECT_EQ(count(), 5);
  EXPECT_EQ(evn_session_release(first), EVN_OK);
  std::filesystem::remove_all(folder);
}

// A state goes from pages to tensors of an OpenCL device and back.
struct ReconfiguredState : state_test::StateTest {
  uint64_t bytes_of_states() {
    evn_session_memory_stats stats = EVN_SESSION_MEMORY_STATS_INIT;
    EXPECT_OK(evn_session_get_memory_stats(session, &stats, &error));
    return stats.state_bytes;
  }
};

TEST_F(ReconfiguredState, ItsBytesStayThoseOfTheSession) {
  state = create();
  ASSERT_EQ(run(state, step(5)), EVN_OK) << error.message;
  const uint64_t before = bytes_of_states();
  EXPECT_GT(before, 0u);
  ASSERT_EQ(reconfigure(runtime, "placement: {default: cpu}\n", &error), EVN_OK) << error.message;
  EXPECT_EQ(bytes_of_states(), before);
  ASSERT_EQ(run(state, step(1)), EVN_OK) << error.message;
  EXPECT_EQ(bytes_of_states(), before);
  EXPECT_EQ(evn_state_release(state), EVN_OK);
  state = nullptr;
  EXPECT_EQ(bytes_of_states(), 0u);
}

// Nothing but the pass that is then left out says on which axis the cache grows.
TEST_F(ReconfiguredState, AnAxisThatWasKnownStaysSo) {
  OnnxWriter w(17);
  w.add_input("past", kF32, {-1, -1, -1, 8}).add_input("k", kF32, {-1, -1, -1, 8});
  w.add_node("Concat", {"past", "k"}, {"present"}, {{"axis", 2}}, "append").add_output("present", kF32, {-1, -1, -1, 8});
  make(w.serialize());
  const evn_state_pair pair = {"present", "past", 16};
  ASSERT_OK(evn_state_create(session, &pair, 1, nullptr, &state, &error));
  const auto append = [&](float value) {
    const evn_tensor k = tensor({1, 1, 1, 8}, std::vector<float>(8, value));
    const evn_tensor in[2] = {nullptr, k};
    evn_tensor out = nullptr;
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.state = state;
    EXPECT_OK(evn_session_run(session, in, 2, &out, 1, &o, &error));
    evn_tensor_release(out);
    evn_tensor_release(k);
  };
  append(1);
  append(2);
  ASSERT_EQ(reconfigure(runtime, "passes: {disable: cache_append}\n", &error), EVN_OK) << error.message;
  append(3);
  EXPECT_NE(describe(state).find("3 of 16 positions"), std::string::npos) << describe(state);
  const std::vector<unsigned char> saved = save(state);
  EXPECT_OK(evn_state_reset(state, &error));
  EXPECT_OK(evn_state_restore(state, saved.data(), saved.size(), &error));
  EXPECT_NE(describe(state).find("3 of 16 positions"), std::string::npos) << describe(state);
}

TEST_F(ReconfiguredState, GoesOnWithWhatItHolds) {
  EVN_NEEDS_OPENCL();
  constexpr char kGpu[] = "devices: {gpu: {type: opencl}}\nplacement: {default: gpu}\n";
  state = create();
  Carried c;
  for (const int64_t rows : {5, 1, 130}) expect_same(state, c, step(rows));
  EXPECT_NE(describe(state).find("pages"), std::string::npos);
  ASSERT_EQ(reconfigure(runtime, kGpu, &error), EVN_OK) << error.message;
  const auto expect_close = [&](const Step& s) {
    std::pair<std::vector<float>, std::vector<float>> got;
    const auto want = by_hand(c, s);
    ASSERT_EQ(run(state, s, &got), EVN_OK) << error.message;
    ASSERT_EQ(got.first.size(), want.first.size());
    for (std::size_t i = 0; i < got.first.size(); ++i) ASSERT_NEAR(got.first[i], want.first[i], 1e-4);
    for (std::size_t i = 0; i < got.second.size(); ++i) ASSERT_NEAR(got.second[i], want.second[i], 1e-3);
  };
  for (const int64_t rows : {1, 3, 1}) expect_close(step(rows));
  EXPECT_EQ(describe(state).find("pages"), std::string::npos) << describe(state);
  EXPECT_NE(describe(state).find("141 of 700 positions"), std::string::npos) << describe(state);
  ASSERT_OK(evn_runtime_reconfigure(runtime, nullptr, &error));
  evn_state copy = nullptr;
  for (const int64_t rows : {1, 40, 1}) expect_close(step(rows));
  EXPECT_NE(describe(state).find("pages"), std::string::npos);
  ASSERT_OK(evn_state_fork(state, &copy, &error));
  EXPECT_EQ(evn_state_release(copy), EVN_OK);
  EXPECT_OK(evn_state_reset(state, &error));
  Carried again;
  expect_same(state, again, step(4));
}

struct OpenClReconfigure : OpenClApiTest {
  evn_model model = nullptr;
  evn_session session = nullptr;

  static constexpr const char* kCpu = "placement: {default: cpu}\n";
  static constexpr const char* kGpu = "devices: {gpu: {type: opencl}}\nplacement: {default: [gpu, cpu], on_device_lost: move}\n";

  void begin(const char* config) {
    make_runtime(config);
    const std::string bytes = small_network().serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  }
  void TearDown() override {
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    OpenClApiTest::TearDown();
  }
  evn_status run(std::vector<float>* y) {
    std::vector<float> values(2 * 3 * 64, 0.25f);
    const evn_tensor x = wrap(values, {2, 3, 8, 8});
    evn_tensor out = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_run(session, &x, 1, &out, 1, nullptr, &error);
    if (status == EVN_OK) {
      void* data = nullptr;
      std::size_t size = 0;
      EXPECT_OK(evn_tensor_map(out, EVN_MAP_READ, &data, &size, &error));
      y->assign(static_cast<const float*>(data), static_cast<const float*>(data) + size / 4);
      EXPECT_OK(evn_tensor_unmap(out, &error));
    }
    evn_tensor_release(out);
    evn_tensor_release(x);
    return status;
  }
  void expect_right(const std::vector<float>& want) {
    std::vector<float> got;
    ASSERT_EQ(run(&got), EVN_OK) << error.message;
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4);
  }
};

TEST_F(OpenClReconfigure, EachOpenClCallMayFail) {
  begin(kCpu);
  std::vector<float> want;
  ASSERT_EQ(run(&want), EVN_OK) << error.message;
  int failed = 0;
  for (std::int64_t k = 1;; k += 1 + k / 12) {
    fault_count_reset(Seam::kDevice);
    fault_arm(Seam::kDevice, k, false);
    const evn_status status = reconfigure(runtime, kGpu, &error);
    const bool reached = fault_count(Seam::kDevice) >= k;
    fault_arm(Seam::kDevice, 0, false);
    failed += status != EVN_OK;
    const bool on_gpu = explained(session).find("default devices") != std::string::npos;
    EXPECT_EQ(on_gpu, status == EVN_OK) << k << ": " << error.message;
    expect_right(want);
    ASSERT_EQ(reconfigure(runtime, kCpu, &error), EVN_OK) << error.message;
    // The next attempt has a model whose weights are not on the device, and compiles its kernels.
    if (!reached) break;
  }
  EXPECT_GT(failed, 0);
}

TEST_F(OpenClReconfigure, RunsMoveOffADeviceThatFailsFromACallOn) {
  begin(kGpu);
  std::vector<float> want, got;
  ASSERT_EQ(run(&want), EVN_OK) << error.message;
  int moved = 0;
  for (std::int64_t k = 1; k < 100'000; k += 1 + k / 3) {
    if (k > 1) {
      TearDown();
      session = nullptr;
      model = nullptr;
      runtime = nullptr;
      cpu = gpu = nullptr;
      begin(kGpu);
      ASSERT_EQ(run(&got), EVN_OK) << error.message;
    }
    fault_count_reset(Seam::kDevice);
    fault_arm(Seam::kDevice, k, true);
    const evn_status status = run(&got);
    const bool reached = fault_count(Seam::kDevice) >= k;
    ASSERT_EQ(status, EVN_OK) << k << ": " << error.message << " " << error.node;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4);
    moved += explained(session).find("it is lost") != std::string::npos;
    expect_right(want);
    fault_arm(Seam::kDevice, 0, false);
    if (!reached) break;
  }
  EXPECT_GT(moved, 2);
}

}  // namespace
}  // namespace evn::test
