// Opening, listing, memory and copies of OpenCL devices.
#include <cstring>
#include <thread>

#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

Graph relu_graph(std::int64_t n) {
  GraphBuilder b;
  b.output(b.node("Relu", {b.input("x", {n})}));
  return b.build();
}

Error open_error(const DeviceRequest& request) {
  try {
    opencl_backend.open(request);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "the device was opened";
  return {};
}

// Copies to the device and back again.
std::vector<float> round_trip(OpenClDevice& device, const std::vector<float>& x) {
  const std::size_t bytes = x.size() * sizeof(float);
  const PooledMemory memory = device.allocate(bytes, MemoryClass::kTensors);
  std::vector<float> y(x.size());
  const Buffer there{memory.memory(), 0, bytes};
  const Event written = device.copy({nullptr, {const_cast<float*>(x.data()), 0, bytes}}, {&device, there}, {});
  device.wait(device.copy({&device, there}, {nullptr, {y.data(), 0, bytes}}, {&written, 1}));
  return y;
}

TEST(OpenClLoader, AbsentLibraryIsNamed) {
  OpenClApi api{};
  std::string why;
  EXPECT_FALSE(open_opencl_library("libevener-no-such-library.so.1", &api, &why));
  EXPECT_NE(why.find("libevener-no-such-library.so.1 cannot be opened"), std::string::npos) << why;
}

TEST(OpenClLoader, LibraryWithoutTheFunctionsIsRefused) {
  OpenClApi api{};
  std::string why;
  EXPECT_FALSE(open_opencl_library("libm.so.6", &api, &why));
  EXPECT_NE(why.find("clGetPlatformIDs"), std::string::npos) << why;
}

TEST(OpenClLoader, CodesHaveNamesAndStatuses) {
  EXPECT_STREQ(cl_error_name(CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
  EXPECT_STREQ(cl_error_name(12345), "an unknown OpenCL error");
  EXPECT_EQ(cl_status(CL_MEM_OBJECT_ALLOCATION_FAILURE), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cl_status(CL_OUT_OF_RESOURCES), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(cl_status(CL_INVALID_VALUE), EVN_ERROR_INTERNAL);
  try {
    check_cl(CL_OUT_OF_RESOURCES, "clFinish", "mine");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.message, "clFinish failed: CL_OUT_OF_RESOURCES (-5)");
    EXPECT_STREQ(error.device, "mine");
  }
}

TEST(OpenClDevice, ListTellsWhatEachDeviceIs) {
  EVN_NEEDS_OPENCL();
  std::string why;
  const std::vector<DeviceListing> list = opencl_backend.list(&why);
  ASSERT_FALSE(list.empty());
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].id, "opencl:" + std::to_string(i));
    EXPECT_FALSE(list[i].description.empty());
    EXPECT_FALSE(list[i].platform.empty());
    EXPECT_FALSE(list[i].driver.empty());
    EXPECT_TRUE(list[i].kind == "cpu" || list[i].kind == "gpu" || list[i].kind == "accelerator") << list[i].kind;
    EXPECT_GT(list[i].compute_units, 0u);
    EXPECT_GT(list[i].memory_bytes, 0u);
    const DeviceProfile& profile = list[i].profile;
    EXPECT_EQ(profile.device_class, list[i].kind == "gpu"   ? EVN_DEVICE_CLASS_GPU
                                    : list[i].kind == "cpu" ? EVN_DEVICE_CLASS_CPU
                                                            : EVN_DEVICE_CLASS_ACCELERATOR);
    EXPECT_GT(profile.largest_allocation, 0u);
    EXPECT_LE(profile.largest_allocation, list[i].memory_bytes);
    EXPECT_FALSE(profile.identity.empty());
    for (std::size_t k = 0; k < i; ++k)
      EXPECT_TRUE(list[k].platform != list[i].platform || list[k].profile.identity != profile.identity);
  }
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  EXPECT_EQ(device->traits().profile.identity, list[0].profile.identity);
  EXPECT_EQ(device->traits().profile.features, list[0].profile.features);
  EXPECT_EQ(device->traits().description, list[0].description);
  EXPECT_EQ(device->traits().kind, EVN_DEVICE_OPENCL);
  EXPECT_EQ(device->traits().alignment, 128u);
  EXPECT_FALSE(device->traits().host_addressable);
}

