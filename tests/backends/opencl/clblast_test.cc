// CLBlast: when it is used, and that whatever it does harms nobody. Most tests put functions of their own in its place, which
// multiply on the host.
#include <filesystem>
#include <fstream>
#include <thread>

#include "ops/gemm.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

namespace fs = std::filesystem;

// ---- stand-ins for the library ----

std::vector<float> read_buffer(cl_command_queue queue, cl_mem buffer, std::size_t offset, std::size_t count) {
  std::vector<float> data(count);
  EXPECT_EQ(opencl().enqueue_read_buffer(queue, buffer, CL_TRUE, offset * sizeof(float), count * sizeof(float), data.data(), 0,
                                         nullptr, nullptr),
            CL_SUCCESS);
  return data;
}

int host_sgemm(int layout, int a_transpose, int b_transpose, std::size_t m, std::size_t n, std::size_t k, float alpha,
               cl_mem a_buffer, std::size_t a_offset, std::size_t a_ld, cl_mem b_buffer, std::size_t b_offset, std::size_t b_ld,
               float beta, cl_mem c_buffer, std::size_t c_offset, std::size_t c_ld, cl_command_queue* queue, cl_event* event,
               cl_mem) {
  EXPECT_EQ(layout, kClBlastRowMajor);
  EXPECT_EQ(beta, 0.0f);
  EXPECT_EQ(c_ld, n);
  EXPECT_EQ(event, nullptr);
  const std::vector<float> a = read_buffer(*queue, a_buffer, a_offset, m * k), b = read_buffer(*queue, b_buffer, b_offset, n * k);
  std::vector<float> c(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t d = 0; d < k; ++d) {
      const float v = alpha * a[a_transpose == kClBlastTransposed ? d * a_ld + i : i * a_ld + d];
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += v * b[b_transpose == kClBlastTransposed ? j * b_ld + d : d * b_ld + j];
    }
  }
  return opencl().enqueue_write_buffer(*queue, c_buffer, CL_TRUE, c_offset * sizeof(float), m * n * sizeof(float), c.data(), 0,
                                       nullptr, nullptr);
}

int idle_sgemm(int, int, int, std::size_t, std::size_t, std::size_t, float, cl_mem, std::size_t, std::size_t, cl_mem, std::size_t,
               std::size_t, float, cl_mem, std::size_t, std::size_t, cl_command_queue*, cl_event*, cl_mem) {
  return 0;
}

int failing_sgemm(int, int, int, std::size_t, std::size_t, std::size_t, float, cl_mem, std::size_t, std::size_t, cl_mem,
                  std::size_t, std::size_t, float, cl_mem, std::size_t, std::size_t, cl_command_queue*, cl_event*, cl_mem) {
  return -2045;
}

int no_temp(int, int, int, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
            std::size_t, cl_command_queue*, std::size_t* bytes) {
  *bytes = 0;
  return 0;
}

constexpr std::size_t kTemp = 1u << 20;
int large_temp(int, int, int, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
               std::size_t, std::size_t, cl_command_queue*, std::size_t* bytes) {
  *bytes = kTemp;
  return 0;
}

std::size_t g_temp = kTemp;
int growing_temp(int, int, int, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
                 std::size_t, std::size_t, cl_command_queue*, std::size_t* bytes) {
  *bytes = g_temp;
  return 0;
}

constexpr ClBlastApi kHost{host_sgemm, no_temp};
constexpr ClBlastApi kHostWithTemp{host_sgemm, large_temp};
constexpr ClBlastApi kHostWithGrowingTemp{host_sgemm, growing_temp};
constexpr ClBlastApi kIdle{idle_sgemm, no_temp};
constexpr ClBlastApi kFailing{failing_sgemm, no_temp};

// ---- devices and products ----

std::shared_ptr<OpenClDevice> open_with(const ClBlastApi* api, const char* mode = "always", const std::string& cache_dir = "",
                                        std::uint64_t memory_limit = UINT64_MAX, const LogSink& log = {}) {
  std::string why;
  const OpenClFound found = find_opencl_devices(&why).at(0);
  DeviceRequest request;
  request.name = "test";
  request.settings.set_text("clblast", mode);
  request.cache_dir = cache_dir;
  request.memory_limit = memory_limit;
  request.log = log;
  cl_int code = CL_SUCCESS;
  ClContext context(opencl().create_context(nullptr, 1, &found.id, nullptr, nullptr, &code));
  EXPECT_EQ(code, CL_SUCCESS);
  ClQueue queue(opencl().create_command_queue(context.get(), found.id, 0, &code));
  EXPECT_EQ(code, CL_SUCCESS);
  return std::make_shared<OpenClDevice>(request, found, std::move(context), std::move(queue), api);
}

