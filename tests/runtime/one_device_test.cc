// A physical device is opened once in a runtime, whatever it is called and whoever asks at the same time.
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

// A machine with one GPU and one accelerator, in this order, that counts how often it is opened.
std::atomic<int> g_opened{0};
char g_devices[2];

const void* identify(const DeviceRequest& request) {
  if (request.index >= (request.settings.text("kind", "any") == "gpu" ? 1 : 2)) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "there is no device number %d", request.index).with_device(request.name.c_str());
  }
  return &g_devices[request.index];
}

std::shared_ptr<Device> open_slowly(const DeviceRequest& request) {
  ++g_opened;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that others come meanwhile
  return mock_backend.open(request);
}

constexpr DeviceOption kOptions[] = {
    {{.name = "kind", .type = SettingType::kChoice, .fallback = "any", .words = "any|gpu"}, true},
    {{.name = "blas", .type = SettingType::kChoice, .fallback = "auto", .words = "auto|never"}},
    {{.name = "buffer", .type = SettingType::kBytes, .fallback = "1MiB", .min = 1, .max = 1 << 30}},
    {{.name = "refuse", .type = SettingType::kTexts}},
};
constexpr DeviceAlias kAliases[] = {{"gpu", "kind", "gpu"}};
constexpr Backend kMachine = {
    {"npu", kOptions}, open_slowly, [](std::string*) { return std::vector<DeviceListing>{}; }, identify, kAliases};

DeviceConfig gpu_config(const std::string& name, int line, const char* kind = "any") {
  DeviceConfig d;
  d.name = name;
  d.type = "npu";
  d.settings.set_text("kind", kind);
  d.line = line;
  return d;
}

std::shared_ptr<Runtime> make(std::vector<DeviceConfig> devices = {}, const std::string& default_device = "") {
  static constexpr const Backend* kBackends[] = {&cpu_backend, &kMachine};
  RuntimeOptions o;
  o.config.source = "test.yaml";
  o.config.devices = std::move(devices);
  if (!default_device.empty()) o.config.default_devices = {default_device};
  o.thread_count = 1;
  o.backends = kBackends;
  g_opened = 0;
  return std::make_shared<Runtime>(std::move(o));
}

using OneDevice = RuntimeTest;

TEST_F(OneDevice, AllNamesAreOneDevice) {
  const auto runtime = make({gpu_config("mine", 3), gpu_config("yours", 4, "gpu")});
  Device* const device = runtime->find_device("mine");
  for (const char* name : {"yours", "gpu", "gpu:0", "npu", "npu:0", "npu:00", "mine", "gpu"}) {
    EXPECT_EQ(runtime->find_device(name), device) << name;
  }
  EXPECT_EQ(device->name(), "mine");
  EXPECT_EQ(g_opened, 1);
  EXPECT_EQ(runtime->device_count(), 2u);  // with the CPU
  Device* const other = runtime->find_device("npu:1");
  EXPECT_NE(other, device);
  EXPECT_EQ(runtime->find_device("npu:1"), other);
  EXPECT_EQ(g_opened, 2);
  EXPECT_THROW(runtime->find_device("gpu:1"), Error);
  EXPECT_EQ(runtime->device_count(), 3u);
}

TEST_F(OneDevice, ASessionUsesItOnceUnderTwoNames) {
  const auto runtime = make({gpu_config("mine", 3)});
  TestSession a(load(runtime, small_network()), "mine"), b(load(runtime, small_network()), "gpu:0");
  EXPECT_EQ(a.compiled().devices, b.compiled().devices);
  EXPECT_EQ(a.compiled().devices.size(), 2u);
}

TEST_F(OneDevice, ACapHoldsOverAllNames) {
  DeviceConfig capped = gpu_config("mine", 3);
  capped.memory_limit = 1 << 20;
  const auto runtime = make({capped});
  const PooledMemory first = runtime->find_device("mine")->allocate(700000, MemoryClass::kTensors);
  for (const char* name : {"mine", "gpu", "npu:0"}) {
    try {
      const PooledMemory second = runtime->find_device(name)->allocate(700000, MemoryClass::kTensors);
      ADD_FAILURE() << "the cap was passed by the name " << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    }
  }
}

TEST_F(OneDevice, NamesWithOtherSettingsContradictEachOther) {
  struct Row {
    const char* key;
    void (*change)(DeviceConfig&);
    const char* says;
  };
  const Row rows[] = {
      {"memory_limit", [](DeviceConfig& d) { d.memory_limit = 4096; }, "mine says none, yours says 4096"},
      {"blas", [](DeviceConfig& d) { d.settings.set_text("blas", "never"); }, "mine says auto, yours says never"},
      {"buffer", [](DeviceConfig& d) { d.settings.set_number("buffer", 4096); }, "mine says 1MiB, yours says 4096"},
      {"refuse",
       [](DeviceConfig& d) {
         d.settings.set("refuse", {.texts = {"Add", "Mul"}});
       },
       "mine says , yours says Add, Mul"},
      {"precision", [](DeviceConfig& d) { d.precision = Precision::kFloat16; }, "mine says none, yours says fp16"},
  };
  for (const Row& row : rows) {
    for (const bool optional : {false, true}) {
      DeviceConfig second = gpu_config("yours", 9, "gpu");
      second.optional = optional;
      row.change(second);
      try {
        make({gpu_config("mine", 3), second});
        ADD_FAILURE() << row.key;
      } catch (const Error& e) {
        EXPECT_EQ(e.status, EVN_ERROR_CONFIG);
        EXPECT_EQ(std::string(e.message),
                  std::string("test.yaml:9: devices mine (line 3) and yours are one device, \"mock device\", and have one ") +
                      row.key + ": " + row.says);
        EXPECT_STREQ(e.device, "yours");
      }
    }
  }
  DeviceConfig first = gpu_config("mine", 3), second = gpu_config("yours", 9);
  first.memory_limit = second.memory_limit = 1 << 20;
  first.settings.set("buffer", {.number = 1 << 20, .text = "1MiB"});  // one number, written in two ways
  second.settings.set_number("buffer", 1 << 20);
  EXPECT_EQ(make({first, second})->device_count(), 2u);
}

TEST_F(OneDevice, ThreadsThatAskAtOnceGetTheSame) {
  for (int round = 0; round < 20; ++round) {
    const auto runtime = make();
    const char* const names[] = {"gpu", "gpu:0", "npu:0", "npu", "gpu", "npu:0"};
    Device* found[6] = {};
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (++ready; ready < 6;) std::this_thread::yield();
        found[t] = runtime->find_device(names[t]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<Device*>(std::begin(found), std::end(found)).size(), 1u);
    EXPECT_EQ(g_opened, 1);
    EXPECT_EQ(runtime->device_count(), 2u);
  }
}

}  // namespace
}  // namespace evn::test
