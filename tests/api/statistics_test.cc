// evn_session_get_statistics and evn_runtime_get_statistics: what is counted after known runs, while one is held by an operator of
// the test's, and while threads run; names that try to break the texts.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/fault.h"
#include "base/os/os.h"
#include "evener/request.h"
#include "tests/api/gate.h"
#include "tests/support/eventually.h"

namespace evn::test::statistics_test {
namespace {

// The number behind "key": from the first `part` on, where that is given.
std::int64_t number(const std::string& json, const std::string& key, const std::string& part = "") {
  std::size_t at = json.find(part);
  if (at == std::string::npos) return -1;
  at = json.find("\"" + key + "\":", at);
  return at == std::string::npos ? -1 : std::stoll(json.substr(at + key.size() + 3));
}

struct StatisticsTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  Gate gate;

  void SetUp() override {
    static const char kYaml[] = "limits: {queued_requests: 3}\n";
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    options.config_text = kYaml;
    options.config_size = sizeof kYaml - 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    gate.fails_below_zero = true;
    ASSERT_OK(gate.register_at(runtime, &error));
    OnnxWriter w(17);
    w.import("mine", 1);
    w.add_input("x", kF32, {4}).add_output("y", kF32);
    w.add_node("Gate", {"x"}, {"a"}, {}, "gate", "mine").add_node("Neg", {"a"}, {"y"});
    const std::string bytes = w.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    session = make("under test");
  }
  void TearDown() override {
    gate.set(false);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  evn_session make(const char* name) {
    evn_session made = nullptr;
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.name = name;
    EXPECT_OK(evn_session_create(runtime, model, &options, &made, &error));
    return made;
  }
  evn_tensor tensor(float first, int64_t count = 4) {
    static thread_local float values[4];
    values[0] = first;
    evn_error e = EVN_ERROR_INIT;
    evn_tensor wrapped = nullptr, t = nullptr;
    evn_device cpu = nullptr;
    EXPECT_EQ(evn_runtime_device_at(runtime, 0, &cpu, &e), EVN_OK);
    EXPECT_EQ(evn_tensor_wrap(runtime, values, 16, EVN_DTYPE_FLOAT32, &count, 1, nullptr, nullptr, &wrapped, &e), EVN_OK);
    EXPECT_EQ(evn_tensor_copy_to(wrapped, cpu, &t, &e), EVN_OK);
    evn_tensor_release(wrapped);
    evn_device_release(cpu);
    return t;
  }
  evn_status run(float first, int32_t priority = 0, uint64_t deadline_ns = 0, evn_cancel cancel = nullptr) {
    const evn_tensor x = tensor(first);
    evn_tensor y = nullptr;
    evn_error e = EVN_ERROR_INIT;
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.priority = priority;
    o.deadline_ns = deadline_ns;
    o.cancel = cancel;
    const evn_status status = evn_session_run(session, &x, 1, &y, 1, &o, &e);
    evn_tensor_release(x);
    evn_tensor_release(y);
    return status;
  }
  evn_status submit(evn_request* request, int32_t priority = 0, evn_cancel cancel = nullptr, bool fail_when_full = true) {
    const evn_tensor x = tensor(1);
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.priority = priority;
    o.cancel = cancel;
    evn_submit_options s = EVN_SUBMIT_OPTIONS_INIT;
    s.flags = fail_when_full ? EVN_SUBMIT_FAIL_WHEN_FULL : 0;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_submit(session, &x, 1, nullptr, 1, &o, &s, request, &error);
    evn_tensor_release(x);
    return status;
  }
  void end(evn_request request) {
    bool done = false;
    EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
    EXPECT_TRUE(done);
    EXPECT_EQ(evn_request_release(request), EVN_OK);
  }
  template <typename Handle>
  std::string text(evn_status (*get)(Handle, evn_format, char*, size_t, size_t*, evn_error*), Handle handle, evn_format format) {
    evn_error e = EVN_ERROR_INIT;
    std::string buffer(1 << 20, '\0');
    size_t size = 0;
    EXPECT_EQ(get(handle, format, buffer.data(), buffer.size(), &size, &e), EVN_OK) << e.message;
    buffer.resize(size > 0 ? size - 1 : 0);
    return buffer;
  }
  std::string json() { return text(evn_session_get_statistics, session, EVN_FORMAT_JSON); }
  std::string prometheus() { return text(evn_runtime_get_statistics, runtime, EVN_FORMAT_PROMETHEUS); }
};

TEST_F(StatisticsTest, ANewSessionHasNothingToSay) {
  const std::string j = json();
  EXPECT_EQ(
      j.rfind("{\"name\":\"under test\",\"queued\":0,\"running\":0,\"batches\":[],\"priorities\":[],\"all\":{\"completed\":0,"
              "\"failed\":0,\"cancelled\":0,\"late\":0,\"rejected\":0,\"wait_ns\":{\"count\":0,\"mean\":0,\"p50\":0,\"p90\":0,"
              "\"p99\":0,\"p999\":0,\"max\":0},\"run_ns\":{",
              0),
      0u)
      << j;
}

TEST_F(StatisticsTest, CountsHowRunsEnd) {
  EXPECT_EQ(run(1), EVN_OK);
  EXPECT_EQ(run(2), EVN_OK);
  EXPECT_NE(run(-1), EVN_OK);
  EXPECT_EQ(run(1, 3, 1), EVN_ERROR_TIMEOUT);  // a deadline long past
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  EXPECT_EQ(run(1, 0, 0, cancel), EVN_OK);
  EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  EXPECT_EQ(run(1, -7, 0, cancel), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
  const std::string j = json();
  const auto of = [&](const char* priority, const char* key) {
    return number(j, key, "\"priority\":" + std::string(priority) + ",");
  };
  EXPECT_EQ(of("0", "completed"), 3);
  EXPECT_EQ(of("0", "failed"), 1);
  EXPECT_EQ(of("0", "late"), 0);
  EXPECT_EQ(of("3", "late"), 1);
  EXPECT_EQ(of("3", "completed"), 0);
  EXPECT_EQ(of("-7", "cancelled"), 1);
  EXPECT_LT(j.find("\"priority\":-7,"), j.find("\"priority\":0,"));
  EXPECT_LT(j.find("\"priority\":0,"), j.find("\"priority\":3,"));
  const std::string all = j.substr(j.find("\"all\":"));
  EXPECT_EQ(number(all, "completed"), 3);
  EXPECT_EQ(number(all, "cancelled"), 1);
  EXPECT_EQ(number(all, "count", "\"run_ns\""), 3);
  EXPECT_GT(number(all, "max", "\"run_ns\""), 0);
  EXPECT_GE(number(all, "max", "\"run_ns\""), number(all, "p50", "\"run_ns\""));
  EXPECT_EQ(number(j, "queued"), 0);
  EXPECT_EQ(number(j, "running"), 0);
}

TEST_F(StatisticsTest, RequestsAreQueuedThenRunningThenCounted) {
  gate.set(true);
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_request held = nullptr, waiting[3] = {}, refused = nullptr;
  ASSERT_OK(submit(&held));
  gate.await_waiting(1);
  ASSERT_OK(submit(&waiting[0]));
  ASSERT_OK(submit(&waiting[1], -2));
  ASSERT_OK(submit(&waiting[2], -1, cancel));
  EXPECT_EQ(submit(&refused, -3), EVN_ERROR_BUSY);
  std::string j = json();
  EXPECT_EQ(number(j, "queued"), 3);
  EXPECT_EQ(number(j, "running"), 1);
  EXPECT_EQ(number(j, "rejected", "\"priority\":-3,"), 1);
  EXPECT_NE(prometheus().find("evener_requests_queued{session=\"under test\"} 3\n"), std::string::npos);
  EXPECT_NE(prometheus().find("evener_requests_running{session=\"under test\"} 1\n"), std::string::npos);

  evn_cancel_request(cancel);
  EXPECT_TRUE(eventually([&] { return number(json(), "queued") == 2; }));
  end(waiting[2]);
  EXPECT_EQ(number(json(), "cancelled", "\"priority\":-1,"), 1);
  EXPECT_EQ(number(json(), "count", "\"priority\":-1,"), 0) << "it never came to compute";
  gate.set(false);
  for (evn_request r : {held, waiting[0], waiting[1]}) end(r);
  evn_cancel_release(cancel);
  j = json();
  EXPECT_EQ(number(j, "queued"), 0);
  EXPECT_EQ(number(j, "running"), 0);
  EXPECT_EQ(number(j, "completed", "\"priority\":0,"), 2);
  EXPECT_EQ(number(j, "completed", "\"priority\":-2,"), 1);
  EXPECT_GT(number(j, "max", "\"priority\":-2,"), 0) << "it waited for those that were held";
}

TEST_F(StatisticsTest, WhoWaitsForRoomInVainIsLateOrCancelled) {
  gate.set(true);
  evn_request held[4] = {}, none = nullptr;
  ASSERT_OK(submit(&held[0]));
  gate.await_waiting(1);
  for (int i = 1; i < 4; ++i) ASSERT_OK(submit(&held[i]));
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_cancel_request(cancel);
  EXPECT_EQ(submit(&none, 5, cancel, false), EVN_ERROR_CANCELLED);
  evn_cancel_release(cancel);
  EXPECT_EQ(number(json(), "cancelled", "\"priority\":5,"), 1);
  gate.set(false);
  for (evn_request r : held) end(r);
}

TEST_F(StatisticsTest, ASynchronousRunThatWaitsForACoreIsQueued) {
  evn_session_release(session);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.concurrency = 1;
  ASSERT_OK(evn_session_create(runtime, model, &options, &session, &error));
  gate.set(true);
  std::thread first([&] { EXPECT_EQ(run(1), EVN_OK); });
  gate.await_waiting(1);
  std::thread second([&] { EXPECT_EQ(run(1), EVN_OK); });
  EXPECT_TRUE(eventually([&] { return number(json(), "queued") == 1; }));
  EXPECT_EQ(number(json(), "running"), 1);
  EXPECT_EQ(json().rfind("{\"name\":\"model\",", 0), 0u) << "of a buffer";
  gate.set(false);
  first.join();
  second.join();
  EXPECT_EQ(number(json(), "completed"), 2);
  EXPECT_GT(number(json(), "max", "\"wait_ns\""), 0);
}

TEST_F(StatisticsTest, TheRuntimeHasAllSessionsAndDevices) {
  const evn_session second = make("under test"), third = make("quote \" backslash \\ line\nend \xff");
  EXPECT_EQ(run(1), EVN_OK);
  const std::string j = text(evn_runtime_get_statistics, runtime, EVN_FORMAT_JSON);
  EXPECT_EQ(j.rfind("{\"sessions\":[{\"name\":\"under test\",", 0), 0u) << j;
  EXPECT_NE(j.find("{\"name\":\"quote \\\" backslash \\\\ line\\u000aend \xef\xbf\xbd\","), std::string::npos) << j;
  EXPECT_NE(j.find("\"devices\":[{\"name\":\"cpu\",\"condition\":\"\",\"quarantines\":0,\"current_bytes\":"), std::string::npos)
      << j;
  EXPECT_NE(j.find("\"limit_bytes\":null}"), std::string::npos) << j;
  const std::string p = prometheus();
  EXPECT_NE(p.find("evener_requests_total{session=\"under test\",priority=\"0\",outcome=\"completed\"} 1\n"), std::string::npos)
      << p;
  EXPECT_NE(p.find("evener_requests_queued{session=\"under test#2\"} 0\n"), std::string::npos);
  EXPECT_NE(p.find("evener_requests_queued{session=\"quote \\\" backslash \\\\ line\\nend ?\"} 0\n"), std::string::npos);
  EXPECT_NE(p.find("evener_memory_bytes{device=\"cpu\",kind=\"limit\"} +Inf\n"), std::string::npos);
  const std::string t = text(evn_runtime_get_statistics, runtime, EVN_FORMAT_TEXT);
  EXPECT_NE(t.find("session under test#2: 0 queued, 0 running\n"), std::string::npos) << t;
  EXPECT_NE(t.find("line?end ?: 0 queued"), std::string::npos) << t;
  EXPECT_NE(t.find("memory of cpu: "), std::string::npos) << t;
  EXPECT_EQ(evn_session_release(second), EVN_OK);
  EXPECT_EQ(evn_session_release(third), EVN_OK);
  EXPECT_EQ(prometheus().find("under test#2"), std::string::npos);
}

TEST_F(StatisticsTest, WrongArgumentsAreRefused) {
  char buffer[16];
  size_t size = 0;
  for (const int format : {-1, int{EVN_FORMAT_DOT}, int{EVN_FORMAT_SVG}, int{EVN_FORMAT_PROMETHEUS}, 5}) {
    EXPECT_EQ(evn_session_get_statistics(session, format, buffer, sizeof buffer, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(evn_runtime_get_statistics(runtime, EVN_FORMAT_SVG, buffer, sizeof buffer, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_session_get_statistics(nullptr, EVN_FORMAT_TEXT, buffer, sizeof buffer, &size, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_runtime_get_statistics(nullptr, EVN_FORMAT_TEXT, buffer, sizeof buffer, &size, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_session_get_statistics(session, EVN_FORMAT_TEXT, buffer, sizeof buffer, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_GT(error.bytes_requested, sizeof buffer);
}

TEST_F(StatisticsTest, EachFailingAllocationIsAStatusOrATimeThatIsNotKept) {
  EXPECT_EQ(run(1), EVN_OK);
  for (const int format : {int{EVN_FORMAT_TEXT}, int{EVN_FORMAT_JSON}, int{EVN_FORMAT_PROMETHEUS}}) {
    std::string buffer(1 << 20, '\0');
    for (int k = 1;; ++k) {
      size_t size = 0;
      fault_arm(Seam::kAlloc, k, false);
      const evn_status status = evn_runtime_get_statistics(runtime, format, buffer.data(), buffer.size(), &size, &error);
      fault_arm(Seam::kAlloc, 0, false);
      if (status == EVN_OK) break;
      ASSERT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
      ASSERT_LT(k, 5000);
    }
  }
  const evn_tensor x = tensor(1);
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  int refused = 0, completed = 1;
  for (int32_t priority = -7; priority <= 7; ++priority) {  // the first run of each makes histograms
    o.priority = priority;
    for (int k = 1;; ++k) {
      evn_tensor y = nullptr;
      fault_arm(Seam::kAlloc, k, true);
      const evn_status status = evn_session_run(session, &x, 1, &y, 1, &o, &error);
      const bool reached = fault_count(Seam::kAlloc) >= k;
      fault_arm(Seam::kAlloc, 0, false);
      evn_tensor_release(y);
      completed += status == EVN_OK;
      refused += status == EVN_ERROR_OUT_OF_MEMORY;
      EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << evn_status_name(status);
      if (status == EVN_OK && !reached) break;
      ASSERT_LT(k, 100);
    }
  }
  evn_tensor_release(x);
  EXPECT_GT(refused, 15);
  const std::string all = json().substr(json().find("\"all\":"));
  EXPECT_GE(number(all, "completed"), completed);  // or the handle of an output failed
  EXPECT_GT(number(all, "failed"), 15);
  EXPECT_LE(number(all, "completed") + number(all, "failed"), completed + refused);
  EXPECT_GT(number(json(), "uncounted"), 0);
}

TEST_F(StatisticsTest, AreReadWhileEightThreadsRunAndSessionsComeAndGo) {
  constexpr int kThreads = 8, kEach = 40;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) EXPECT_EQ(run(1, (t + i) % 3 - 1), EVN_OK);
    });
  }
  std::thread reader([&] {
    while (!over) {
      EXPECT_LE(number(json(), "completed", "\"all\":"), kThreads * kEach);
      EXPECT_NE(prometheus().find("evener_requests_running{session=\"under test\"}"), std::string::npos);
    }
  });
  std::thread maker([&] {
    while (!over) {
      evn_error e = EVN_ERROR_INIT;
      evn_session made = nullptr;
      EXPECT_EQ(evn_session_create(runtime, model, nullptr, &made, &e), EVN_OK) << e.message;
      EXPECT_EQ(evn_session_release(made), EVN_OK);
    }
  });
  for (std::thread& t : threads) t.join();
  over = true;
  reader.join();
  maker.join();
  const std::string all = json().substr(json().find("\"all\":"));
  EXPECT_EQ(number(all, "completed"), kThreads * kEach);
  EXPECT_EQ(number(all, "count", "\"wait_ns\""), kThreads * kEach);
  EXPECT_EQ(number(all, "count", "\"run_ns\""), kThreads * kEach);
}

}  // namespace
}  // namespace evn::test::statistics_test