// What a driver says that has some extensions and no others.
struct SayingDriver {
  explicit SayingDriver(const char* with) : system(opencl()) {
    extensions = with;
    OpenClApi api = system;
    get_info = system.get_device_info;
    api.get_device_info = [](cl_device_id id, cl_device_info what, std::size_t capacity, void* to, std::size_t* size) -> cl_int {
      constexpr cl_uint kPci[] = {0, 0x1f, 2, 3};
      constexpr cl_bool kYes = CL_TRUE;
      constexpr cl_uint kNone = 0;
      const auto give = [&](const void* from, std::size_t bytes) {
        if (size != nullptr) *size = bytes;
        if (to == nullptr) return CL_SUCCESS;
        if (capacity < bytes) return CL_INVALID_VALUE;
        std::memcpy(to, from, bytes);
        return CL_SUCCESS;
      };
      if (what == CL_DEVICE_EXTENSIONS) return give(extensions.c_str(), extensions.size() + 1);
      if (what == 0x410f) return give(kPci, sizeof kPci);
      if (what == 0x106a) return give("0123456789abcde", 16);
      if (what == 0x105c) return give(&kNone, sizeof kNone);
      if (what == CL_DEVICE_HOST_UNIFIED_MEMORY) return give(&kYes, sizeof kYes);
      return get_info(id, what, capacity, to, size);
    };
    Access<OpenClLibrary>::set(api);
  }
  ~SayingDriver() { Access<OpenClLibrary>::set(system); }

  const OpenClApi system;
  static inline std::string extensions;
  static inline decltype(OpenClApi::get_device_info) get_info;
};

TEST(OpenClDevice, ProfileIsWhatTheDriverSays) {
  EVN_NEEDS_OPENCL();
  const auto profile = [](const char* extensions) {
    const SayingDriver driver(extensions);
    std::string why;
    return opencl_profile(find_opencl_devices(&why).at(0));
  };
  DeviceProfile p = profile("cl_khr_fp16 cl_khr_pci_bus_info cl_khr_device_uuid");
  EXPECT_EQ(p.identity, "pci 0000:1f:02.3");
  EXPECT_EQ(p.features, static_cast<std::uint32_t>(EVN_DEVICE_FP16 | EVN_DEVICE_UNIFIED_MEMORY));
  p = profile("cl_khr_device_uuid cl_khr_integer_dot_product cl_intel_subgroups");
  EXPECT_EQ(p.identity, "uuid 30313233-3435-3637-3839-616263646500");
  EXPECT_EQ(p.features, static_cast<std::uint32_t>(EVN_DEVICE_INT8_DOT | EVN_DEVICE_UNIFIED_MEMORY | EVN_DEVICE_SUBGROUPS));
  std::string why;
  const OpenClFound found = find_opencl_devices(&why).at(0);
  EXPECT_EQ(profile("").identity, found.platform_name + ", " + found.name);
  EXPECT_EQ(profile("").features, static_cast<std::uint32_t>(EVN_DEVICE_UNIFIED_MEMORY));
}

