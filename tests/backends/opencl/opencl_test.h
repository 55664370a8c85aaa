// Opens an OpenCL device for tests, and runs one node on it and through its reference.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/opencl/device.h"
#include "ops/infra/numeric.h"
#include "tests/support/eventually.h"
#include "tests/support/graph_builder.h"
#include "tests/support/opencl_driver.h"

namespace evn::test {

inline std::shared_ptr<OpenClDevice> open_opencl(DeviceRequest request = {}) {
  if (request.name.empty()) request.name = "test";
  return std::static_pointer_cast<OpenClDevice>(opencl_backend.open(request));
}

// Status of a call on a thread of its own, whose work must stop after `timeout_ns` (0: never). A call that does not return is a
// failure; then the driver lets its commands go.
template <typename Call>
evn_status status_within(OpenClDriver& driver, std::uint64_t timeout_ns, Call&& call) {
  evn_status status = EVN_OK;
  std::atomic<bool> ended{false};
  std::thread thread([&] {
    Cancel cancel;
    cancel.join_timeout(timeout_ns);
    const CancelScope scope(cancel);
    try {
      call();
    } catch (const Error& e) {
      status = e.status;
    }
    ended = true;
  });
  EXPECT_TRUE(eventually([&] { return ended.load(); })) << "the call waits for the device";
  if (!ended) driver.let_go();
  thread.join();
  return status;
}

// One device for all tests that only run kernels. Never closed: drivers end before static objects do.
inline OpenClDevice& shared_device() {
  static auto* device = new std::shared_ptr<OpenClDevice>(open_opencl());
  return **device;
}

struct FloatTensor {
  TensorDesc desc;
  std::vector<float> data;
};

inline FloatTensor random_floats(const Shape& shape, std::uint64_t seed, float low = -2, float high = 2) {
  FloatTensor t{{DType::kFloat32, shape}, std::vector<float>(static_cast<std::size_t>(shape.elements()))};
  Random random(seed);
  for (float& v : t.data) v = random.uniform(low, high);
  return t;
}

// |a-b| <= rtol*|b| + atol*max|b|, and b must vary.
inline void expect_near(const std::vector<float>& a, const std::vector<float>& b, Tolerance tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  bool varies = b.size() < 2;
  for (float v : b) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    varies |= v != b[0];
  }
  EXPECT_TRUE(varies) << "the expected tensor is constant";
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    const double bound = tolerance.rtol * std::fabs(static_cast<double>(b[i])) + tolerance.atol * largest;
    ASSERT_LE(std::fabs(static_cast<double>(a[i]) - b[i]), bound) << "at " << i << ": " << a[i] << " against " << b[i];
  }
}

// The only node of a graph, with random float32 inputs.
class NodeRun {
 public:
  NodeRun(const Graph& graph, std::uint64_t seed, float low = -2, float high = 2) : graph_(graph), node_(graph.nodes.at(0)) {
    for (ValueId v : node_.inputs) {
      if (v == kNoValue) {
        descs_.push_back({});
        constants_.push_back(nullptr);
        tensors_.push_back({});
        continue;
      }
      const Value& value = graph_.values[v];
      descs_.push_back({value.dtype, value.shape});
      constants_.push_back(value.constant);
      tensors_.push_back(value.constant != nullptr ? FloatTensor{} : random_floats(value.shape, seed++, low, high));
    }
    outputs_.resize(node_.outputs.size());
    infer();
  }

  OpDesc desc() const {
    OpDesc d{&node_, descs_, outputs_, constants_};
    d.precision = precision;
    d.strict = strict;
    return d;
  }
  Precision precision = Precision::kFloat32;
  bool strict = false;
  FloatTensor& input(int i) { return tensors_[i]; }

