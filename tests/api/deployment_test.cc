// Models by name (evn_runtime_session): one session for all who ask, one load, errors and what follows them, the order of releases,
// paths that are hostile. An operator within a model holds its warm run, so that nothing depends on how long anything takes.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fault.h"
#include "tests/api/gate.h"

namespace evn::test::deployment_test {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = R"(
models:
  net:
    path: net.onnx
    warm:
      - {x: [2, 3, 8, 8]}
  other: {path: models/other.onnx}
  held: {path: held.onnx, warm: [{}]}
  nested: {path: nested.onnx, warm: [{}]}
)";

struct DeploymentTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  fs::path folder = fs::temp_directory_path() / ("evener_deploy_" + std::to_string(getpid()));
  std::function<void()> in_held = [] {};
  std::function<void()> in_nested = [] {};
  std::atomic<int> loaded{0};
  std::atomic<int> created{0};
  std::atomic<int> absent{0};
  std::atomic<int> ended{0};

  void SetUp() override {
    fs::create_directories(folder / "models");
    write("net.onnx", small_network().serialize());
    write("models/other.onnx", small_network().serialize());
    write("held.onnx", calling("Held"));
    write("nested.onnx", calling("Nested"));
    open();
  }
  void TearDown() override {
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    fs::remove_all(folder);
  }

  static void on_log(void* user, const evn_log_record* record) {
    auto& self = *static_cast<DeploymentTest*>(user);
    if (std::string(record->event) == "model.loaded") ++self.loaded;
    if (std::string(record->event) == "session.created") ++self.created;
    if (std::string(record->event) == "device.absent") ++self.absent;
  }
  static void on_ended(void* user) { ++static_cast<DeploymentTest*>(user)->ended; }

  void write(const std::string& name, const std::string& bytes) const { std::ofstream(folder / name, std::ios::binary) << bytes; }
  // A model of one operator, which calls what the test has set.
  static std::string calling(const char* op) {
    OnnxWriter w(17);
    w.import("mine", 1);
    w.add_input("x", kF32, {4}).add_output("y", kF32);
    w.add_node(op, {"x"}, {"y"}, {}, "calls", "mine");
    return w.serialize();
  }
  static evn_status run(void* user, evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                        evn_error*) {
    std::memcpy(out[0].data, in[0].data, in[0].size_bytes);
    (*static_cast<std::function<void()>*>(user))();
    return EVN_OK;
  }

  void open(const std::string& config = kConfig) {
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    runtime = nullptr;
    write("c.yaml", config);
    const std::string path = (folder / "c.yaml").string();
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.config_path = path.c_str();
    options.cache_dir = "";
    options.thread_count = 2;
    options.log_level = EVN_LOG_INFO;
    options.log_sink = on_log;
    options.log_sink_user = this;
    options.ended = on_ended;
    options.ended_user = this;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    for (const auto& [name, calls] : {std::pair{"Held", &in_held}, std::pair{"Nested", &in_nested}}) {
      evn_operator op = EVN_OPERATOR_INIT;
      op.domain = "mine";
      op.name = name;
      op.min_inputs = op.max_inputs = 1;
      op.infer = infer_like_input;
      op.run = run;
      op.user = calls;
      ASSERT_OK(evn_runtime_register_operator(runtime, &op, &error));
    }
    loaded = created = absent = ended = 0;
  }

  evn_session session(const char* name) {
    evn_session s = nullptr;
    EXPECT_OK(evn_runtime_session(runtime, name, &s, &error));
    return s;
  }
  evn_status status_of(const char* name) {
    evn_error e = EVN_ERROR_INIT;
    evn_session s = nullptr;
    const evn_status status = evn_runtime_session(runtime, name, &s, &e);
    EXPECT_EQ(status == EVN_OK, s != nullptr);
    EXPECT_EQ(evn_session_release(s), EVN_OK);
    return status;
  }
  // Expects a failure whose text has `part` in it, and nothing given.
  void refuse(const char* name, evn_status status, const std::string& part) {
    error = EVN_ERROR_INIT;
    evn_session s = nullptr;
    EXPECT_EQ(evn_runtime_session(runtime, name, &s, &error), status) << error.message;
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
    EXPECT_EQ(s, nullptr);
  }
  std::vector<float> run_net(evn_session s) {
    std::vector<float> in(2 * 3 * 8 * 8, 0.5f), out(2 * 10);
    const int64_t dims[] = {2, 3, 8, 8}, out_dims[] = {2, 10};
    evn_tensor x = nullptr, y = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
    EXPECT_OK(evn_tensor_wrap(runtime, out.data(), out.size() * 4, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &y, &error));
    EXPECT_OK(evn_session_run(s, &x, 1, &y, 1, nullptr, &error));
    evn_tensor_release(x);
    evn_tensor_release(y);
    return out;
  }
  uint64_t weight_bytes() {
    evn_device cpu = nullptr;
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    EXPECT_OK(evn_device_get_memory_stats(cpu, &stats, &error));
    evn_device_release(cpu);
    return stats.by_class[EVN_MEMORY_WEIGHTS] + stats.by_class[EVN_MEMORY_PACKED];
  }
};