TEST(OpenClDevice, IndexCountsAmongWhatTheGlobsLeave) {
  EVN_NEEDS_OPENCL();
  std::string why;
  const std::vector<OpenClFound> found = find_opencl_devices(&why);
  DeviceRequest request;
  request.name = "mine";
  request.settings.set_text("match.device", found[0].name.substr(0, 3) + "*");
  request.settings.set_text("match.platform", found[0].platform_name);
  request.settings.set_text("match.kind", opencl_kind(found[0]));
  EXPECT_EQ(open_opencl(request)->traits().description, found[0].name);
  request.settings.set_number("match.index", found.size());
  const Error error = open_error(request);
  EXPECT_EQ(error.status, EVN_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_STREQ(error.device, "mine");
}

TEST(OpenClDevice, NoMatchSaysWhatThereIs) {
  EVN_NEEDS_OPENCL();
  std::string why;
  const std::vector<OpenClFound> found = find_opencl_devices(&why);
  for (const char* option : {"match.vendor", "match.device", "match.platform", "match.kind"}) {
    DeviceRequest request;
    request.name = "mine";
    request.settings.set_text(option, "Nobody & Sons");
    const Error error = open_error(request);
    EXPECT_EQ(error.status, EVN_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_NE(std::string(error.message).find("Nobody & Sons"), std::string::npos) << error.message;
    EXPECT_NE(std::string(error.message).find(found[0].name), std::string::npos) << error.message;
  }
}

TEST(OpenClMemory, BytesComeBack) {
  EVN_NEEDS_OPENCL();
  const std::vector<float> x = random_floats({12345}, 1).data;
  EXPECT_EQ(round_trip(shared_device(), x), x);
}

TEST(OpenClMemory, CopiesWithinTheDeviceObeyOffsets) {
  EVN_NEEDS_OPENCL();
  OpenClDevice& device = shared_device();
  const std::vector<float> x = random_floats({256}, 1).data;
  const PooledMemory a = device.allocate(2048, MemoryClass::kTensors);
  const PooledMemory b = device.allocate(2048, MemoryClass::kTensors);
  std::vector<float> y(64);
  device.copy({nullptr, {const_cast<float*>(x.data()), 0, 1024}}, {&device, {a.memory(), 512, 1024}}, {});
  device.copy({&device, {a.memory(), 768, 256}}, {&device, {b.memory(), 128, 256}}, {});
  device.wait(device.copy({&device, {b.memory(), 128, 256}}, {nullptr, {y.data(), 0, 256}}, {}));
  EXPECT_EQ(y, std::vector<float>(x.begin() + 64, x.begin() + 128));
}

TEST(OpenClMemory, LedgerCountsByClass) {
  EVN_NEEDS_OPENCL();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  {
    const PooledMemory a = device->allocate(1000, MemoryClass::kArenas);
    const PooledMemory b = device->allocate(500, MemoryClass::kPacked);
    const PoolStats stats = device->pool().stats();
    EXPECT_EQ(stats.current, 1500u);
    EXPECT_EQ(stats.by_class[EVN_MEMORY_ARENAS], 1000u);
    EXPECT_EQ(stats.by_class[EVN_MEMORY_PACKED], 500u);
  }
  EXPECT_EQ(device->pool().stats().current, 0u);
  EXPECT_EQ(device->pool().stats().peak, 1500u);
  device->pool().trim();
  EXPECT_EQ(device->pool().stats().reserved, 0u);
}

TEST(OpenClMemory, CapIsObeyedThoughDriversAllocateLazily) {
  EVN_NEEDS_OPENCL();
  DeviceRequest request;
  request.name = "small";
  request.memory_limit = 1 << 20;
  const std::shared_ptr<OpenClDevice> device = open_opencl(request);
  const PooledMemory first = device->allocate(700000, MemoryClass::kTensors);
  try {
    const PooledMemory second = device->allocate(700000, MemoryClass::kTensors);
    ADD_FAILURE() << "the cap was passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(error.device, "small");
    EXPECT_LT(error.bytes_available, 700000u);
  }
}

TEST(OpenClMemory, CapIsNeverAboveTheDevicesMemory) {
  EVN_NEEDS_OPENCL();
  EXPECT_EQ(shared_device().pool().stats().limit, shared_device().traits().memory_bytes);
}

TEST(OpenClMemory, BufferAboveTheLargestIsRefusedWithBothSizes) {
  EVN_NEEDS_OPENCL();
  std::string why;
  const OpenClFound found = find_opencl_devices(&why)[0];
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  try {
    device->obtain(found.largest_buffer + 1, false);
    ADD_FAILURE() << "the buffer was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(error.bytes_requested, found.largest_buffer + 1);
    EXPECT_LE(error.bytes_available, found.largest_buffer);
    EXPECT_NE(std::string(error.message).find(std::to_string(error.bytes_available)), std::string::npos) << error.message;
  }
  EXPECT_EQ(round_trip(*device, {1, 2, 3}), (std::vector<float>{1, 2, 3}));
}

TEST(OpenClMemory, PinnedMemoryIsSeenByTheHostAndByKernels) {
  EVN_NEEDS_OPENCL();
  OpenClDevice& device = shared_device();
  const NodeRun run(relu_graph(1000), 1);
  const PooledMemory x = device.allocate(4000, MemoryClass::kTensors, true);
  const PooledMemory y = device.allocate(4000, MemoryClass::kTensors, true);
  const OpDesc desc = run.desc();
  std::string reason;
  const Kernel* kernel = device.find_kernel(desc, &reason);
  ASSERT_NE(kernel, nullptr) << reason;
  KernelPlan plan;
  kernel->plan(desc, &plan);
  const Buffer inputs[] = {{x.memory(), 0, 4000}};
  const Buffer outputs[] = {{y.memory(), 0, 4000}};
  KernelArgs args;
  args.desc = &desc;
  args.plan = &plan;
  args.inputs = inputs;
  args.outputs = outputs;
  for (int round = 1; round <= 3; ++round) {
    auto* in = static_cast<float*>(device.map(inputs[0], false, true));
    ASSERT_NE(in, nullptr);
    for (int i = 0; i < 1000; ++i) in[i] = static_cast<float>(i - 500 * round);
    device.unmap(inputs[0], in);
    device.enqueue({kernel, args, nullptr}, {});
    auto* out = static_cast<float*>(device.map(outputs[0], true, false));  // behind the kernel
    ASSERT_NE(out, nullptr);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], std::max(0.0f, static_cast<float>(i - 500 * round))) << i;
    device.unmap(outputs[0], out);
  }
  std::vector<float> back(1000);
  device.wait(device.copy({&device, outputs[0]}, {nullptr, {back.data(), 0, 4000}}, {}));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(back[static_cast<std::size_t>(i)], std::max(0.0f, static_cast<float>(i - 1500))) << i;
}

