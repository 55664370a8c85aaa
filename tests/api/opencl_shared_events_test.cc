// Events of OpenCL between a host program and the library, and how long what they share stays.
#include <atomic>
#include <thread>

#include "tests/api/opencl_sharing.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

class OpenClSharedEvents : public OpenClSharing {
 protected:
  // Maps a tensor while a copy of another one waits for `gate`, and then opens that.
  static void map_before_opening(evn_tensor tensor, cl_event gate) {
    std::atomic<bool> mapped{false};
    std::thread mapper([&] {
      void* data = nullptr;
      EXPECT_EQ(evn_tensor_map(tensor, EVN_MAP_READ, &data, nullptr, nullptr), EVN_OK);
      mapped = true;
      EXPECT_EQ(evn_tensor_unmap(tensor, nullptr), EVN_OK);  // by the queue in which the other copy waits
    });
    EXPECT_TRUE(eventually([&] { return mapped.load(); })) << "the map waits for the copy of another tensor";
    opencl().set_user_event_status(gate, CL_COMPLETE);
    mapper.join();
  }
};

TEST_F(OpenClSharedEvents, EventsGoBothWays) {
  attach();
  cl_int code = CL_SUCCESS;
  const cl_event gate = opencl().create_user_event(host->context, &code);
  ASSERT_EQ(code, CL_SUCCESS);
  const cl_mem mem = host->make_buffer(4000);
  evn_tensor t = nullptr;
  ASSERT_EQ(wrap_with(mem, 0, {1000}, 0, &t), EVN_OK);
  std::vector<float> values = ramp(1000, 7);
  const evn_tensor from = wrap(values, {1000});
  evn_event imported = nullptr, copied = nullptr;
  ASSERT_OK(evn_opencl_import_event(device, gate, &imported, &error));
  void* same = nullptr;
  ASSERT_OK(evn_opencl_export_event(imported, device, &same, &error));
  EXPECT_EQ(same, gate);
  ASSERT_OK(evn_tensor_copy_async(from, t, &imported, 1, &copied, &error));
  void* native = nullptr;
  ASSERT_OK(evn_opencl_export_event(copied, device, &native, &error));
  auto after = static_cast<cl_event>(native);
  // A command of the host's that waits for the copy of the library, which waits for the host.
  std::vector<float> seen(1000);
  const cl_command_queue second = host->make_queue();
  cl_event looked = nullptr;
  ASSERT_EQ(opencl().enqueue_read_buffer(second, mem, CL_FALSE, 0, 4000, seen.data(), 1, &after, &looked), CL_SUCCESS);
  EXPECT_EQ(opencl().flush(second), CL_SUCCESS);
  EXPECT_EQ(evn_event_wait(copied, 0, &error), EVN_ERROR_TIMEOUT);
  opencl().set_user_event_status(gate, CL_COMPLETE);
  EXPECT_EQ(opencl().wait_for_events(1, &looked), CL_SUCCESS);
  EXPECT_EQ(seen, values);
  EXPECT_OK(evn_event_wait(copied, UINT64_MAX, &error));
  // What has happened already, and all that the device was given.
  evn_event all = nullptr, of_cpu = nullptr;
  ASSERT_OK(evn_device_record_event(device, &all, &error));
  ASSERT_OK(evn_device_record_event(cpu, &of_cpu, &error));
  for (evn_event e : {all, of_cpu, copied}) {
    void* given = nullptr;
    ASSERT_OK(evn_opencl_export_event(e, device, &given, &error));
    auto event = static_cast<cl_event>(given);
    EXPECT_EQ(opencl().wait_for_events(1, &event), CL_SUCCESS);
    opencl().release_event(event);
  }
  for (cl_event e : {gate, gate, after, looked}) opencl().release_event(e);  // gate was exported once
  opencl().release_command_queue(second);
  opencl().release_mem_object(mem);
  for (evn_event e : {imported, copied, all, of_cpu}) EXPECT_EQ(evn_event_release(e), EVN_OK);
  for (evn_tensor one : {t, from}) EXPECT_EQ(evn_tensor_release(one), EVN_OK);
}

