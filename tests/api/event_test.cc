// Events, and copies that devices do while the caller goes on.
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/fault.h"
#include "evener/opencl.h"
#include "tests/api/opencl_support.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

constexpr uint64_t kMinute = 60'000'000'000;

struct Events : OpenClApiTest {
  std::vector<float> values = ramp(1000, 1);

  evn_status copy(evn_tensor from, evn_tensor to, std::vector<evn_event> waits, evn_event* event) {
    error = EVN_ERROR_INIT;
    return evn_tensor_copy_async(from, to, waits.data(), static_cast<uint32_t>(waits.size()), event, &error);
  }
  evn_event started(evn_tensor from, evn_tensor to, std::vector<evn_event> waits = {}) {
    evn_event event = nullptr;
    EXPECT_EQ(copy(from, to, std::move(waits), &event), EVN_OK) << error.message;
    return event;
  }
  evn_status wait(evn_event event, uint64_t timeout_ns = kMinute) { return evn_event_wait(event, timeout_ns, &error); }
  void end(std::initializer_list<evn_event> events) {
    for (evn_event e : events) EXPECT_EQ(evn_event_release(e), EVN_OK);
  }
  static void drop(std::initializer_list<evn_tensor> tensors) {
    for (evn_tensor t : tensors) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
  evn_event import(cl_event native) {
    evn_event event = nullptr;
    EXPECT_OK(evn_opencl_import_event(gpu, native, &event, &error));
    return event;
  }
  cl_event user_event() {
    void* context = nullptr;
    EXPECT_OK(evn_opencl_device_objects(gpu, &context, nullptr, nullptr, &error));
    cl_int code = CL_SUCCESS;
    const cl_event made = opencl().create_user_event(static_cast<cl_context>(context), &code);
    EXPECT_EQ(code, CL_SUCCESS);
    return made;
  }
};

TEST_F(Events, ACopyReturnsBeforeItIsDone) {
  make_runtime();
  const evn_tensor host = wrap(values, {1000}), there = create(gpu, {1000}), back = create(cpu, {1000});
  driver->hold();
  const evn_event up = started(host, there);
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(wait(up, 0), EVN_ERROR_TIMEOUT);
  EXPECT_STREQ(error.message, "the event has not happened yet");
  EXPECT_EQ(wait(up, 1000), EVN_ERROR_TIMEOUT);
  const evn_event down = started(there, back, {up});
  EXPECT_EQ(wait(down, 0), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(driver->waited_for_held(), 0);
  driver->let_go();
  EXPECT_EQ(wait(down), EVN_OK) << error.message;
  EXPECT_EQ(wait(up, 0), EVN_OK);
  EXPECT_EQ(wait(up, UINT64_MAX), EVN_OK);
  EXPECT_EQ(read(back), values);
  end({up, down});
  drop({host, there, back});
}

TEST_F(Events, TensorsAreInUseUntilThen) {
  make_runtime();
  const evn_tensor host = wrap(values, {1000}), there = create(gpu, {1000});
  driver->hold();
  const evn_event up = started(host, there);
  std::atomic<bool> mapped{false};
  std::thread reader([&] {
    EXPECT_EQ(read(there), values);
    mapped = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(mapped);
  driver->let_go();
  reader.join();
  EXPECT_EQ(wait(up, kMinute), EVN_OK);
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(there, EVN_MAP_READ, &data, nullptr, &error));
  evn_event none = nullptr;
  EXPECT_EQ(copy(host, there, {}, &none), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(none, nullptr);
  ASSERT_OK(evn_tensor_unmap(there, &error));
  end({up});
  drop({host, there});
}

// Everything is released while the copy is held; what it needs stays, and the event tells of its end.
TEST_F(Events, OutliveAllHandles) {
  make_runtime();
  std::vector<float> kept = values;
  static std::atomic<int> deleted;
  deleted = 0;
  const int64_t dims[] = {1000};
  evn_tensor host = nullptr;
  ASSERT_OK(evn_tensor_wrap(
      runtime, kept.data(), 4000, EVN_DTYPE_FLOAT32, dims, 1, [](void*, void*) { ++deleted; }, nullptr, &host, &error));
  const evn_tensor there = create(gpu, {1000});
  driver->hold();
  const evn_event up = started(host, there);
  drop({host, there});
  EXPECT_EQ(evn_device_release(gpu), EVN_OK);
  EXPECT_EQ(evn_device_release(cpu), EVN_OK);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  gpu = cpu = nullptr;
  runtime = nullptr;
  EXPECT_EQ(wait(up, 0), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(deleted, 0);
  driver->let_go();
  EXPECT_EQ(wait(up), EVN_OK);
  EXPECT_TRUE(eventually([] { return deleted == 1; }));
  end({up});
}

TEST_F(Events, BetweenPlacesOfTheHostTheyHaveHappened) {
  make_runtime();
  const evn_tensor a = wrap(values, {1000}), b = create(cpu, {1000}), empty = create(gpu, {0}), nothing = create(cpu, {0});
  const evn_event first = started(a, b), second = started(nothing, empty), third = started(a, a, {first, second});
  for (evn_event e : {first, second, third}) EXPECT_EQ(wait(e, 0), EVN_OK);
  EXPECT_EQ(read(b), values);
  end({first, second, third});
  drop({a, b, empty, nothing});
}

TEST_F(Events, WithinADevice) {
  make_runtime();
  const evn_tensor host = wrap(values, {1000}), a = create(gpu, {1000}), b = create(gpu, {1000}), whole = create(gpu, {1064});
  const int64_t dims[] = {1000};
  evn_tensor low = nullptr, high = nullptr;
  ASSERT_OK(evn_tensor_create_view(whole, 0, dims, 1, &low, &error));
  ASSERT_OK(evn_tensor_create_view(whole, 64, dims, 1, &high, &error));
  const evn_event one = started(host, a), two = started(a, b), three = started(b, low), four = started(low, high);
  EXPECT_EQ(wait(four), EVN_OK) << error.message;
  EXPECT_EQ(read(high), values) << "the two overlap";
  EXPECT_EQ(read(b), values);
  end({one, two, three, four});
  drop({host, a, b, low, high, whole});
}

TEST_F(Events, AFailedCopySaysSoEachTime) {
  make_runtime();
  const evn_tensor host = wrap(values, {1000}), there = create(gpu, {1000});
  driver->hold();
  const evn_event up = started(host, there);
  driver->fail_held(-77);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(wait(up), EVN_ERROR_DEVICE_LOST);
    EXPECT_NE(std::string(error.message).find("clEnqueueWriteBuffer"), std::string::npos) << error.message;
    EXPECT_STREQ(error.device, "opencl:0");
  }
  const evn_event again = started(host, there);
  EXPECT_EQ(wait(again), EVN_OK) << error.message;
  EXPECT_EQ(read(there), values);
  end({up, again});
  drop({host, there});
}

TEST_F(Events, ADeviceWaitsForWhatItIsTold) {
  make_runtime();
  const evn_tensor host = wrap(values, {1, 1, 1, 1000}), x = create(gpu, {1, 1, 1, 1000}), y = create(gpu, {1, 1, 1, 1000});
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session);
  const cl_event native = user_event();
  const evn_event gate = import(native);
  opencl().release_event(native);
  EXPECT_EQ(wait(gate, 0), EVN_ERROR_TIMEOUT);
  ASSERT_OK(evn_device_wait_event(gpu, gate, &error));
  const evn_event up = started(host, x);
  std::atomic<bool> ran{false};
  std::thread runner([&] {
    evn_error e = EVN_ERROR_INIT;
    evn_tensor out = y;
    EXPECT_EQ(evn_session_run(session, &x, 1, &out, 1, nullptr, &e), EVN_OK) << e.message;
    ran = true;
  });
  evn_event all = nullptr;
  ASSERT_OK(evn_device_record_event(gpu, &all, &error));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ran);
  EXPECT_EQ(wait(up, 0), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(wait(all, 0), EVN_ERROR_TIMEOUT);
  opencl().set_user_event_status(native, CL_COMPLETE);
  runner.join();
  EXPECT_EQ(wait(all), EVN_OK) << error.message;
  EXPECT_EQ(wait(gate), EVN_OK);
  EXPECT_EQ(read(y), values);
  end({gate, up, all});
  drop({host, x, y});
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

// A copy that waits for the host holds up transfers, and no kernel of other memory.
TEST_F(Events, CopiesOverlapRuns) {
  make_runtime();
  const evn_tensor host = wrap(values, {1, 1, 1, 1000}), other = create(gpu, {1, 1, 1, 1000}), x = create(gpu, {1, 1, 1, 1000});
  write(x, values);
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session);
  evn_tensor y = create(gpu, {1, 1, 1, 1000});
  const cl_event native = user_event();
  const evn_event gate = import(native);
  const evn_event up = started(host, other, {gate});
  ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  EXPECT_EQ(wait(up, 0), EVN_ERROR_TIMEOUT) << "the run has waited for the copy";
  opencl().set_user_event_status(native, CL_COMPLETE);
  opencl().release_event(native);
  EXPECT_EQ(wait(up), EVN_OK);
  EXPECT_EQ(read(y), values);
  EXPECT_EQ(read(other), values);
  end({gate, up});
  drop({host, other, x, y});
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(Events, OfTheCpuHaveHappened) {
  make_runtime();
  evn_event event = nullptr;
  ASSERT_OK(evn_device_record_event(cpu, &event, &error));
  EXPECT_EQ(wait(event, 0), EVN_OK);
  ASSERT_OK(evn_device_wait_event(cpu, event, &error));
  ASSERT_OK(evn_device_wait_event(gpu, event, &error));
  end({event, nullptr});
}

TEST_F(Events, RefuseWhatDoesNotFit) {
  make_runtime();
  evn_runtime second = nullptr;
  evn_device cpu2 = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &second, &error));
  ASSERT_OK(evn_runtime_device_at(second, 0, &cpu2, &error));
  const evn_tensor a = wrap(values, {1000}), b = create(gpu, {1000}), c = create(gpu, {999}), other = create(cpu2, {1000});
  evn_event event = nullptr, foreign = nullptr, mine = nullptr;
  ASSERT_OK(evn_device_record_event(cpu2, &foreign, &error));
  ASSERT_OK(evn_device_record_event(gpu, &mine, &error));
  const auto handle = [](void* h) { return static_cast<evn_event>(h); };
  EXPECT_EQ(copy(nullptr, b, {}, &event), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(copy(a, nullptr, {}, &event), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(copy(a, b, {}, nullptr), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(copy(a, c, {}, &event), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(copy(a, other, {}, &event), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(copy(a, b, {nullptr}, &event), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(copy(a, b, {handle(a)}, &event), EVN_ERROR_INVALID_HANDLE) << "a tensor is no event";
  EXPECT_EQ(copy(a, b, {foreign}, &event), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_copy_async(a, b, nullptr, 1, &event, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_event_wait(nullptr, 0, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_event_release(handle(a)), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_event_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_device_record_event(nullptr, &event, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_device_record_event(gpu, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_device_wait_event(nullptr, mine, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_device_wait_event(gpu, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_device_wait_event(gpu, foreign, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(event, nullptr);
  end({mine, foreign});
  EXPECT_EQ(evn_event_wait(mine, 0, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_event_release(mine), EVN_ERROR_INVALID_HANDLE);
  drop({a, b, c, other});
  EXPECT_EQ(evn_device_release(cpu2), EVN_OK);
  EXPECT_EQ(evn_runtime_release(second), EVN_OK);
}

// In a process of their own: a driver makes two devices of one only when it is first asked.
struct EventsOfTwoDevicesChild : Events {
  evn_device second = nullptr;
  void SetUp() override {
    Events::SetUp();
    make_runtime();
    ASSERT_OK(evn_runtime_device_find(runtime, "opencl:1", &second, &error));
  }
  void TearDown() override {
    EXPECT_EQ(evn_device_release(second), EVN_OK);
    Events::TearDown();
  }
};

TEST_F(EventsOfTwoDevicesChild, DISABLED_CopiesGoThroughTheHostByThemselves) {
  const evn_tensor host = wrap(values, {1000}), a = create(gpu, {1000}), b = create(second, {1000}), back = create(cpu, {1000});
  driver->hold();
  const evn_event up = started(host, a), across = started(a, b), down = started(b, back, {across});
  EXPECT_EQ(wait(across, 0), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(driver->waited_for_held(), 0);
  driver->let_go();
  EXPECT_EQ(wait(down), EVN_OK) << error.message;
  EXPECT_EQ(read(back), values);
  end({up, across, down});
  drop({host, a, b, back});
}

TEST_F(EventsOfTwoDevicesChild, DISABLED_EventsOfOneHoldTheOtherBack) {
  const evn_tensor host = wrap(values, {1000}), b = create(second, {1000});
  const cl_event native = user_event();
  const evn_event gate = import(native);
  ASSERT_OK(evn_device_wait_event(second, gate, &error));
  const evn_event up = started(host, b);
  void* exported = nullptr;
  ASSERT_OK(evn_opencl_export_event(up, gpu, &exported, &error));  // in the context of the first
  const evn_event again = import(static_cast<cl_event>(exported));
  EXPECT_EQ(wait(up, 0), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(wait(again, 0), EVN_ERROR_TIMEOUT);
  evn_event none = nullptr;
  EXPECT_EQ(evn_opencl_import_event(second, native, &none, &error), EVN_ERROR_INVALID_ARGUMENT);
  opencl().set_user_event_status(native, CL_COMPLETE);
  EXPECT_EQ(wait(again), EVN_OK) << error.message;
  EXPECT_EQ(wait(up), EVN_OK) << error.message;
  EXPECT_EQ(read(b), values);
  opencl().release_event(native);
  opencl().release_event(static_cast<cl_event>(exported));
  end({gate, up, again});
  drop({host, b});
}

TEST(EventsOfTwoDevices, WaitForEachOther) {
  EVN_NEEDS_OPENCL();
  std::string why;
  if (find_opencl_devices(&why)[0].platform_name != "Portable Computing Language")
    GTEST_SKIP() << "only PoCL makes two devices of one";
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command = "POCL_DEVICES='pthread pthread' '" + std::string(self) +
                              "' --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter='*EventsOfTwoDevicesChild.*'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

// The k-th OpenCL call fails: an error comes out, or the result is right; the next attempt is.
TEST_F(Events, EveryCallMayFail) {
  make_runtime();
  const evn_tensor host = wrap(values, {1000}), there = create(gpu, {1000}), back = create(cpu, {1000});
  const auto use = [&] {
    evn_event up = nullptr, down = nullptr, all = nullptr, again = nullptr;
    void* native = nullptr;
    bool ok = evn_tensor_copy_async(host, there, nullptr, 0, &up, &error) == EVN_OK &&
              evn_device_wait_event(gpu, up, &error) == EVN_OK && evn_device_record_event(gpu, &all, &error) == EVN_OK &&
              evn_opencl_export_event(all, gpu, &native, &error) == EVN_OK &&
              evn_opencl_import_event(gpu, native, &again, &error) == EVN_OK &&
              evn_tensor_copy_async(there, back, &again, 1, &down, &error) == EVN_OK && wait(down) == EVN_OK && wait(all) == EVN_OK;
    fault_arm(Seam::kDevice, 0, false);
    for (evn_event e : {up, down, all, again}) {
      evn_error ignored = EVN_ERROR_INIT;
      if (e != nullptr) {
        ok = evn_event_wait(e, kMinute, &ignored) == EVN_OK && ok;  // a question of how it ended may be what failed
      }
      EXPECT_EQ(evn_event_release(e), EVN_OK);
    }
    if (native != nullptr) opencl().release_event(static_cast<cl_event>(native));
    return ok;
  };
  int errors = 0, in_a_row = 0;
  for (int k = 1; in_a_row < 10 && k < 300; ++k) {
    write(back, std::vector<float>(1000));
    fault_arm(Seam::kDevice, k, false);
    const bool ok = use();
    errors += !ok;
    in_a_row = ok ? in_a_row + 1 : 0;
    if (ok) {
      EXPECT_EQ(read(back), values) << k;
    } else {
      EXPECT_NE(error.message[0], 0);
    }
    ASSERT_TRUE(use()) << error.message << " after " << k;
    EXPECT_EQ(read(back), values) << k;
  }
  EXPECT_GE(errors, 5);
  EXPECT_EQ(in_a_row, 10);
  drop({host, there, back});
}

// Allocations fail, where no driver takes part.
TEST(EventsOfTheHost, EveryAllocationMayFail) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &runtime, &error));
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  const int64_t dims[] = {3};
  evn_tensor a = nullptr, b = nullptr;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &a, &error));
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &b, &error));
  int errors = 0;
  bool whole = false;
  for (int k = 1; !whole && k < 100; ++k) {
    fault_arm(Seam::kAlloc, k, false);
    evn_event recorded = nullptr, copied = nullptr;
    evn_status status = evn_device_record_event(cpu, &recorded, &error);
    if (status == EVN_OK) status = evn_tensor_copy_async(a, b, &recorded, 1, &copied, &error);
    if (status == EVN_OK) status = evn_device_wait_event(cpu, copied, &error);
    whole = status == EVN_OK;
    fault_arm(Seam::kAlloc, 0, false);
    errors += !whole;
    if (!whole) {
      EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << error.message;
    }
    EXPECT_EQ(evn_event_release(recorded), EVN_OK);
    EXPECT_EQ(evn_event_release(copied), EVN_OK);
  }
  EXPECT_TRUE(whole);
  EXPECT_GE(errors, 4);
  for (evn_tensor t : {a, b}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_device_release(cpu), EVN_OK);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
}

}  // namespace
}  // namespace evn::test
