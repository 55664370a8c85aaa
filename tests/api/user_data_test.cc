// What a host gives with its callbacks comes back once, in order, when the runtime has ended, and not at all where it was not
// taken.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/fault.h"
#include "evener/quantize.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

// A host of one runtime: counts what its callbacks get, and writes down what comes back.
struct Host {
  std::mutex mutex;
  std::vector<std::string> back;  // in order
  std::atomic<int> live_blocks{0}, blocks_at_release{-1};
  std::atomic<int> lines{0}, records{0}, jobs{0};
  std::atomic<int> late{0};  // callbacks after their release
  bool throws = false;

  struct Part {  // what is handed to one callback
    Host* host = nullptr;
    const char* name = "";
    std::atomic<bool> gone{false};
  };
  Part parallel{this, "parallel"}, log{this, "log"}, sink{this, "log_sink"}, heap{this, "allocator"}, end{this, "ended"},
      op{this, "operator"};
  Part progress{this, "progress"};

  static Host& called(void* user) {
    auto& part = *static_cast<Part*>(user);
    part.host->late += part.gone;
    return *part.host;
  }
  static void release(void* user) {
    auto& part = *static_cast<Part*>(user);
    Host& host = *part.host;
    part.gone = true;
    if (&part == &host.heap) host.blocks_at_release = host.live_blocks.load();
    const std::lock_guard<std::mutex> lock(host.mutex);
    host.back.push_back(part.name);
    if (host.throws) throw std::runtime_error("nobody listens");
  }
  static void* allocate(void* user, size_t size, size_t alignment) {
    Host& host = called(user);
    void* p = nullptr;
    if (posix_memalign(&p, std::max(alignment, sizeof(void*)), size) != 0) return nullptr;
    ++host.live_blocks;
    return p;
  }
  static void give_back(void* user, void* memory, size_t) {
    --called(user).live_blocks;
    std::free(memory);
  }
  static void run(void* user, uint32_t count, evn_task task, void* context) {
    ++called(user).jobs;
    for (uint32_t i = 0; i < count; ++i) task(context, i);
  }
  static void line(void* user, evn_log_level, const char*) { ++called(user).lines; }
  static void record(void* user, const evn_log_record*) { ++called(user).records; }
  static int32_t told(void* user, const char*, uint64_t, uint64_t) {
    called(user);
    return 0;
  }

  evn_runtime_options options() {
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.cache_dir = "";
    o.thread_count = 2;
    o.log_level = EVN_LOG_DEBUG;
    o.parallel_for = &Host::run, o.parallel_user = &parallel, o.parallel_release = &Host::release;
    o.log_callback = &Host::line, o.log_user = &log, o.log_release = &Host::release;
    o.log_sink = &Host::record, o.log_sink_user = &sink, o.log_sink_release = &Host::release;
    o.allocator = {&Host::allocate, &Host::give_back, &heap}, o.allocator_release = &Host::release;
    o.ended = &Host::release, o.ended_user = &end;
    return o;
  }
};

const std::vector<std::string> kOrder = {"parallel", "log", "log_sink", "allocator", "ended"};

struct UserData : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  Host host;
  evn_runtime runtime = nullptr;
  std::string bytes = small_network().serialize();

  void open() {
    const evn_runtime_options o = host.options();
    ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
  }
};

TEST_F(UserData, ComesBackOnceAndInOrder) {
  open();
  EXPECT_GT(host.lines, 0);
  EXPECT_EQ(host.lines, host.records);
  EXPECT_TRUE(host.back.empty());
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  EXPECT_EQ(host.back, kOrder);
  EXPECT_EQ(host.blocks_at_release, 0);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(host.back, kOrder);
}

