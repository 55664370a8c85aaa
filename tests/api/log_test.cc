// Records of the log: which events come, with which fields.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "tests/api/support.h"
#include "tests/support/sanitized.h"

namespace evn::test {
namespace {

struct Record {
  evn_log_level level;
  uint64_t timestamp_ns;
  std::string message;
  std::string event;
  std::string device;
  std::map<std::string, std::string> fields;
};

struct Journal {
  std::mutex mutex;
  std::vector<Record> records;
  std::vector<std::string> lines;

  static void take(void* user, const evn_log_record* r) {
    auto& j = *static_cast<Journal*>(user);
    const std::lock_guard<std::mutex> lock(j.mutex);
    Record out{r->level, r->timestamp_ns, r->message, r->event, r->device, {}};
    EXPECT_EQ(r->struct_size, sizeof(evn_log_record));
    EXPECT_STREQ(r->node, "");
    for (uint32_t i = 0; i < r->field_count; ++i) out.fields[r->fields[i].key] = r->fields[i].value;
    j.records.push_back(std::move(out));
  }
  static void line(void* user, evn_log_level, const char* message) {
    auto& j = *static_cast<Journal*>(user);
    const std::lock_guard<std::mutex> lock(j.mutex);
    j.lines.push_back(message);
  }
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    for (const Record& r : records) out.push_back(r.event);
    return out;
  }
  const Record& find(const std::string& event) const {
    static const Record none{};
    for (const Record& r : records) {
      if (r.event == event) return r;
    }
    ADD_FAILURE() << "no record " << event;
    return none;
  }
};

struct LogTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  Journal journal;
  evn_runtime runtime = nullptr;
  std::string bytes = small_network().serialize();
  std::string cache_dir;
  const char* device = nullptr;  // of sessions

  void open(evn_log_level level, const char* config = nullptr, uint64_t limit = 0) {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = cache_dir.c_str();
    options.thread_count = 2;
    options.log_level = level;
    options.log_sink = &Journal::take;
    options.log_sink_user = &journal;
    options.log_callback = &Journal::line;
    options.log_user = &journal;
    options.config_text = config;
    options.config_size = config != nullptr ? strlen(config) : 0;
    options.cpu_memory_limit_bytes = limit;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  }
  void TearDown() override {
    evn_runtime_release(runtime);
    if (!cache_dir.empty()) std::filesystem::remove_all(cache_dir);
  }

  void run_twice() {
    evn_model model = nullptr;
    evn_session session = nullptr;
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.device = device;
    ASSERT_OK(evn_session_create(runtime, model, &options, &session, &error));
    std::vector<float> in(2 * 3 * 8 * 8, 0.5f);
    const int64_t dims[] = {2, 3, 8, 8};
    evn_tensor x = nullptr;
    ASSERT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
    for (int i = 0; i < 2; ++i) {
      evn_tensor y = nullptr;
      EXPECT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
      evn_tensor_release(y);
    }
    evn_tensor_release(x);
    evn_session_release(session);
    evn_model_release(model);
  }
};

TEST_F(LogTest, TellsALifeInOrder) {
  open(EVN_LOG_DEBUG);
  run_twice();
  EXPECT_EQ(journal.events(),
            (std::vector<std::string>{"device.opened", "runtime.created", "model.loaded", "session.created", "plan.created"}));
  EXPECT_EQ(journal.find("device.opened").device, "cpu");
  EXPECT_EQ(journal.find("runtime.created").fields.at("threads"), "2");
  EXPECT_EQ(journal.find("model.loaded").fields.at("bytes"), std::to_string(bytes.size()));
  EXPECT_EQ(journal.find("model.loaded").fields.count("duration_ns"), 1u);
  EXPECT_EQ(journal.find("session.created").fields.at("devices"), "1");
  EXPECT_EQ(journal.find("plan.created").fields.at("shapes"), "[2,3,8,8]");
  EXPECT_GT(std::stoll(journal.find("plan.created").fields.at("arena_bytes")), 0);
  for (std::size_t i = 1; i < journal.records.size(); ++i) {
    EXPECT_GE(journal.records[i].timestamp_ns, journal.records[i - 1].timestamp_ns);
  }
}

TEST_F(LogTest, LinesAndRecordsHaveTheSameText) {
  open(EVN_LOG_DEBUG);
  run_twice();
  ASSERT_EQ(journal.lines.size(), journal.records.size());
  for (std::size_t i = 0; i < journal.lines.size(); ++i) EXPECT_EQ(journal.lines[i], journal.records[i].message);
}

TEST_F(LogTest, TheLevelHoldsBack) {
  open(EVN_LOG_INFO);
  run_twice();
  EXPECT_EQ(journal.events(), (std::vector<std::string>{"device.opened", "runtime.created", "model.loaded", "session.created"}));
  EXPECT_EQ(journal.lines.size(), 4u);
}

TEST_F(LogTest, AnAbsentOptionalDeviceIsAWarningWithItsReason) {
  open(EVN_LOG_WARNING, "version: 1\ndevices:\n  far: {type: opencl, match: {vendor: \"no such vendor\"}, optional: true}\n");
  ASSERT_EQ(journal.events(), std::vector<std::string>{"device.absent"});
  EXPECT_EQ(journal.records[0].device, "far");
  EXPECT_EQ(journal.records[0].level, EVN_LOG_WARNING);
  EXPECT_FALSE(journal.records[0].fields.at("reason").empty());
}

