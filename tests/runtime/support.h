// Runtimes with the CPU and mock devices, sessions over models from tests/model/onnx_writer.h, and the reference to compare with.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "backends/cpu/isa.h"
#include "base/error.h"
#include "tests/backends/mock/mock.h"
#include "tests/model/onnx_writer.h"
#include "tests/runtime/test_session.h"
#include "tests/support/graph_runner.h"

namespace evn {
extern const Backend cpu_backend;
}

namespace evn::test {

inline DeviceConfig mock_device(const std::string& name, bool optional = false) {
  DeviceConfig d;
  d.name = name;
  d.type = "mock";
  d.optional = optional;
  return d;
}

inline PlacementRule rule(std::vector<std::string> ops, std::vector<std::string> names, const std::string& device, Policy policy,
                          int line) {
  PlacementRule r;
  r.ops = std::move(ops);
  r.names = std::move(names);
  if (!device.empty()) r.devices = {device};
  r.policy = policy;
  r.line = line;
  return r;
}

// A configuration with the devices "m" and "n", both mocks.
inline Config two_mocks() {
  Config c;
  c.source = "test.yaml";
  c.devices = {mock_device("m"), mock_device("n")};
  return c;
}

inline std::shared_ptr<Runtime> make_runtime(Config config = {}, std::uint64_t cpu_limit = 0, int threads = 2,
                                             HostExecutor executor = {}) {
  static constexpr const Backend* kBackends[] = {&cpu_backend, &mock_backend};
  RuntimeOptions o;
  o.config = std::move(config);
  o.thread_count = threads;
  o.cpu_memory_limit = cpu_limit;
  o.executor = executor;
  o.backends = kBackends;
  return std::make_shared<Runtime>(std::move(o));
}

// An executor of the host's that does all tasks on the caller's thread.
inline HostExecutor callers_thread() {
  return {[](void*, std::uint32_t count, evn_task task, void* context) {
            for (std::uint32_t i = 0; i < count; ++i) task(context, i);
          },
          nullptr};
}

inline ModelPtr load(const std::shared_ptr<Runtime>& runtime, const OnnxWriter& writer) {
  const std::string bytes = writer.serialize();
  return load_model_buffer(runtime, bytes.data(), bytes.size(), "");
}

inline TensorPtr to_tensor(const std::shared_ptr<Runtime>& runtime, const HostTensor& t) {
  auto tensor = std::make_shared<Tensor>(runtime, &runtime->cpu(), t.desc, false);
  if (tensor->size_bytes() > 0) std::memcpy(tensor->buffer().address(), t.bytes.data(), tensor->size_bytes());
  return tensor;
}

inline HostTensor int_tensor(const std::vector<std::int64_t>& values) {
  HostTensor t({DType::kInt64, {static_cast<std::int64_t>(values.size())}});
  std::copy(values.begin(), values.end(), t.as<std::int64_t>().begin());
  return t;
}

// Runs with tensors; empty slots of `out` are filled.
inline void run_tensors(Session& session, const std::vector<TensorPtr>& in, std::vector<TensorPtr>& out,
                        std::uint64_t timeout_ns = 0) {
  std::vector<RunValue> inputs, outputs;
  for (const TensorPtr& t : in) inputs.push_back({t, nullptr});
  for (const TensorPtr& t : out) outputs.push_back({t, nullptr});
  session.run(inputs, outputs, {false, timeout_ns, 0});
  for (std::size_t j = 0; j < out.size(); ++j) out[j] = outputs[j].tensor;
}

inline std::vector<HostTensor> run(Session& session, const std::vector<HostTensor>& inputs) {
  std::vector<TensorPtr> in;
  for (const HostTensor& t : inputs) in.push_back(to_tensor(session.runtime(), t));
  std::vector<TensorPtr> out(session.graph().outputs.size());
  run_tensors(session, in, out);
  std::vector<HostTensor> results;
  for (const TensorPtr& t : out) {
    HostTensor h(t->desc());
    if (t->size_bytes() > 0) std::memcpy(h.bytes.data(), t->buffer().address(), t->size_bytes());
    results.push_back(std::move(h));
  }
  return results;
}

inline void expect_close(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want, double rtol = 1e-4,
                         double atol = 1e-5) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].desc, want[k].desc) << "output " << k;
    if (want[k].desc.dtype != DType::kFloat32) {
      EXPECT_EQ(std::memcmp(got[k].bytes.data(), want[k].bytes.data(), want[k].desc.size_bytes()), 0) << "output " << k;
      continue;
    }
    double scale = 0;
    for (const float x : want[k].as<float>()) scale = std::max(scale, std::abs(static_cast<double>(x)));
    for (std::size_t i = 0; i < want[k].as<float>().size(); ++i) {
      const double w = want[k].as<float>()[i];
      ASSERT_NEAR(got[k].as<float>()[i], w, rtol * std::abs(w) + atol * scale) << "output " << k << " element " << i;
    }
  }
}

// Puts the mock back to its defaults around a test.
struct RuntimeTest : testing::Test {
  void SetUp() override {
    mock_settings() = {};
    mock_counters() = {};
  }
  void TearDown() override { mock_settings() = {}; }
};

}  // namespace evn::test
