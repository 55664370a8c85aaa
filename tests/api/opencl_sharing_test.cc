// OpenCL objects that a host program shares with the library: its context and queue, and buffers.
#include "tests/api/opencl_sharing.h"

namespace evn::test {
namespace {

TEST_F(OpenClSharing, AttachedDevicesUseTheHostsObjects) {
  attach();
  const int contexts = driver->calls(OpenClDriver::kContext);
  void *context = nullptr, *id = nullptr, *queue = nullptr;
  ASSERT_OK(evn_opencl_device_objects(device, &context, &id, &queue, &error));
  EXPECT_EQ(context, host->context);
  EXPECT_EQ(id, host->id);
  EXPECT_EQ(queue, host->queue);
  ASSERT_OK(evn_opencl_device_objects(device, nullptr, nullptr, nullptr, &error));
  // One physical device is one device, under its other names too.
  for (const char* name : {"display", "opencl", "opencl:0"}) {
    evn_device same = nullptr;
    ASSERT_OK(evn_runtime_device_find(runtime, name, &same, &error));
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    ASSERT_OK(evn_device_get_info(same, &info, &error));
    EXPECT_STREQ(info.name, "display");
    EXPECT_EQ(evn_device_release(same), EVN_OK);
  }
  EXPECT_EQ(driver->calls(OpenClDriver::kContext), contexts);
}

TEST_F(OpenClSharing, StoringProgramsNeedsAnOpenClDeviceAndAFolder) {
  attach();
  std::uint32_t stored = 7, refused = 7;
  EXPECT_EQ(evn_opencl_store_programs(nullptr, "programs", 0, &stored, &refused, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_store_programs(cpu, "programs", 0, &stored, &refused, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_store_programs(device, nullptr, 0, &stored, &refused, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_store_programs(device, "", 0, &stored, &refused, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "`folder` is empty");
  EXPECT_EQ(evn_opencl_store_programs(device, "programs", 2, &stored, &refused, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "flags is 2");
  EXPECT_EQ(stored, 7u);
  EXPECT_EQ(refused, 7u);
}

// The host's kernel, or here its copy, then a run, then the host's look: no byte goes through the library's transfers.
TEST_F(OpenClSharing, RunsUseTheHostsBuffers) {
  attach();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_on("display", &model, &session);
  const cl_mem in = host->make_buffer(1024 + 4000), out = host->make_buffer(4000);
  evn_tensor x = nullptr, y = nullptr;
  ASSERT_EQ(wrap_with(in, 1024, {1, 1, 10, 100}, 0, &x), EVN_OK) << error.message;
  ASSERT_EQ(wrap_with(out, 0, {1, 1, 10, 100}, 0, &y), EVN_OK) << error.message;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> values = ramp(1000, static_cast<float>(round));
    host->fill(in, 1024, values);
    const int transfers = driver->transfers();
    evn_tensor result = y;
    ASSERT_OK(evn_session_run(session, &x, 1, &result, 1, nullptr, &error));
    EXPECT_EQ(result, y);
    EXPECT_EQ(driver->transfers(), transfers) << "bytes were copied";
    for (float& v : values) v = -v;
    EXPECT_EQ(host->look(out, 0, 1000), values);
    EXPECT_EQ(read(y), values);
  }
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(device, &stats, &error));
  EXPECT_EQ(stats.by_class[EVN_MEMORY_TENSORS], 0u) << "the host's bytes are counted";
  void* mem = nullptr;
  uint64_t offset = 0;
  ASSERT_OK(evn_opencl_get_buffer(x, &mem, &offset, &error));
  EXPECT_EQ(mem, in);
  EXPECT_EQ(offset, 1024u);
  for (const cl_mem m : {in, out}) opencl().release_mem_object(m);
  EXPECT_EQ(read(x)[1], 3.0f) << "the tensor has kept its memory";
  for (evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(OpenClSharing, TensorsOfTheLibraryHaveBuffers) {
  make_runtime();
  void *context = nullptr, *mem = nullptr, *queue = nullptr;
  uint64_t offset = 1;
  ASSERT_OK(evn_opencl_device_objects(gpu, &context, nullptr, &queue, &error));
  const evn_tensor t = create(gpu, {1000}), empty = create(gpu, {0}), on_cpu = create(cpu, {1});
  write(t, ramp(1000, 5));
  ASSERT_OK(evn_opencl_get_buffer(t, &mem, &offset, &error));
  EXPECT_EQ(offset, 0u);
  std::vector<float> seen(1000);
  EXPECT_EQ(opencl().enqueue_read_buffer(static_cast<cl_command_queue>(queue), static_cast<cl_mem>(mem), CL_TRUE, 0, 4000,
                                         seen.data(), 0, nullptr, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(seen, ramp(1000, 5));
  ASSERT_OK(evn_opencl_get_buffer(empty, &mem, &offset, &error));
  EXPECT_EQ(mem, nullptr);
  EXPECT_EQ(evn_opencl_get_buffer(on_cpu, &mem, &offset, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_get_buffer(nullptr, &mem, &offset, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_get_buffer(t, nullptr, &offset, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_get_buffer(t, &mem, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_device_objects(cpu, &context, nullptr, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_device_objects(nullptr, &context, nullptr, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  for (evn_tensor one : {t, empty, on_cpu}) EXPECT_EQ(evn_tensor_release(one), EVN_OK);
}

TEST_F(OpenClSharing, AttachRefusesWhatDoesNotFit) {
  plain_runtime();
  EXPECT_EQ(evn_opencl_attach(runtime, nullptr, &device, &error), EVN_ERROR_INVALID_ARGUMENT);
  const evn_opencl_attach_options good = options();
  EXPECT_EQ(evn_opencl_attach(nullptr, &good, &device, &error), EVN_ERROR_INVALID_HANDLE);
  using Options = evn_opencl_attach_options;
  EXPECT_EQ(attach_with([](Options& o) { o.struct_size = 8; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(attach_with([](Options& o) { o.flags = 1; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(attach_with([](Options& o) { o.name = nullptr; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(attach_with([](Options& o) { o.context = nullptr; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(attach_with([](Options& o) { o.device = nullptr; }), EVN_ERROR_INVALID_ARGUMENT);
  const std::string longest(64, 'a');
  for (const char* name : {"", "cpu", "gpu", "gpu:1", "opencl", "opencl:7", "auto", "1a", "a b", "a\n", longest.c_str()}) {
    EXPECT_EQ(attach_with([&](Options& o) { o.name = name; }), EVN_ERROR_INVALID_ARGUMENT) << name;
  }
  const HostOpenCl other(host->id);
  EXPECT_EQ(attach_with([&](Options& o) { o.queue = other.queue; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the queue is of another context");
  EXPECT_STREQ(error.device, "display");
  cl_int code = CL_SUCCESS;
  if (const cl_command_queue q =
          opencl().create_command_queue(host->context, host->id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code)) {
    EXPECT_EQ(attach_with([&](Options& o) { o.queue = q; }), EVN_ERROR_INVALID_ARGUMENT);
    opencl().release_command_queue(q);
  }
  std::string why;
  for (const OpenClFound& found : find_opencl_devices(&why)) {
    if (found.id == host->id) continue;
    EXPECT_EQ(attach_with([&](Options& o) { o.device = found.id; }), EVN_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(attach_with([](Options&) {}), EVN_OK) << error.message;
  EXPECT_EQ(attach_with([](Options&) {}), EVN_ERROR_INVALID_ARGUMENT) << "the name is taken";
  EXPECT_EQ(attach_with([](Options& o) { o.name = "second"; }), EVN_ERROR_WRONG_STATE) << "the device is open";
  EXPECT_NE(std::string(error.message).find("display"), std::string::npos) << error.message;
}

TEST_F(OpenClSharing, AnOpenDeviceIsNotAttached) {
  make_runtime();
  EXPECT_EQ(attach_with([](evn_opencl_attach_options&) {}), EVN_ERROR_WRONG_STATE);
  EXPECT_NE(std::string(error.message).find("opencl:0"), std::string::npos) << error.message;
}

TEST_F(OpenClSharing, TheConfigurationNamesWhatTheHostAttaches) {
  plain_runtime(
      "devices: {display: {type: opencl, attached: true, memory_limit: 1MiB}}\n"
      "placement: {rules: [{match: {op: Neg}, device: display}]}");
  evn_device none = nullptr;
  EXPECT_EQ(evn_runtime_device_find(runtime, "display", &none, &error), EVN_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_NE(std::string(error.message).find("the host attaches it"), std::string::npos) << error.message;
  const evn_opencl_attach_options o = options();
  ASSERT_OK(evn_opencl_attach(runtime, &o, &device, &error));
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(device, &stats, &error));
  EXPECT_EQ(stats.limit, 1u << 20);
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_on(nullptr, &model, &session);
  std::vector<char> text(1 << 16);
  std::size_t size = 0;
  ASSERT_OK(evn_session_explain(session, EVN_FORMAT_TEXT, text.data(), text.size(), &size, &error));
  EXPECT_NE(std::string(text.data()).find("display"), std::string::npos);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(OpenClSharing, WrapRefusesWhatDoesNotFit) {
  attach();
  const cl_mem mem = host->make_buffer(4096), constant = host->make_buffer(4096, CL_MEM_READ_ONLY),
               written = host->make_buffer(4096, CL_MEM_WRITE_ONLY), closed = host->make_buffer(4096, CL_MEM_HOST_NO_ACCESS);
  const HostOpenCl other(host->id);
  const cl_mem foreign = other.make_buffer(4096);
  EXPECT_EQ(refused(nullptr, 0, {10}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(foreign, 0, {10}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the buffer is of another context than the device");
  EXPECT_EQ(refused(mem, 0, {1025}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error.bytes_requested, 4100u);
  EXPECT_EQ(refused(mem, 4096, {1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(mem, UINT64_MAX - 127, {1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(mem, 4, {1}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refused(mem, 0, {-1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(mem, 0, {int64_t{1} << 40, int64_t{1} << 40}), EVN_ERROR_LIMIT);
  EXPECT_EQ(refused(mem, 0, {1}, EVN_TENSOR_PINNED), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(mem, 0, {1}, 0, EVN_DTYPE_STRING), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refused(mem, 0, {1}, 0, static_cast<evn_dtype>(999)), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused(constant, 0, {1}), EVN_ERROR_INVALID_ARGUMENT) << "it would be written";
  EXPECT_EQ(refused(written, 0, {1}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refused(closed, 0, {1}), EVN_ERROR_UNSUPPORTED);
  const int64_t dims[] = {1};
  evn_tensor t = nullptr;
  EXPECT_EQ(evn_opencl_wrap_buffer(cpu, mem, 0, EVN_DTYPE_FLOAT32, dims, 1, 0, nullptr, nullptr, &t, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_wrap_buffer(nullptr, mem, 0, EVN_DTYPE_FLOAT32, dims, 1, 0, nullptr, nullptr, &t, &error),
            EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_opencl_wrap_buffer(device, mem, 0, EVN_DTYPE_FLOAT32, dims, 1, 0, nullptr, nullptr, nullptr, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_opencl_wrap_buffer(device, mem, 0, EVN_DTYPE_FLOAT32, nullptr, 1, 0, nullptr, nullptr, &t, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(t, nullptr);
  // A read-only one is read, and not written.
  ASSERT_EQ(wrap_with(constant, 0, {1024}, EVN_TENSOR_READ_ONLY, &t), EVN_OK) << error.message;
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  ASSERT_OK(evn_tensor_get_info(t, &info, &error));
  EXPECT_EQ(info.flags, uint32_t{EVN_TENSOR_READ_ONLY});
  const evn_tensor from = create(device, {1024});
  EXPECT_EQ(evn_tensor_copy(from, t, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_event event = nullptr;
  EXPECT_EQ(evn_tensor_copy_async(from, t, nullptr, 0, &event, &error), EVN_ERROR_INVALID_ARGUMENT);
  for (evn_tensor one : {t, from}) EXPECT_EQ(evn_tensor_release(one), EVN_OK);
  for (const cl_mem m : {mem, constant, written, closed, foreign}) opencl().release_mem_object(m);
}

// Two handles of one memory are one memory: a part of a buffer, and the buffer.
TEST_F(OpenClSharing, PartsOfBuffersAreOneMemory) {
  attach();
  const cl_mem whole = host->make_buffer(16384);
  const cl_buffer_region region{8192, 8192};
  cl_int code = CL_SUCCESS;
  const cl_mem part = symbol<decltype(&::clCreateSubBuffer)>("clCreateSubBuffer")(whole, CL_MEM_READ_WRITE,
                                                                                  CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  ASSERT_EQ(code, CL_SUCCESS);
  evn_tensor a = nullptr, b = nullptr;
  ASSERT_EQ(wrap_with(part, 128, {1000}, 0, &a), EVN_OK) << error.message;
  ASSERT_EQ(wrap_with(whole, 8192 + 256, {1000}, 0, &b), EVN_OK) << error.message;
  opencl().release_mem_object(part);
  opencl().release_mem_object(whole);
  void* mem = nullptr;
  uint64_t offset = 0;
  ASSERT_OK(evn_opencl_get_buffer(a, &mem, &offset, &error));
  EXPECT_EQ(offset, 8192u + 128);
  const std::vector<float> values = ramp(1000, 1);
  write(a, values);
  ASSERT_OK(evn_tensor_copy(a, b, &error));  // they overlap
  EXPECT_EQ(read(b), values);
  EXPECT_EQ(read(a)[32], 1.0f);
  for (evn_tensor t : {a, b}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClSharing, DeletersAreCalledWithTheMemory) {
  attach();
  const cl_mem mem = host->make_buffer(512);
  static void *deleted_user, *deleted;
  deleted_user = deleted = nullptr;
  int mark = 0;
  const int64_t dims[] = {128};
  evn_tensor t = nullptr;
  const evn_deleter deleter = [](void* user, void* what) { deleted_user = user, deleted = what; };
  EXPECT_EQ(evn_opencl_wrap_buffer(device, mem, 512, EVN_DTYPE_FLOAT32, dims, 1, 0, deleter, &mark, &t, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(deleted, nullptr);
  ASSERT_OK(evn_opencl_wrap_buffer(device, mem, 0, EVN_DTYPE_FLOAT32, dims, 1, 0, deleter, &mark, &t, &error));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(deleted, mem);
  EXPECT_EQ(deleted_user, &mark);
  opencl().release_mem_object(mem);
}

// The k-th OpenCL call of attaching and wrapping fails: an error comes out, nothing stays, and the next attempt works.
TEST_F(OpenClSharing, EveryCallMayFail) {
  const cl_mem mem = host->make_buffer(4096);
  int errors = 0, in_a_row = 0;
  for (int k = 1; in_a_row < 60 && k < 500; ++k) {
    plain_runtime();
    const evn_opencl_attach_options o = options();
    fault_arm(Seam::kDevice, k, false);
    evn_tensor t = nullptr;
    evn_status status = evn_opencl_attach(runtime, &o, &device, &error);
    EXPECT_EQ(status == EVN_OK, device != nullptr);
    if (status == EVN_OK) status = wrap_with(mem, 0, {1024}, 0, &t);
    fault_arm(Seam::kDevice, 0, false);
    errors += status != EVN_OK;
    in_a_row = status == EVN_OK ? in_a_row + 1 : 0;
    if (device == nullptr) {
      ASSERT_OK(evn_opencl_attach(runtime, &o, &device, &error));
    }
    if (t == nullptr) {
      ASSERT_EQ(wrap_with(mem, 0, {1024}, 0, &t), EVN_OK) << error.message;
    }
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    EXPECT_EQ(evn_device_release(device), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    device = cpu = nullptr;
    runtime = nullptr;
  }
  EXPECT_GE(errors, 10);
  EXPECT_EQ(in_a_row, 60);
  opencl().release_mem_object(mem);
}

}  // namespace
}  // namespace evn::test