TEST_F(LogTest, ARefusalOfTheMemoryCapSaysWhatWasAskedAndLeft) {
  open(EVN_LOG_WARNING, nullptr, 1 << 20);
  evn_device cpu = nullptr;
  evn_tensor t = nullptr;
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  const int64_t dims[] = {2 << 20};
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_UINT8, dims, 1, 0, &t, &error), EVN_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(journal.events(), std::vector<std::string>{"memory.refused"});
  EXPECT_EQ(journal.records[0].device, "cpu");
  EXPECT_EQ(journal.records[0].fields.at("bytes_requested"), std::to_string(error.bytes_requested));
  EXPECT_EQ(journal.records[0].fields.at("bytes_available"), std::to_string(error.bytes_available));
  EXPECT_EQ(journal.records[0].fields.at("limit_bytes"), "1048576");
  evn_device_release(cpu);
}

// A recording has all texts of a tensor with the width of the longest: 100 texts, of which one is long, take far more there than in
// the run. Under the memory limit the recording ends, and the runs go on.
TEST_F(LogTest, ARecordingThatHasNoMemoryIsAWarningAndNoErrorOfTheRun) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers have heads of their own: nothing is counted";
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("evener_recording_" + std::to_string(getpid()));
  const std::string config = "version: 1\nrecording: {folder: \"" + folder.string() + "\", runs: 9}\n";
  open(EVN_LOG_WARNING, config.c_str(), 32 << 20);
  bytes = OnnxWriter(17).add_input("x", kStr, {"n"}).add_node("Identity", {"x"}, {"y"}).add_output("y", kStr).serialize();
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_device cpu = nullptr;
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  const auto run_of = [&](std::size_t count, std::size_t longest) {
    std::vector<std::string> texts(count);
    texts[0] = std::string(longest, 'a');
    std::vector<const char*> data;
    for (const std::string& t : texts) data.push_back(t.c_str());
    const int64_t dims[] = {static_cast<int64_t>(count)};
    evn_tensor x = nullptr, y = nullptr;
    ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_STRING, dims, 1, 0, &x, &error));
    ASSERT_OK(evn_tensor_set_strings(x, data.data(), nullptr, count, &error));
    EXPECT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
    size_t size = 0;
    EXPECT_OK(evn_tensor_get_string(y, 0, nullptr, 0, &size, &error));
    EXPECT_EQ(size, longest + 1);
    for (evn_tensor t : {x, y}) evn_tensor_release(t);
  };
  const auto warnings = [&] {
    const std::vector<std::string> all = journal.events();
    return std::count(all.begin(), all.end(), "recording.failed");
  };
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  run_of(2, 5);
  EXPECT_EQ(warnings(), 0);
  EXPECT_EQ(files(), 1);
  run_of(100, 200'000);
  EXPECT_EQ(warnings(), 1);
  EXPECT_EQ(journal.find("recording.failed").level, EVN_LOG_WARNING);
  EXPECT_NE(journal.find("recording.failed").message.find(folder.string()), std::string::npos);
  run_of(100, 200'000);
  run_of(2, 5);
  EXPECT_EQ(warnings(), 1) << "once";
  EXPECT_EQ(files(), 1) << "no more inputs are recorded";
  evn_session_release(session);
  evn_model_release(model);
  evn_device_release(cpu);
  std::filesystem::remove_all(folder);
}

TEST_F(LogTest, ProgramsAreCompiledOnceAndThenComeFromTheCache) {
  char folder[] = "/tmp/evener_log_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  cache_dir = folder;
  device = "opencl:0";
  evn_device opened = nullptr;
  open(EVN_LOG_DEBUG);
  if (evn_runtime_device_find(runtime, device, &opened, &error) != EVN_OK) {
    const char* required = std::getenv("EVN_REQUIRE_OPENCL");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1") << error.message;
    GTEST_SKIP() << error.message;
  }
  evn_device_release(opened);
  run_twice();
  const auto count = [&](const char* event) {
    const std::vector<std::string> all = journal.events();
    return std::count(all.begin(), all.end(), event);
  };
  const auto compiled = count("program.compiled");
  EXPECT_GT(compiled, 0);
  EXPECT_EQ(count("program.restored"), 0);
  // What takes seconds is told, one level above its end, before it begins.
  EXPECT_EQ(count("program.compiling"), compiled);
  uint64_t before = 0;
  for (std::size_t i = 0; i < journal.records.size(); ++i) {
    const Record& r = journal.records[i];
    if (r.event != "program.compiling") continue;
    EXPECT_EQ(r.level, EVN_LOG_INFO);
    EXPECT_EQ(r.device, "opencl:0");
    EXPECT_EQ(r.fields.at("compiled_before"), std::to_string(before++));
    ASSERT_LT(i + 1, journal.records.size());
    EXPECT_EQ(journal.records[i + 1].event, "program.compiled");
    EXPECT_EQ(journal.records[i + 1].fields.at("source"), r.fields.at("source"));
  }
  EXPECT_EQ(journal.find("program.compiled").device, "opencl:0");
  EXPECT_EQ(journal.find("program.compiled").fields.at("cache"), cache_dir);
  evn_runtime_release(runtime);
  journal.records.clear();
  open(EVN_LOG_DEBUG);
  run_twice();
  EXPECT_EQ(count("program.compiled"), 0);
  EXPECT_EQ(count("program.compiling"), 0);
  EXPECT_EQ(count("program.restored"), compiled);
}

}  // namespace
}  // namespace evn::test