TEST_F(UserData, StaysWhileAnyChildOfTheRuntimeIsThere) {
  // Each kind of object, alone and last.
  const int64_t dims[] = {64, 3, 8, 8};
  std::vector<float> in(64 * 3 * 8 * 8, 0.5f);
  for (int last = 0; last < 6; ++last) {
    Host h;
    const evn_runtime_options o = h.options();
    evn_runtime r = nullptr;
    evn_device cpu = nullptr;
    evn_model model = nullptr;
    evn_session session = nullptr;
    evn_tensor x = nullptr, y = nullptr;
    evn_value value = nullptr;
    ASSERT_OK(evn_runtime_create(&o, &r, &error));
    ASSERT_OK(evn_runtime_device_at(r, 0, &cpu, &error));
    ASSERT_OK(evn_model_load_buffer(r, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(r, model, nullptr, &session, &error));
    ASSERT_OK(evn_tensor_wrap(r, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
    ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
    ASSERT_OK(evn_value_from_tensor(y, &value, &error));
    EXPECT_GT(h.jobs, 0);
    const std::function<evn_status()> ends[] = {
        [&] { return evn_device_release(cpu); },      [&] { return evn_model_release(model); },
        [&] { return evn_session_release(session); }, [&] { return evn_tensor_release(x); },
        [&] { return evn_value_release(value); },     [&] { return evn_runtime_release(r); }};
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    for (int i = 0; i < 6; ++i) {
      if (i == last) continue;
      EXPECT_EQ(ends[i](), EVN_OK);
    }
    EXPECT_TRUE(h.back.empty()) << "object " << last;
    EXPECT_EQ(ends[last](), EVN_OK);
    EXPECT_EQ(h.back, kOrder) << "object " << last;
    EXPECT_EQ(h.blocks_at_release, 0) << "object " << last;
    EXPECT_EQ(h.late, 0);
  }
}

TEST_F(UserData, StaysWhileAnotherLibraryHasATensor) {
  open();
  evn_device cpu = nullptr;
  evn_tensor t = nullptr;
  void* managed = nullptr;
  const int64_t dims[] = {3};
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &t, &error));
  ASSERT_OK(evn_tensor_to_dlpack(t, 0, &managed, &error));
  evn_tensor_release(t);
  evn_device_release(cpu);
  evn_runtime_release(runtime);
  EXPECT_TRUE(host.back.empty());
  struct Managed {  // the beginning of a DLManagedTensorVersioned
    uint32_t major, minor;
    void* context;
    void (*deleter)(Managed*);
  };
  auto* m = static_cast<Managed*>(managed);
  m->deleter(m);
  EXPECT_EQ(host.back, kOrder);
  EXPECT_EQ(host.late, 0);
}

TEST_F(UserData, WrappedMemoryAndOperatorsGoBeforeIt) {
  open();
  evn_operator op = EVN_OPERATOR_INIT;
  op.domain = "mine", op.name = "Same", op.min_inputs = op.max_inputs = 1;
  op.user = &host.op;
  op.infer = [](void*, evn_operator_node, const evn_tensor_view*, uint32_t, evn_tensor_view*, uint32_t, evn_error*) -> evn_status {
    return EVN_OK;
  };
  op.run = [](void*, evn_operator_node, const evn_tensor_view*, uint32_t, const evn_tensor_view*, uint32_t,
              evn_error*) -> evn_status { return EVN_OK; };
  op.release = &Host::release;
  ASSERT_OK(evn_runtime_register_operator(runtime, &op, &error));
  float data[2] = {};
  const int64_t dims[] = {2};
  evn_tensor t = nullptr;
  const auto deleter = [](void* user, void*) {
    auto& h = *static_cast<Host*>(user);
    const std::lock_guard<std::mutex> lock(h.mutex);
    h.back.push_back("memory");
  };
  ASSERT_OK(evn_tensor_wrap(runtime, data, sizeof data, EVN_DTYPE_FLOAT32, dims, 1, deleter, &host, &t, &error));
  evn_runtime_release(runtime);
  evn_tensor_release(t);
  std::vector<std::string> want = {"memory", "operator"};
  want.insert(want.end(), kOrder.begin(), kOrder.end());
  EXPECT_EQ(host.back, want);
}

TEST_F(UserData, IsTheCallersWhereTheRuntimeIsNotMade) {
  evn_runtime_options o = host.options();
  o.config_text = "nonsense: 1", o.config_size = 11;
  EXPECT_EQ(evn_runtime_create(&o, &runtime, &error), EVN_ERROR_CONFIG);
  o = host.options();
  o.thread_count = -1;
  EXPECT_EQ(evn_runtime_create(&o, &runtime, &error), EVN_ERROR_INVALID_ARGUMENT);
  o = host.options();
  o.config_text = "version: 1\ndevices:\n  far: {type: opencl, match: {vendor: \"no such vendor\"}}\n";  // behind the CPU
  o.config_size = strlen(o.config_text);
  EXPECT_EQ(evn_runtime_create(&o, &runtime, &error), EVN_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_GT(host.records, 0) << "the CPU had been opened";
  EXPECT_EQ(runtime, nullptr);
  EXPECT_TRUE(host.back.empty());
  EXPECT_EQ(host.live_blocks, 0);
}

TEST_F(UserData, IsTheCallersWhereAnyAllocationFails) {
  int refused = 0;
  for (int k = 1; k < 100000; ++k) {
    Host h;
    evn_runtime_options o = h.options();
    o.config_text = "version: 1\nlimits: {nodes: 1000}\ndevices:\n  cpu: {type: cpu}\n";
    o.config_size = strlen(o.config_text);
    evn_runtime r = nullptr;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_runtime_create(&o, &r, &error);
    const bool reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_TRUE(h.back.empty()) << k;
    EXPECT_EQ(evn_runtime_release(r), EVN_OK);
    EXPECT_EQ(h.back, status == EVN_OK ? kOrder : std::vector<std::string>{}) << k;
    EXPECT_EQ(h.live_blocks, 0) << k;
    if (!reached) break;
    refused += status == EVN_ERROR_OUT_OF_MEMORY;
  }
  EXPECT_GT(refused, 5);
}

TEST_F(UserData, WithoutCallbacksComesBackAllTheSame) {
  evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
  o.cache_dir = "";
  o.log_user = &host.log, o.log_release = &Host::release;
  ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
  evn_runtime_release(runtime);
  EXPECT_EQ(host.back, std::vector<std::string>{"log"});
}

TEST_F(UserData, AnOlderClientHasNoneOfIt) {
  evn_runtime_options o = host.options();
  o.struct_size = offsetof(evn_runtime_options, parallel_release);
  ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
  evn_runtime_release(runtime);
  EXPECT_TRUE(host.back.empty());
}

TEST_F(UserData, WhatItThrowsEndsInTheLibrary) {
  host.throws = true;
  open();
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  EXPECT_EQ(host.back, kOrder);
}

TEST_F(UserData, MayReleaseOtherObjects) {
  evn_runtime other = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &other, &error));
  evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
  o.ended = [](void* user) { EXPECT_EQ(evn_runtime_release(static_cast<evn_runtime>(user)), EVN_OK); };
  o.ended_user = other;
  ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  EXPECT_EQ(evn_runtime_release(other), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(UserData, ComesBackOnceOnWhicheverThreadLetsGoLast) {
  const int64_t dims[] = {2, 3, 8, 8};
  std::vector<float> in(2 * 3 * 8 * 8, 0.5f);
  for (int round = 0; round < 20; ++round) {
    Host h;
    const evn_runtime_options o = h.options();
    evn_runtime r = nullptr;
    evn_model model = nullptr;
    evn_session session = nullptr;
    evn_tensor x = nullptr;
    ASSERT_OK(evn_runtime_create(&o, &r, &error));
    ASSERT_OK(evn_model_load_buffer(r, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(r, model, nullptr, &session, &error));
    ASSERT_OK(evn_tensor_wrap(r, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
    std::thread runner([&] {
      evn_tensor y = nullptr;
      while (evn_session_run(session, &x, 1, &y, 1, nullptr, nullptr) == EVN_OK) {
        evn_tensor_release(y);
        y = nullptr;
      }
    });
    evn_runtime_release(r);
    evn_model_release(model);
    evn_tensor_release(x);
    evn_session_release(session);
    runner.join();
    EXPECT_EQ(h.back, kOrder);
    EXPECT_EQ(h.late, 0);
  }
}

TEST_F(UserData, OfAQuantizerComesBackWithIt) {
  ASSERT_OK(evn_runtime_create(nullptr, &runtime, &error));
  evn_quantizer_options o = EVN_QUANTIZER_OPTIONS_INIT;
  o.data = bytes.data(), o.size = bytes.size();
  o.progress = &Host::told, o.progress_user = &host.progress, o.progress_release = &Host::release;
  evn_quantizer quantizer = nullptr;
  o.percentile = 7;
  EXPECT_EQ(evn_quantizer_create(runtime, nullptr, &o, &quantizer, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(host.back.empty());
  o.percentile = 0;
  ASSERT_OK(evn_quantizer_create(runtime, nullptr, &o, &quantizer, &error));
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  EXPECT_TRUE(host.back.empty());
  EXPECT_EQ(evn_quantizer_release(quantizer), EVN_OK);
  EXPECT_EQ(host.back, std::vector<std::string>{"progress"});
  EXPECT_EQ(evn_quantizer_release(quantizer), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(host.back.size(), 1u);
}

TEST_F(UserData, OfAQuantizerIsTheCallersWhereAnyAllocationFails) {
  ASSERT_OK(evn_runtime_create(nullptr, &runtime, &error));
  int refused = 0;
  bool reached = true;
  for (int k = 1; reached && k < 100000; k += 3) {
    Host h;
    evn_quantizer_options o = EVN_QUANTIZER_OPTIONS_INIT;
    o.data = bytes.data(), o.size = bytes.size();
    o.progress = &Host::told, o.progress_user = &h.progress, o.progress_release = &Host::release;
    evn_quantizer quantizer = nullptr;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_quantizer_create(runtime, nullptr, &o, &quantizer, &error);
    reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_TRUE(h.back.empty()) << k;
    EXPECT_EQ(evn_quantizer_release(quantizer), EVN_OK);
    EXPECT_EQ(h.back.size(), status == EVN_OK ? 1u : 0u) << k;
    refused += status == EVN_ERROR_OUT_OF_MEMORY;
  }
  EXPECT_FALSE(reached);
  EXPECT_GT(refused, 20);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
}

}  // namespace
}  // namespace evn::test
