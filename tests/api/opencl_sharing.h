// What a host program has made of OpenCL, and a runtime to which it gives that.
#pragma once

#include <functional>

#include "base/fault.h"
#include "evener/opencl.h"
#include "tests/api/opencl_support.h"

namespace evn::test {

// What a host program has made before it meets the library.
struct HostOpenCl {
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;

  explicit HostOpenCl(cl_device_id of) : id(of) {
    cl_int code = CL_SUCCESS;
    context = opencl().create_context(nullptr, 1, &id, nullptr, nullptr, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    queue = make_queue();
  }
  ~HostOpenCl() {
    EXPECT_EQ(opencl().release_command_queue(queue), CL_SUCCESS);
    EXPECT_EQ(opencl().release_context(context), CL_SUCCESS);
  }
  HostOpenCl(const HostOpenCl&) = delete;
  HostOpenCl& operator=(const HostOpenCl&) = delete;

  cl_command_queue make_queue(cl_command_queue_properties properties = 0) const {
    cl_int code = CL_SUCCESS;
    const cl_command_queue made = opencl().create_command_queue(context, id, properties, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    return made;
  }
  cl_mem make_buffer(std::size_t bytes, cl_mem_flags flags = CL_MEM_READ_WRITE) const {
    cl_int code = CL_SUCCESS;
    const cl_mem made = opencl().create_buffer(context, flags, bytes, nullptr, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    return made;
  }
  void fill(cl_mem buffer, std::size_t offset, const std::vector<float>& values) const {
    EXPECT_EQ(opencl().enqueue_write_buffer(queue, buffer, CL_TRUE, offset, values.size() * 4, values.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
  }
  std::vector<float> look(cl_mem buffer, std::size_t offset, std::size_t count) const {
    std::vector<float> values(count);
    EXPECT_EQ(opencl().enqueue_read_buffer(queue, buffer, CL_TRUE, offset, count * 4, values.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    return values;
  }
};

template <typename Function>
Function symbol(const char* name) {
  std::string why;
  static void* const library = os::open_library("libOpenCL.so.1", &why);
  return reinterpret_cast<Function>(os::find_symbol(library, name));
}

struct OpenClSharing : OpenClApiTest {
  std::unique_ptr<HostOpenCl> host;  // goes before the driver
  evn_device device = nullptr;

  void SetUp() override {
    OpenClApiTest::SetUp();
    if (driver == nullptr) return;
    std::string why;
    host = std::make_unique<HostOpenCl>(find_opencl_devices(&why).at(0).id);
  }
  void TearDown() override {
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_EQ(evn_device_release(device), EVN_OK);
    OpenClApiTest::TearDown();
    host.reset();
  }
  void plain_runtime(const char* config = "") {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.config_text = config;
    options.config_size = std::strlen(config);
    if (options.config_size == 0) options.config_text = nullptr;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  }
  evn_opencl_attach_options options(const char* name = "display") const {
    evn_opencl_attach_options o = EVN_OPENCL_ATTACH_OPTIONS_INIT;
    o.name = name;
    o.context = host->context;
    o.device = host->id;
    o.queue = host->queue;
    return o;
  }
  void attach() {
    plain_runtime();
    const evn_opencl_attach_options o = options();
    ASSERT_OK(evn_opencl_attach(runtime, &o, &device, &error));
  }
  evn_status attach_with(const std::function<void(evn_opencl_attach_options&)>& change) {
    evn_opencl_attach_options o = options();
    change(o);
    evn_device none = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_opencl_attach(runtime, &o, &none, &error);
    EXPECT_TRUE(status == EVN_OK || none == nullptr);
    EXPECT_EQ(evn_device_release(none), EVN_OK);
    return status;
  }
  evn_status wrap_with(cl_mem mem, uint64_t offset, std::vector<int64_t> dims, uint32_t flags, evn_tensor* tensor,
                       evn_dtype dtype = EVN_DTYPE_FLOAT32) {
    error = EVN_ERROR_INIT;
    return evn_opencl_wrap_buffer(device, mem, offset, dtype, dims.data(), static_cast<uint32_t>(dims.size()), flags, nullptr,
                                  nullptr, tensor, &error);
  }
  evn_status refused(cl_mem mem, uint64_t offset, std::vector<int64_t> dims, uint32_t flags = 0,
                     evn_dtype dtype = EVN_DTYPE_FLOAT32) {
    evn_tensor none = nullptr;
    const evn_status status = wrap_with(mem, offset, std::move(dims), flags, &none, dtype);
    EXPECT_EQ(none, nullptr);
    return status;
  }
  void load_on(const char* name, evn_model* model, evn_session* session) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {"a", "b", "c", "d"}).add_output("y", kF32).add_node("Neg", {"x"}, {"y"});
    const std::string bytes = w.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, model, &error));
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.device = name;
    ASSERT_OK(evn_session_create(runtime, *model, &o, session, &error));
  }
};

}  // namespace evn::test