Graph product(std::int64_t m, std::int64_t n, std::int64_t k) {
  GraphBuilder b;
  b.output(b.node("MatMul", {b.input("a", {m, k}), b.random("b", {k, n})}));
  return b.build();
}

Graph gemm(bool transpose_a, bool transpose_b, const Shape& c) {
  constexpr std::int64_t m = 33, n = 45, k = 21;
  GraphBuilder b;
  const ValueId a = b.input("a", transpose_a ? Shape{k, m} : Shape{m, k});
  const ValueId right = b.random("b", transpose_b ? Shape{n, k} : Shape{k, n});
  b.output(b.node("Gemm", {a, right, b.input("c", c)},
                  {{"alpha", 0.5f}, {"beta", 1.5f}, {"transA", std::int64_t{transpose_a}}, {"transB", std::int64_t{transpose_b}}}));
  return b.build();
}

std::string kernel_of(OpenClDevice& device, const Graph& graph) {
  const Kernel* kernel = device.find_kernel(NodeRun(graph, 1).desc(), nullptr);
  return kernel == nullptr ? "" : kernel->name;
}

void expect_right(OpenClDevice& device, const Graph& graph) {
  NodeRun run(graph, 5);
  const Tolerance own = graph.nodes[0].op->tolerance;
  expect_near(run.on(device), run.reference(), {own.rtol + 2e-6, own.atol + 2e-6});
}

class ClBlastTest : public ::testing::Test {
 protected:
  void SetUp() override { EVN_NEEDS_OPENCL(); }
};

TEST(ClBlastLibrary, AbsentOneIsNamed) {
  ClBlastApi api{};
  std::string why;
  EXPECT_FALSE(open_clblast_library("libevener-no-such-library.so.1", &api, &why));
  EXPECT_NE(why.find("libevener-no-such-library.so.1 cannot be opened"), std::string::npos) << why;
}

TEST(ClBlastLibrary, AnotherOneIsRefused) {
  ClBlastApi api{};
  std::string why;
  EXPECT_FALSE(open_clblast_library("libm.so.6", &api, &why));
  EXPECT_EQ(why, "libm.so.6 is no CLBlast of version 1.5 or later");
}

TEST_F(ClBlastTest, IsNotTriedOnACpuUnlessAsked) {
  const auto device = open_with(&kHost, "auto");
  std::string why;
  if ((find_opencl_devices(&why).at(0).type & CL_DEVICE_TYPE_CPU) == 0) GTEST_SKIP() << "the device is no CPU";
  EXPECT_EQ(kernel_of(*device, product(256, 256, 256)), "matmul");
  EXPECT_EQ(device->clblast().trials(), 0);
  EXPECT_NE(clblast_outlook(true).find("clblast: always"), std::string::npos);
}

TEST_F(ClBlastTest, NeverMeansNever) {
  const auto device = open_with(&kHost, "never");
  EXPECT_EQ(kernel_of(*device, product(256, 256, 256)), "matmul");
  EXPECT_EQ(device->clblast().trials(), 0);
}

TEST_F(ClBlastTest, TakesProductsAfterItsResultsWereRight) {
  const auto device = open_with(&kHost);
  EXPECT_EQ(kernel_of(*device, product(33, 45, 21)), "matmul_clblast");
  EXPECT_EQ(device->clblast().trials(), 1);
  EXPECT_EQ(device->clblast().verdict(), "its results are right; used for every product that it takes");
  expect_right(*device, product(33, 45, 21));
  EXPECT_EQ(device->clblast().trials(), 1);
}

// Its programs are built with options that are not ours.
TEST_F(ClBlastTest, StrictProductsAreOurOwn) {
  const auto device = open_with(&kHost);
  if (!device->keeps_denormals()) GTEST_SKIP() << "the device has no CL_FP_DENORM";
  NodeRun run(product(33, 45, 21), 1);
  run.strict = true;
  std::string reason;
  const Kernel* const kernel = device->find_kernel(run.desc(), &reason);
  ASSERT_NE(kernel, nullptr) << reason;
  EXPECT_STREQ(kernel->name, "matmul");
}