TEST_F(OpenClSharedEvents, ACopyThatWaitsForTheHostKeepsNoOtherTensorInUse) {
  attach();
  cl_int code = CL_SUCCESS;
  const cl_event gate = opencl().create_user_event(host->context, &code);
  ASSERT_EQ(code, CL_SUCCESS);
  evn_event imported = nullptr, waiting = nullptr, copied = nullptr;
  ASSERT_OK(evn_opencl_import_event(device, gate, &imported, &error));
  std::vector<float> values = ramp(1000, 7), read(1000);
  const int64_t dims[] = {1000};
  evn_tensor a = nullptr, b = nullptr;
  for (evn_tensor* t : {&a, &b}) ASSERT_OK(evn_tensor_create(device, EVN_DTYPE_FLOAT32, dims, 1, 0, t, &error));
  const evn_tensor from = wrap(values, {1000}), to = wrap(read, {1000});
  ASSERT_OK(evn_tensor_copy_async(from, a, &imported, 1, &waiting, &error));
  ASSERT_OK(evn_tensor_copy_async(b, to, nullptr, 0, &copied, &error));
  EXPECT_OK(evn_event_wait(copied, UINT64_MAX, &error));
  map_before_opening(b, gate);
  EXPECT_OK(evn_event_wait(waiting, UINT64_MAX, &error));
  opencl().release_event(gate);
  for (evn_event e : {imported, waiting, copied}) EXPECT_EQ(evn_event_release(e), EVN_OK);
  for (evn_tensor t : {a, b, from, to}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClSharedEvents, ACopyThatFailsKeepsNoTensorInUse) {
  attach();
  cl_int code = CL_SUCCESS;
  const cl_event gate = opencl().create_user_event(host->context, &code);
  ASSERT_EQ(code, CL_SUCCESS);
  evn_event imported = nullptr, waiting = nullptr, copied = nullptr;
  ASSERT_OK(evn_opencl_import_event(device, gate, &imported, &error));
  std::vector<float> values = ramp(1000, 7), got(1000);
  const evn_tensor a = create(device, {1000}), b = create(device, {1000}), from = wrap(values, {1000}), to = wrap(got, {1000});
  ASSERT_OK(evn_tensor_copy_async(from, a, &imported, 1, &waiting, &error));
  fault_arm(Seam::kDevice, 1, false);
  EXPECT_NE(evn_tensor_copy_async(b, to, nullptr, 0, &copied, &error), EVN_OK);
  fault_arm(Seam::kDevice, 0, false);
  EXPECT_EQ(copied, nullptr);
  map_before_opening(b, gate);
  EXPECT_OK(evn_event_wait(waiting, UINT64_MAX, &error));
  opencl().release_event(gate);
  for (evn_event e : {imported, waiting}) EXPECT_EQ(evn_event_release(e), EVN_OK);
  for (evn_tensor t : {a, b, from, to}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

// A run that fails, or whose time is over, waits for its own work alone and leaves no other work to the device.
TEST_F(OpenClSharedEvents, ARunThatEndsEarlyDoesNotWaitForACopyThatWaitsForTheHost) {
  attach();
  cl_int code = CL_SUCCESS;
  const cl_event gate = opencl().create_user_event(host->context, &code);
  ASSERT_EQ(code, CL_SUCCESS);
  evn_event imported = nullptr, waiting = nullptr;
  ASSERT_OK(evn_opencl_import_event(device, gate, &imported, &error));
  std::vector<float> values = ramp(1000, -500), negated = values;
  for (float& v : negated) v = -v;
  const evn_tensor a = create(device, {1, 1, 10, 100}), from = wrap(values, {1, 1, 10, 100});
  const evn_tensor x = create(device, {1, 1, 10, 100}), y = create(device, {1, 1, 10, 100});
  write(x, values);
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_on("display", &model, &session);
  const auto run = [&](std::uint64_t timeout_ns) {
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    evn_tensor out = y;
    return evn_session_run(session, &x, 1, &out, 1, &options, nullptr);
  };
  ASSERT_EQ(run(0), EVN_OK);
  ASSERT_OK(evn_tensor_copy_async(from, a, &imported, 1, &waiting, &error));

  int errors = 0;
  bool reached = true;
  for (std::int64_t k = 1; reached; ++k) {
    std::atomic<bool> ended{false};
    std::thread runner([&] {
      fault_arm(Seam::kDevice, k, false);
      errors += run(0) != EVN_OK;
      ended = true;
    });
    const bool is_free = eventually([&] { return ended.load(); });
    if (!is_free) opencl().set_user_event_status(gate, CL_COMPLETE);
    runner.join();
    reached = fault_count(Seam::kDevice) >= k;
    fault_arm(Seam::kDevice, 0, false);
    ASSERT_TRUE(is_free) << "call " << k;
    ASSERT_LT(k, 1000);
  }
  EXPECT_GT(errors, 0);

  driver->hold();
  for (std::uint64_t timeout_ns = 1'000'000; !driver->holds(); timeout_ns *= 2) ASSERT_EQ(run(timeout_ns), EVN_ERROR_TIMEOUT);
  driver->let_go();
  EXPECT_EQ(run(0), EVN_OK) << "the device has ended what was left to it";
  EXPECT_EQ(evn_event_wait(waiting, 0, &error), EVN_ERROR_TIMEOUT);

  opencl().set_user_event_status(gate, CL_COMPLETE);
  EXPECT_OK(evn_event_wait(waiting, UINT64_MAX, &error));
  EXPECT_EQ(read(y), negated);
  opencl().release_event(gate);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
  for (evn_event e : {imported, waiting}) EXPECT_EQ(evn_event_release(e), EVN_OK);
  for (evn_tensor t : {a, from, x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClSharedEvents, EventsThatDoNotFitAreRefused) {
  attach();
  const HostOpenCl other(host->id);
  cl_int code = CL_SUCCESS;
  const cl_event foreign = opencl().create_user_event(other.context, &code),
                 mine = opencl().create_user_event(host->context, &code);
  opencl().set_user_event_status(foreign, CL_COMPLETE);
  opencl().set_user_event_status(mine, CL_COMPLETE);
  evn_event event = nullptr;
  EXPECT_EQ(evn_opencl_import_event(device, foreign, &event, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the event is of another context than the device");
  EXPECT_EQ(evn_opencl_import_event(cpu, mine, &event, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_import_event(nullptr, mine, &event, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_import_event(device, nullptr, &event, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_import_event(device, mine, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(event, nullptr);
  ASSERT_OK(evn_opencl_import_event(device, mine, &event, &error));
  EXPECT_OK(evn_event_wait(event, 0, &error));
  void* native = nullptr;
  EXPECT_EQ(evn_opencl_export_event(nullptr, device, &native, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_export_event(event, nullptr, &native, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_export_event(event, cpu, &native, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_export_event(event, device, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_runtime second = nullptr;
  evn_device cpu2 = nullptr;
  evn_event other_event = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &second, &error));
  ASSERT_OK(evn_runtime_device_at(second, 0, &cpu2, &error));
  ASSERT_OK(evn_device_record_event(cpu2, &other_event, &error));
  EXPECT_EQ(evn_opencl_export_event(other_event, device, &native, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(native, nullptr);
  for (evn_event e : {event, other_event}) EXPECT_EQ(evn_event_release(e), EVN_OK);
  EXPECT_EQ(evn_device_release(cpu2), EVN_OK);
  EXPECT_EQ(evn_runtime_release(second), EVN_OK);
  for (cl_event e : {foreign, mine}) opencl().release_event(e);
}

// All outlives the runtime's handle, and the host's own references of its context and queue.
TEST_F(OpenClSharedEvents, SharedObjectsOutliveTheRuntime) {
  attach();
  const cl_mem mem = host->make_buffer(4000);
  evn_tensor t = nullptr;
  ASSERT_EQ(wrap_with(mem, 0, {1000}, 0, &t), EVN_OK);
  opencl().release_mem_object(mem);
  EXPECT_EQ(evn_device_release(device), EVN_OK);
  EXPECT_EQ(evn_device_release(cpu), EVN_OK);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  device = cpu = nullptr;
  runtime = nullptr;
  host.reset();
  write(t, ramp(1000, 1));
  EXPECT_EQ(read(t), ramp(1000, 1));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

}  // namespace
}  // namespace evn::test