TEST_F(DeploymentTest, AllWhoAskShareOneSession) {
  const evn_session first = session("net");
  const uint64_t bytes = weight_bytes();
  EXPECT_GT(bytes, 0u);
  const evn_session second = session("net");
  EXPECT_NE(first, second);
  EXPECT_EQ(weight_bytes(), bytes);
  EXPECT_EQ(loaded, 1);
  EXPECT_EQ(created, 1);
  const std::vector<float> result = run_net(first);
  EXPECT_NE(result[0], result[1]);
  EXPECT_EQ(run_net(second), result);
  // What one handle records the other gives: the objects behind them are one.
  EXPECT_OK(evn_session_trace_start(first, 64, &error));
  EXPECT_EQ(evn_session_trace_start(second, 64, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_OK(evn_session_trace_stop(second, &error));
  EXPECT_EQ(evn_session_release(first), EVN_OK);
  EXPECT_EQ(evn_session_release(first), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(run_net(second), result);
  EXPECT_EQ(evn_session_release(second), EVN_OK);
  // It stays while nobody has it.
  EXPECT_EQ(weight_bytes(), bytes);
  EXPECT_EQ(evn_session_release(session("net")), EVN_OK);
  EXPECT_EQ(loaded, 1);
}

TEST_F(DeploymentTest, WarmRunsHavePlannedTheirShapes) {
  open("models: {warm: {path: net.onnx, warm: [{x: [2, 3, 8, 8]}]}, cold: {path: net.onnx}}");
  const auto planned = [&](const char* name) {
    const evn_session s = session(name);
    std::vector<char> text(1 << 16);
    size_t size = 0;
    EXPECT_OK(evn_session_explain(s, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error));
    evn_session_release(s);
    return std::string(text.data()).find("\"arena_bytes\":0,") == std::string::npos;
  };
  EXPECT_TRUE(planned("warm"));
  EXPECT_FALSE(planned("cold"));
}

TEST_F(DeploymentTest, UnknownNamesAndMissingArgumentsAreErrors) {
  refuse("nett", EVN_ERROR_INVALID_ARGUMENT,
         "there is no model \"nett\" in the configuration; there are: net, other, held, nested");
  refuse("", EVN_ERROR_INVALID_ARGUMENT, "there are: net");
  refuse("net.onnx", EVN_ERROR_INVALID_ARGUMENT, "there is no model \"net.onnx\"");
  refuse(std::string(100000, 'x').c_str(), EVN_ERROR_INVALID_ARGUMENT, "xxx...");
  refuse(nullptr, EVN_ERROR_INVALID_ARGUMENT, "name");
  EXPECT_EQ(evn_runtime_session(runtime, "net", nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_session s = nullptr;
  EXPECT_EQ(evn_runtime_session(nullptr, "net", &s, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(loaded, 0);
  open("version: 1");
  refuse("net", EVN_ERROR_INVALID_ARGUMENT, "the configuration names none");
}

TEST_F(DeploymentTest, ConcurrentFirstCallsLoadOnceAndHoldNoOtherName) {
  Gate gate;
  gate.set(true);
  in_held = [&] { gate.pass(); };
  constexpr int kThreads = 8;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { good += status_of("held") == EVN_OK; });
  gate.await(1);
  EXPECT_EQ(status_of("other"), EVN_OK);  // while the other one is being loaded
  EXPECT_EQ(status_of("nobody"), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(good, 0);
  gate.set(false);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, kThreads);
  EXPECT_EQ(gate.begun, 1);
  EXPECT_EQ(loaded, 2);
  EXPECT_EQ(created, 2);
}

TEST_F(DeploymentTest, AFailureLeavesTheNextCallToTryAgain) {
  fs::remove(folder / "net.onnx");
  refuse("net", EVN_ERROR_IO, "c.yaml:3: model \"net\": cannot open '" + (folder / "net.onnx").string());
  refuse("net", EVN_ERROR_IO, "No such file");
  write("net.onnx", std::string("\xff\xff\xff", 3));
  refuse("net", EVN_ERROR_INVALID_MODEL, "c.yaml:3: model \"net\": ");
  write("net.onnx", calling("Unheard"));
  refuse("net", EVN_ERROR_UNSUPPORTED, "c.yaml:3: model \"net\": ");
  EXPECT_STREQ(error.node, "calls");
  write("net.onnx", small_network().serialize());
  const evn_session s = session("net");
  EXPECT_EQ(run_net(s).size(), 20u);
  evn_session_release(s);
  EXPECT_EQ(loaded, 1);
}

TEST_F(DeploymentTest, ThoseThatWaitForAFailureTryThemselves) {
  Gate gate;
  gate.set(true);
  std::atomic<int> calls{0};
  in_held = [&] {
    if (calls++ == 0) gate.pass();
  };
  open("models: {held: {path: held.onnx, warm: [{}, {z: [1]}]}}");  // the second run fails
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { refused += status_of("held") == EVN_ERROR_CONFIG; });
  gate.await(1);
  gate.set(false);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(loaded, 4);  // each in turn
}

TEST_F(DeploymentTest, WarmRunsThatFailNameModelRunAndLine) {
  const std::string head = "models:\n  m:\n    path: net.onnx\n    warm:\n      - {x: [1, 3, 8, 8]}\n      - ";
  const auto fails = [&](const std::string& warm, evn_status status, const std::string& part) {
    open(head + warm);
    refuse("m", status, "c.yaml:6: model \"m\", warm run 1: " + part);
  };
  fails("{z: [1]}", EVN_ERROR_CONFIG, "there is no input \"z\"; there are: x");
  fails("{}", EVN_ERROR_CONFIG, "the dims of input \"x\" are not given, and the model leaves them open");
  fails("{x: [1, 3, 8]}", EVN_ERROR_CONFIG, "input 0 \"x\" has shape [1,3,8], the model wants");
  fails("{x: [1, 4, 8, 8]}", EVN_ERROR_CONFIG, "input 0 \"x\" has shape [1,4,8,8]");
  fails("{x: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}", EVN_ERROR_CONFIG, "");
  fails("{x: [1, 3, 8000000000, 8000000000]}", EVN_ERROR_LIMIT, "");
  open("models:\n  m: {path: net.onnx, disabled_passes: wibble}");
  refuse("m", EVN_ERROR_CONFIG, "c.yaml:2: model \"m\": ");
}

TEST_F(DeploymentTest, WhatASessionIsMadeWithIsInTheFile) {
  open("session: {numerics: fast}\nmodels:\n  m: {path: net.onnx, numerics: strict, cache: cache/}\n  plain: {path: net.onnx}");
  const auto explained = [&](const char* name) {
    const evn_session s = session(name);
    std::vector<char> text(1 << 16);
    size_t size = 0;
    EXPECT_OK(evn_session_explain(s, EVN_FORMAT_TEXT, text.data(), text.size(), &size, &error));
    evn_session_release(s);
    return std::string(text.data());
  };
  EXPECT_NE(explained("m").find("strict: the session's options"), std::string::npos);
  EXPECT_TRUE(fs::is_directory(folder / "cache"));
  EXPECT_FALSE(fs::is_empty(folder / "cache"));
  EXPECT_EQ(explained("plain").find("strict"), std::string::npos);
}

TEST_F(DeploymentTest, ADeviceThatIsOptionalAndAbsentLeavesTheModelToTheDefault) {
  open(
      "devices: {npu: {type: opencl, match: {vendor: \"No Such Vendor\"}, optional: true}}\n"
      "models:\n  m: {path: net.onnx, device: npu, warm: [{x: [2, 3, 8, 8]}]}");
  EXPECT_EQ(absent, 0);
  const evn_session s = session("m");
  EXPECT_EQ(absent, 1);
  EXPECT_EQ(run_net(s).size(), 20u);
  evn_session_release(s);
}

TEST_F(DeploymentTest, ModelsOfTheConfigurationAreListed) {
  std::vector<char> text(1 << 16);
  size_t size = 0;
  EXPECT_OK(evn_runtime_describe_devices(runtime, EVN_FORMAT_TEXT, text.data(), text.size(), &size, &error));
  EXPECT_NE(std::string(text.data()).find("\nmodel net: net.onnx\nmodel other: models/other.onnx\n"), std::string::npos);
  EXPECT_OK(evn_runtime_describe_devices(runtime, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error));
  EXPECT_NE(std::string(text.data()).find("\"models\":[{\"name\":\"net\",\"path\":\"net.onnx\""), std::string::npos);
}

TEST_F(DeploymentTest, SessionsOutliveTheHoldOnTheRuntimeAndThenItEnds) {
  const evn_session first = session("net");
  const evn_session other = session("other");
  const std::vector<float> result = run_net(first);
  evn_session_release(other);
  std::vector<float> in(2 * 3 * 8 * 8, 0.5f);
  const int64_t dims[] = {2, 3, 8, 8};
  evn_tensor x = nullptr, y = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  runtime = nullptr;
  EXPECT_OK(evn_session_run(first, &x, 1, &y, 1, nullptr, &error));
  evn_tensor_release(x);
  evn_tensor_release(y);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(evn_session_release(first), EVN_OK);
  EXPECT_EQ(ended, 1);
}

TEST_F(DeploymentTest, TheRuntimeEndsWithItsHandleWhereNobodyHasASession) {
  evn_session_release(session("net"));
  evn_session_release(session("other"));
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  runtime = nullptr;
  EXPECT_EQ(ended, 1);
}

TEST_F(DeploymentTest, ALoadThatTheReleaseOvertakesEndsNormally) {
  Gate gate;
  gate.set(true);
  in_held = [&] { gate.pass(); };
  evn_session s = nullptr;
  evn_error e = EVN_ERROR_INIT;
  evn_status status = EVN_ERROR_INTERNAL;
  std::thread loader([&] { status = evn_runtime_session(runtime, "held", &s, &e); });
  gate.await(1);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  gate.set(false);
  loader.join();
  runtime = nullptr;
  EXPECT_EQ(status, EVN_OK) << e.message;
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
  EXPECT_EQ(ended, 1);
}

TEST_F(DeploymentTest, AThreadDoesNotWaitForItself) {
  evn_status same = EVN_OK, another = EVN_ERROR_INTERNAL;
  in_held = [&] {
    same = status_of("held");
    another = status_of("net");
  };
  EXPECT_EQ(status_of("held"), EVN_OK);
  EXPECT_EQ(same, EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(another, EVN_OK);
  EXPECT_EQ(status_of("held"), EVN_OK);
}

TEST_F(DeploymentTest, TwoLoadsDoNotWaitForEachOther) {
  Gate both;
  both.set(true);
  std::atomic<int> refused{0}, given{0};
  const auto ask = [&](const char* name) {
    both.pass();
    const evn_status status = status_of(name);
    refused += status == EVN_ERROR_WRONG_STATE;
    given += status == EVN_OK;
  };
  in_held = [&] { ask("nested"); };
  in_nested = [&] { ask("held"); };
  std::atomic<int> good{0};
  std::thread a([&] { good += status_of("held") == EVN_OK; });
  std::thread b([&] { good += status_of("nested") == EVN_OK; });
  both.await(2);
  both.set(false);
  a.join();
  b.join();
  EXPECT_EQ(good, 2);
  EXPECT_EQ(refused, 1);  // the second to ask, whichever that is
  EXPECT_EQ(given, 1);
}

TEST_F(DeploymentTest, NothingIsFollowedOutOfTheFolder) {
  const fs::path outside = folder.string() + "_outside";
  fs::create_directories(outside);
  std::ofstream(outside / "net.onnx", std::ios::binary) << small_network().serialize();
  fs::create_symlink(outside / "net.onnx", folder / "file.onnx");
  fs::create_directory_symlink(outside, folder / "linked");
  fs::create_symlink("loop", folder / "loop");
  ASSERT_EQ(mkfifo((folder / "fifo.onnx").c_str(), 0600), 0);
  open(
      "models:\n  file: {path: file.onnx}\n  in_linked: {path: linked/net.onnx}\n  loop: {path: loop}\n  fifo: {path: fifo.onnx}\n"
      "  folder: {path: models}\n  below_file: {path: net.onnx/x}\n  cache: {path: net.onnx, cache: linked/c.evc}\n"
      "  cache_file: {path: net.onnx, cache: file.onnx}\n");
  refuse("file", EVN_ERROR_IO, "'file.onnx' goes through a link");
  refuse("in_linked", EVN_ERROR_IO, "'linked/net.onnx' goes through a link");
  refuse("loop", EVN_ERROR_IO, "goes through a link");
  refuse("fifo", EVN_ERROR_IO, "is not a regular file");
  refuse("folder", EVN_ERROR_IO, "is not a regular file");
  refuse("below_file", EVN_ERROR_IO, "cannot open");
  refuse("cache", EVN_ERROR_IO, "'linked/c.evc' goes through a link");
  refuse("cache_file", EVN_ERROR_IO, "'file.onnx' goes through a link");
  fs::remove_all(outside);
}

TEST_F(DeploymentTest, EveryRefusalOfTheSystemIsAStatusAndTheNextCallSucceeds) {
  for (const auto& [seam, status] : {std::pair{Seam::kAlloc, EVN_ERROR_OUT_OF_MEMORY}, std::pair{Seam::kIo, EVN_ERROR_IO}}) {
    int refused = 0;
    for (int k = 1;; ++k) {
      open();
      evn_session s = nullptr;
      error = EVN_ERROR_INIT;
      fault_arm(seam, k, false);
      const evn_status got = evn_runtime_session(runtime, "net", &s, &error);
      const bool hit = fault_count(seam) >= k;
      fault_arm(seam, 0, false);
      if (got != EVN_OK) {
        EXPECT_EQ(got, status) << k << ": " << error.message;
        EXPECT_EQ(s, nullptr);
        ++refused;
        s = session("net");
      }
      ASSERT_NE(s, nullptr) << k;
      EXPECT_EQ(evn_session_release(s), EVN_OK);
      if (!hit) break;
    }
    EXPECT_GT(refused, 3);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    runtime = nullptr;
    EXPECT_EQ(ended, 1);
  }
}

TEST_F(DeploymentTest, AForkedChildGetsWhatNobodyWasLoading) {
  evn_session_release(session("net"));
  Gate gate;
  gate.set(true);
  in_held = [&] { gate.pass(); };
  std::thread loader([&] { EXPECT_EQ(status_of("held"), EVN_OK); });
  gate.await(1);
  const pid_t child = fork();
  if (child == 0) {
    evn_error e = EVN_ERROR_INIT;
    evn_session s = nullptr;
    int wrong = 0;
    if (evn_runtime_session(runtime, "net", &s, &e) != EVN_OK) wrong |= 1;
    if (evn_runtime_session(runtime, "held", &s, &e) != EVN_ERROR_FORKED) wrong |= 2;
    if (evn_runtime_session(runtime, "other", &s, &e) != EVN_OK) wrong |= 4;
    _exit(wrong);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  gate.set(false);
  loader.join();
}

}  // namespace
}  // namespace evn::test::deployment_test