TEST_F(ClBlastTest, AddendAndEpilogueFollow) {
  const auto device = open_with(&kHost);
  for (const int transposed : {0, 1, 2, 3}) {
    for (const Shape& c : {Shape{}, Shape{45}, Shape{33, 1}, Shape{1, 45}, Shape{33, 45}}) {
      for (const bool with_epilogue : {false, true}) {
        Graph graph = gemm((transposed & 1) != 0, (transposed & 2) != 0, c);
        if (with_epilogue) add_epilogue(&graph);
        ASSERT_EQ(kernel_of(*device, graph), "gemm_clblast");
        SCOPED_TRACE(std::to_string(transposed) + " " + std::to_string(c.rank()) + (with_epilogue ? " with an epilogue" : ""));
        expect_right(*device, graph);
      }
    }
  }
}

TEST_F(ClBlastTest, LeadingAxesAreRows) {
  const auto device = open_with(&kHost);
  GraphBuilder b;
  b.output(b.node("MatMul", {b.input("a", {3, 7, 32}), b.random("b", {32, 40})}));
  const Graph graph = b.build();
  ASSERT_EQ(kernel_of(*device, graph), "matmul_clblast");
  expect_right(*device, graph);
}

TEST_F(ClBlastTest, WhatItDoesNotTakeStays) {
  const auto device = open_with(&kHost);
  EXPECT_EQ(kernel_of(*device, product(15, 45, 21)), "matmul") << "a side below 16";
  EXPECT_EQ(kernel_of(*device, product(33, 1, 21)), "matmul");
  GraphBuilder batched;
  batched.output(batched.node("MatMul", {batched.input("a", {2, 32, 32}), batched.input("b", {2, 32, 32})}));
  EXPECT_EQ(kernel_of(*device, batched.build()), "matmul") << "several right-hand matrices";
  EXPECT_EQ(device->clblast().trials(), 0);
}

TEST_F(ClBlastTest, UnknownDimsStay) {
  const auto device = open_with(&kHost);
  const Graph graph = product(64, 64, 64);
  const NodeRun run(graph, 1);
  const OpDesc known = run.desc();
  std::vector<TensorDesc> inputs(known.inputs.begin(), known.inputs.end()), outputs(known.outputs.begin(), known.outputs.end());
  inputs[0].shape = Shape{-1, 64};
  outputs[0].shape = Shape{-1, 64};
  EXPECT_STREQ(device->find_kernel({known.node, inputs, outputs, known.constants}, nullptr)->name, "matmul");
}

// What the node asks for (`products`) counts before the device's `clblast`, but for `never`.
TEST_F(ClBlastTest, AProductMayAskForItOrForTheOwnKernels) {
  const auto kernel_by = [](OpenClDevice& device, const Graph& graph, Products products) {
    const NodeRun run(graph, 1);
    OpDesc desc = run.desc();
    desc.products = products;
    return std::string(device.find_kernel(desc, nullptr)->name);
  };
  const auto why = [](OpenClDevice& device, const Graph& graph, Products library) {
    const NodeRun run(graph, 1);
    OpDesc desc = run.desc();
    desc.products = library;
    const char* const reason = device.why_not_by(library, desc);
    return std::string(reason != nullptr ? reason : "");
  };
  const auto device = open_with(&kHost, "auto");
  EXPECT_EQ(kernel_by(*device, product(33, 45, 21), Products::kClBlast), "matmul_clblast");
  EXPECT_EQ(kernel_by(*device, gemm(false, true, {45}), Products::kClBlast), "gemm_clblast");
  EXPECT_EQ(why(*device, product(33, 45, 21), Products::kClBlast), "");
  EXPECT_EQ(kernel_by(*device, product(33, 45, 21), Products::kAuto), "matmul") << "a CPU device";
  EXPECT_EQ(why(*device, product(15, 45, 21), Products::kClBlast),
            "a dim that is not known when the model is placed, or a side below 16");
  EXPECT_EQ(why(*device, product(33, 45, 21), Products::kOpenBlas), "this device does not have it");
  GraphBuilder other;
  other.output(other.node("Relu", {other.input("a", {32, 32})}));
  EXPECT_EQ(why(*device, other.build(), Products::kClBlast), "it multiplies for MatMul and Gemm alone");
  EXPECT_EQ(kernel_by(*open_with(&kHost, "always"), product(33, 45, 21), Products::kOwn), "matmul");
  const auto never = open_with(&kHost, "never");
  EXPECT_EQ(kernel_by(*never, product(33, 45, 21), Products::kClBlast), "matmul");
  EXPECT_EQ(why(*never, product(33, 45, 21), Products::kClBlast), "the configuration says `clblast: never`");
  const auto wrong = open_with(&kIdle, "auto");
  EXPECT_EQ(kernel_by(*wrong, product(33, 45, 21), Products::kClBlast), "matmul");
  EXPECT_EQ(why(*wrong, product(33, 45, 21), Products::kClBlast), "its results are wrong for 128 x 128 x 128");
}