  std::vector<float> reference() {
    std::vector<ConstTensor> inputs = values();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (constants_[i] == nullptr && !tensors_[i].data.empty()) inputs[i].data = tensors_[i].data.data();
    }
    std::vector<float> y(static_cast<std::size_t>(outputs_[0].shape.elements()));
    std::vector<MutableTensor> outputs = {{outputs_[0], y.data()}};
    run_reference({node_, inputs, outputs});
    return y;
  }

  // With one kernel (nullptr: the one that the device would choose). Buffers begin at an odd element to show that offsets count.
  std::vector<float> on(OpenClDevice& device, const char* kernel_name = nullptr, bool in_place = false) {
    const OpDesc d = desc();
    const Kernel* kernel = choose(device, d, kernel_name);
    if (kernel == nullptr) return {};
    std::vector<PooledMemory> memory;
    std::vector<Buffer> inputs, packed, outputs;
    for (std::size_t i = 0; i < descs_.size(); ++i) {
      const void* bytes = constants_[i] != nullptr ? constants_[i]->data.get() : tensors_[i].data.data();
      inputs.push_back(descs_[i].dtype == DType::kUndefined ? Buffer{} : upload(device, bytes, descs_[i].size_bytes(), &memory));
      packed.push_back(pack(device, *kernel, d, static_cast<int>(i), &memory));
    }
    KernelPlan plan;
    kernel->plan(d, &plan);
    const std::size_t bytes = outputs_[0].size_bytes();
    EXPECT_TRUE(!in_place || (plan.in_place & 1u) != 0);
    outputs.push_back(in_place ? inputs[0] : upload(device, nullptr, bytes, &memory));
    KernelArgs args;
    args.desc = &d;
    args.plan = &plan;
    args.inputs = inputs;
    args.outputs = outputs;
    args.packed = packed;
    if (plan.scratch_bytes > 0) args.scratch = upload(device, nullptr, plan.scratch_bytes, &memory);
    const Event done = device.enqueue({kernel, args, nullptr}, {});
    std::vector<float> y(bytes / sizeof(float));
    device.wait(device.copy({&device, outputs[0]}, {nullptr, {y.data(), 0, bytes}}, {&done, 1}));
    return y;
  }

 private:
  std::vector<ConstTensor> values() const {
    std::vector<ConstTensor> v;
    for (std::size_t i = 0; i < descs_.size(); ++i) v.push_back({descs_[i], constants_[i] ? constants_[i]->data.get() : nullptr});
    return v;
  }

  void infer() {
    const std::vector<ConstTensor> v = values();
    std::vector<DType> dtypes;
    for (const TensorDesc& d : descs_) dtypes.push_back(d.dtype);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i].dtype = node_.op->output_dtype ? node_.op->output_dtype(node_, dtypes, static_cast<int>(i)) : dtypes.at(0);
    }
    InferContext c{node_, descs_, v, outputs_};
    node_.op->infer(c);
  }

  static const Kernel* choose(OpenClDevice& device, const OpDesc& d, const char* name) {
    std::string reason;
    const Kernel* best = device.find_kernel(d, &reason);
    if (name == nullptr) {
      EXPECT_NE(best, nullptr) << reason;
      return best;
    }
    for (const KernelFamily* family : device.kernels()) {
      for (const Kernel& kernel : family->kernels) {
        if (std::string(kernel.name) != name) continue;
        const Refusal refusal = kernel.supports(d);
        EXPECT_EQ(refusal, nullptr) << name << ": " << refusal;
        return refusal == nullptr ? &kernel : nullptr;
      }
    }
    ADD_FAILURE() << "no kernel is named " << name;
    return nullptr;
  }

  static Buffer upload(OpenClDevice& device, const void* bytes, std::size_t size, std::vector<PooledMemory>* memory) {
    constexpr std::size_t kShift = 128;
    memory->push_back(device.allocate(size + kShift, MemoryClass::kTensors));
    const Buffer buffer{memory->back().memory(), kShift, size};
    if (bytes != nullptr) device.wait(device.copy({nullptr, {const_cast<void*>(bytes), 0, size}}, {&device, buffer}, {}));
    return buffer;
  }

  static Buffer pack(OpenClDevice& device, const Kernel& kernel, const OpDesc& d, int i, std::vector<PooledMemory>* memory) {
    const std::size_t size = kernel.prepack_bytes != nullptr && d.constant(i) != nullptr ? kernel.prepack_bytes(d, i) : 0;
    if (size == 0) return {};
    std::vector<char> packed(size);
    kernel.prepack(d, i, packed.data());
    return upload(device, packed.data(), size, memory);
  }

  Graph graph_;
  Node node_;
  std::vector<TensorDesc> descs_, outputs_;
  std::vector<WeightPtr> constants_;
  std::vector<FloatTensor> tensors_;
};

// A chain that has every step but those that hide errors by clamping.
inline void add_epilogue(Graph* graph) {
  Epilogue& e = graph->nodes.at(0).epilogue;
  e.push({EpilogueOpKind::kScale, 0.75f, 0});
  e.push({EpilogueOpKind::kOffset, 0.25f, 0});
  e.push({EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f});
}

// The node on the device against its reference, plain and with an epilogue, for two inputs.
inline void check_node(const Graph& graph, const char* kernel = nullptr, float low = -2, float high = 2) {
  for (const bool with_epilogue : {false, true}) {
    Graph g = graph;
    if (with_epilogue) add_epilogue(&g);
    for (const std::uint64_t seed : {3, 1789}) {
      SCOPED_TRACE(std::string(with_epilogue ? "with" : "without") + " an epilogue, seed " + std::to_string(seed));
      NodeRun run(g, seed, low, high);
      const Tolerance own = g.nodes[0].op->tolerance;
      expect_near(run.on(shared_device(), kernel), run.reference(), {own.rtol + 2e-6, own.atol + 2e-6});
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

inline float as_half(float x) { return static_cast<float>(Float16::from(static_cast<double>(x)).value()); }

inline std::vector<float> random_halves(const Shape& shape, std::uint64_t seed) {
  std::vector<float> values = random_floats(shape, seed).data;
  for (float& v : values) v = as_half(v);
  return values;
}

// A product with precision fp16, whose constants are halves already: input 0 is rounded, and then only sums are. Where the device
// has no such products it says so, and is not asked for one.
inline void check_halves(const Graph& graph, const char* kernel_name, OpenClDevice& device = shared_device()) {
  std::string why;
  const bool has = device.lowest_precision(Precision::kFloat16, &why) == Precision::kFloat16;
  EXPECT_EQ(why, has ? "" : "this device has no cl_khr_fp16");
  NodeRun run(graph, 5);
  run.precision = Precision::kFloat16;
  const Kernel* kernel = device.find_kernel(run.desc(), &why);
  ASSERT_NE(kernel, nullptr);
  EXPECT_STREQ(kernel->name, kernel_name);
  EXPECT_EQ(kernel->operands, Precision::kFloat16);
  if (!has) return;
  std::vector<float>& given = run.input(0).data;
  // What is no number of halves: too large, too small, between two, of half the smallest.
  const float special[] = {65519.0f, 1e-9f,   3.05e-5f, 6.0e-5f,        -1.0009766f,
                           2.98e-8f, 6.1e-5f, -0.0f,    1.00048828125f, 1.00146484375f};
  std::copy_n(special, std::min(std::size(special), given.size()), given.begin());
  const std::vector<float> rounded = run.on(device);
  bool differs = false;
  for (float& v : given) {
    differs |= v != as_half(v);
    v = as_half(v);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(run.on(device), rounded) << "input 0 is rounded too";
  expect_near(rounded, run.reference(), {2e-6, 2e-6});
}

}  // namespace evn::test