TEST(OpenClMemory, PlainMemoryCannotBeMappedWhereItIsTheDevicesOwn) {
  EVN_NEEDS_OPENCL();
  OpenClDriver driver;
  driver.have_own_memory();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  const PooledMemory x = device->allocate(64, MemoryClass::kTensors);
  EXPECT_EQ(device->map({x.memory(), 0, 64}, true, true), nullptr);
}

TEST(OpenClDevice, ThreadsMayShareIt) {
  EVN_NEEDS_OPENCL();
  OpenClDevice& device = shared_device();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      NodeRun run(relu_graph(3000 + t), t);
      const std::vector<float> expected = run.reference();
      for (int i = 0; i < 20; ++i) wrong[t] += run.on(device) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(OpenClDevice, OpensAndClosesManyTimes) {
  EVN_NEEDS_OPENCL();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(round_trip(*open_opencl(), {1, 2, 3}), (std::vector<float>{1, 2, 3}));
}

// ---- numerics: strict ----

std::shared_ptr<OpenClDevice> open_as(OpenClFound found) {
  DeviceRequest request;
  request.name = "test";
  cl_int code = CL_SUCCESS;
  ClContext context(opencl().create_context(nullptr, 1, &found.id, nullptr, nullptr, &code));
  EXPECT_EQ(code, CL_SUCCESS);
  ClQueue queue(opencl().create_command_queue(context.get(), found.id, 0, &code));
  EXPECT_EQ(code, CL_SUCCESS);
  return std::make_shared<OpenClDevice>(request, found, std::move(context), std::move(queue));
}

TEST(OpenClStrict, ADeviceThatFlushesTakesNoStrictNodeAndSaysWhy) {
  EVN_NEEDS_OPENCL();
  std::string why;
  OpenClFound found = find_opencl_devices(&why).at(0);
  found.denormals = false;
  const auto device = open_as(found);
  NodeRun run(relu_graph(8), 1);
  std::string reason;
  EXPECT_NE(device->find_kernel(run.desc(), &reason), nullptr) << reason;
  run.strict = true;
  EXPECT_EQ(device->find_kernel(run.desc(), &reason), nullptr);
  EXPECT_NE(reason.find("no CL_FP_DENORM"), std::string::npos) << reason;
}

// What a driver says of itself must be so: results and inputs below 2^-126, elementwise and in sums of products.
TEST(OpenClStrict, ADeviceWithDenormalsKeepsThem) {
  EVN_NEEDS_OPENCL();
  OpenClDevice& device = shared_device();
  if (!device.keeps_denormals()) GTEST_SKIP() << "the device has no CL_FP_DENORM";
  constexpr std::int64_t kCount = 1000, kInner = 24;
  GraphBuilder m;
  m.output(m.node("Mul", {m.input("a", {kCount}), m.input("b", {kCount})}));
  const Graph times = m.build();
  NodeRun mul(times, 1);
  mul.strict = true;
  mul.input(0).data.assign(kCount, 1e-20f);
  mul.input(1).data.assign(kCount, 3e-20f);
  for (const float v : mul.on(device)) ASSERT_EQ(v, 1e-20f * 3e-20f);
  mul.input(0).data.assign(kCount, 1e-40f);
  mul.input(1).data.assign(kCount, 1e10f);
  for (const float v : mul.on(device)) ASSERT_EQ(v, 1e-40f * 1e10f);
  GraphBuilder p;
  p.output(p.node("MatMul", {p.input("a", {33, kInner}), p.input("b", {kInner, 45})}));
  const Graph product = p.build();
  NodeRun matmul(product, 1);
  matmul.strict = true;
  for (const float of_b : {3e-20f, 1e18f}) {
    const float of_a = of_b < 1 ? 1e-20f : 1e-40f;
    matmul.input(0).data.assign(33 * kInner, of_a);
    matmul.input(1).data.assign(kInner * 45, of_b);
    const double sum = kInner * static_cast<double>(of_a) * static_cast<double>(of_b);
    // n u of the sum of magnitudes, and half of the smallest number for each term (tests/runtime/numerics_test.cc).
    for (const float v : matmul.on(device)) ASSERT_NEAR(v, sum, kInner * 0x1p-24 * sum * 1.001 + kInner * 0x1p-150);
  }
}

}  // namespace
}  // namespace evn::test