TEST_F(ClBlastTest, WrongResultsExcludeIt) {
  const auto device = open_with(&kIdle);
  EXPECT_EQ(kernel_of(*device, product(64, 64, 64)), "matmul");
  EXPECT_EQ(device->clblast().verdict(), "its results are wrong for 128 x 128 x 128");
  expect_right(*device, product(64, 64, 64));
}

TEST_F(ClBlastTest, WhoAsksForItLearnsThatItIsNotUsed) {
  std::string line;
  LogSink log;
  log.callback = [](void* user, evn_log_level level, const char* message) {
    if (level == EVN_LOG_WARNING) *static_cast<std::string*>(user) += message;
  };
  log.user = &line;
  kernel_of(*open_with(&kHost, "always", "", UINT64_MAX, log), product(64, 64, 64));
  EXPECT_EQ(line, "");
  kernel_of(*open_with(&kIdle, "always", "", UINT64_MAX, log), product(64, 64, 64));
  EXPECT_EQ(line, "CLBlast on device test: its results are wrong for 128 x 128 x 128");
}

TEST_F(ClBlastTest, FailureExcludesIt) {
  const auto device = open_with(&kFailing);
  EXPECT_EQ(kernel_of(*device, product(64, 64, 64)), "matmul");
  EXPECT_NE(device->clblast().verdict().find("the trial failed: CLBlast's Sgemm of 128 x 128 x 128 failed with status -2045"),
            std::string::npos)
      << device->clblast().verdict();
  expect_right(*device, product(64, 64, 64));
}

// ---- measuring, with a clock of our own ----

struct Script {
  std::vector<std::uint64_t> own, clblast;  // ns of one product, by size
  int calls = 0;
  std::uint64_t time = 0;
};
Script g_script;

// Called before and after each product: the own one and CLBlast's in turns, five times for each size.
std::uint64_t scripted_clock() {
  const int product = g_script.calls / 2;
  const auto size = static_cast<std::size_t>(product / 10);
  if (g_script.calls++ % 2 == 1) g_script.time += (product % 2 == 0 ? g_script.own : g_script.clblast).at(size);
  return g_script.time;
}

ClBlastVerdict try_with(const std::vector<std::uint64_t>& own, const std::vector<std::uint64_t>& clblast) {
  const auto device = open_with(&kHost);
  g_script = {own, clblast};
  return device->clblast_trial(scripted_clock);
}

TEST_F(ClBlastTest, FasterOneIsUsedFromTheSizeWhereItWins) {
  const ClBlastVerdict verdict = try_with({1000, 400'000'000}, {2000, 200'000'000});
  EXPECT_EQ(verdict.from, 256u * 256 * 256);
  EXPECT_EQ(verdict.text, "its speed against the own kernels is 50 % at 128, 200 % at 256; used from 16777216 multiply-adds on");
}

TEST_F(ClBlastTest, SlowerOneIsNotUsed) {
  const ClBlastVerdict verdict = try_with({1000, 400'000'000}, {500, 500'000'000});
  EXPECT_EQ(verdict.from, UINT64_MAX);
  EXPECT_EQ(verdict.text, "its speed against the own kernels is 200 % at 128, 80 % at 256; not used");
}

TEST_F(ClBlastTest, LittleGainIsNoGain) { EXPECT_EQ(try_with({400'000'000}, {380'000'000}).from, UINT64_MAX); }

// ---- the folder ----

TEST_F(ClBlastTest, VerdictIsKept) {
  std::string folder = (fs::temp_directory_path() / "evn-clblast-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto trials = [&](const ClBlastApi* api, const char* expected) {
    const auto device = open_with(api, "always", folder);
    EXPECT_EQ(kernel_of(*device, product(64, 64, 64)), expected);
    return device->clblast().trials();
  };
  EXPECT_EQ(trials(&kHost, "matmul_clblast"), 1);
  EXPECT_EQ(trials(&kHost, "matmul_clblast"), 0);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("clblast-"))
      std::ofstream(entry.path(), std::ios::binary | std::ios::app) << "x";
  }
  EXPECT_EQ(trials(&kIdle, "matmul"), 1) << "a damaged file counts as absent";
  EXPECT_EQ(trials(&kHost, "matmul"), 0) << "a bad result is kept as well";
  fs::remove_all(folder);
}

TEST_F(ClBlastTest, FailedTrialIsNotKept) {
  std::string folder = (fs::temp_directory_path() / "evn-clblast-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_EQ(kernel_of(*open_with(&kFailing, "always", folder), product(64, 64, 64)), "matmul");
  EXPECT_EQ(kernel_of(*open_with(&kHost, "always", folder), product(64, 64, 64)), "matmul_clblast");
  fs::remove_all(folder);
}

// ---- memory ----

TEST_F(ClBlastTest, WorkSpaceIsTheDevices) {
  const auto device = open_with(&kHostWithTemp);
  expect_right(*device, product(64, 64, 64));
  EXPECT_EQ(device->pool().stats().by_class[EVN_MEMORY_SCRATCH], kTemp);
}

// Earlier commands hang, which may use the old work space: the product ends with its time, or with the device's quarantine.
TEST_F(ClBlastTest, AWorkSpaceThatGrowsIsNotWaitedForWithoutEnd) {
  OpenClDriver driver;
  g_temp = kTemp;
  const auto device = open_with(&kHostWithGrowingTemp);
  device->begin_quarantines({}, 1);
  const Graph graph = product(64, 64, 64);
  expect_right(*device, graph);
  g_temp = 2 * kTemp;
  const PooledMemory there = device->allocate(128, MemoryClass::kTensors);
  const Location first{device.get(), {there.memory(), 0, 64}}, second{device.get(), {there.memory(), 64, 64}};
  for (const bool is_left : {false, true}) {
    driver.hold();
    const Event hangs = device->copy(first, second, {});
    ASSERT_TRUE(driver.holds());
    if (is_left) device->leave_until(hangs, std::make_shared<int>(1));
    EXPECT_EQ(status_within(driver, is_left ? 0 : 20'000'000, [&] { NodeRun(graph, 5).on(*device); }),
              is_left ? EVN_ERROR_DEVICE_LOST : EVN_ERROR_TIMEOUT);
    driver.let_go();
    EXPECT_TRUE(eventually([&] { return !device->is_out(); }));
  }
  EXPECT_EQ(device->pool().stats().by_class[EVN_MEMORY_SCRATCH], kTemp);
  expect_right(*device, graph);
  EXPECT_EQ(device->pool().stats().by_class[EVN_MEMORY_SCRATCH], 2 * kTemp);
}

TEST_F(ClBlastTest, TrialThatDoesNotFitIsNoHarm) {
  const auto device = open_with(&kHostWithTemp, "always", "", kTemp);
  EXPECT_EQ(kernel_of(*device, product(64, 64, 64)), "matmul");
  EXPECT_NE(device->clblast().verdict().find("the trial failed"), std::string::npos) << device->clblast().verdict();
  expect_right(*device, product(64, 64, 64));
}

// ---- the library itself ----

TEST_F(ClBlastTest, DebiansIsRightOnThisDevice) {
  std::string why;
  if (clblast_api(&why) == nullptr) {
    const char* required = std::getenv("EVN_REQUIRE_OPENCL");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1") << why;
    GTEST_SKIP() << why;
  }
  const auto device = open_with(nullptr);
  ASSERT_EQ(kernel_of(*device, product(150, 200, 100)), "matmul_clblast") << device->clblast().verdict();
  expect_right(*device, product(150, 200, 100));
  expect_right(*device, gemm(true, true, Shape{45}));
}

// Work of somebody's whose time is over hangs in the queue, and the trial behind it.
TEST_F(ClBlastTest, ATrialEndsWhenTheDeviceComesIntoQuarantine) {
  OpenClDriver driver;
  auto device = open_with(&kHost, "auto");
  device->begin_quarantines({}, 200'000'000);
  const PooledMemory there = device->allocate(64, MemoryClass::kTensors);
  std::vector<char> here(64);
  driver.hold();
  const Event hangs = device->copy({nullptr, {here.data(), 0, 64}}, {device.get(), {there.memory(), 0, 64}}, {});
  ASSERT_TRUE(driver.holds());
  device->leave_until(hangs, std::make_shared<int>(1));
  std::thread trial([&] {
    try {
      device->clblast_trial(os::now_ns);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
      EXPECT_NE(std::string(e.message).find("in quarantine"), std::string::npos) << e.message;
    }
  });
  trial.join();
  EXPECT_TRUE(device->is_out());
  driver.let_go();
  EXPECT_TRUE(eventually([&] { return !device->is_out(); }));
  EXPECT_TRUE(device->clblast_trial(os::now_ns).is_right);
}

}  // namespace
}  // namespace evn::test
