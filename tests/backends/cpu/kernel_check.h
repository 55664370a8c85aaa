// Runs one node on the CPU device, on every instruction-set cluster that this machine has and with one to four threads, and compares
// it with the operator's reference: within the operator's tolerance, and bit for bit between thread counts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/checked.h"
#include "device/device.h"
#include "ops/op.h"
#include "tests/support/graph_builder.h"

namespace evn {
extern const Backend cpu_backend;
}

namespace evn::test {

inline std::vector<Isa> available_isas() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::k_baseline, Isa::k_avx2, Isa::k_avx512}) {
    if (isa_available(isa)) all.push_back(isa);
  }
  return all;
}

inline std::shared_ptr<Device> cpu_device(int threads) {
  DeviceRequest request;
  request.name = "cpu";
  request.thread_count = threads;
  return cpu_backend.open(request);
}

// A run of bytes at the very end of its allocation, so that a sanitizer sees each byte read or written beyond it.
using Bytes = std::vector<char>;

class KernelCheck {
 public:
  explicit KernelCheck(std::string op, int opset = 13) : op_(std::move(op)), opset_(opset) {}

  KernelCheck& attribute(const std::string& name, AttributeValue value) {
    attributes_.push_back({name, std::move(value)});
    return *this;
  }
  KernelCheck& ints(const std::string& name, std::vector<std::int64_t> v) { return attribute(name, std::move(v)); }
  KernelCheck& integer(const std::string& name, std::int64_t v) { return attribute(name, v); }
  KernelCheck& real(const std::string& name, float v) { return attribute(name, v); }

  KernelCheck& input(Shape shape, bool constant = false, float low = -1, float high = 1) {
    Random random(inputs_.size() + 17);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& v : values) v = random.uniform(low, high);
    return input_of<float>(shape, values, constant);
  }
  KernelCheck& weight(Shape shape) { return input(shape, true); }
  template <typename T>
  KernelCheck& input_of(Shape shape, const std::vector<T>& values, bool constant = false) {
    Bytes bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    WeightPtr weight;
    const TensorDesc desc = {kDTypeOf<T>, shape};
    if (constant) {
      void* to = nullptr;
      auto w = make_weight(desc, nullptr, &to);
      if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
      weight = w;
    }
    inputs_.push_back(std::move(bytes));
    descs_.push_back(desc);
    constants_.push_back(weight);
    return *this;
  }
  KernelCheck& absent() {
    inputs_.emplace_back();
    descs_.emplace_back();
    constants_.emplace_back();
    return *this;
  }
  KernelCheck& step(StepKind kind, float a = 0, float b = 0) {
    epilogue_.push({kind, a, b});
    return *this;
  }
  KernelCheck& outputs(int n) {
    output_count_ = n;
    return *this;
  }
  // The name of the kernel that must run it.
  KernelCheck& kernel(std::string name) {
    kernel_ = std::move(name);
    return *this;
  }

  // Results of the last cluster with one thread.
  std::vector<Bytes> run() {
    SCOPED_TRACE(op_ + " " + describe());
    build();
    std::vector<Bytes> expected = fresh_outputs();
    reference(&expected);
    std::vector<Bytes> last;
    const Isa before = cpu_isa();
    for (Isa isa : available_isas()) {
      force_isa(isa);
      SCOPED_TRACE(isa_name(isa));
      std::vector<Bytes> first;
      for (int threads = 1; threads <= 4; ++threads) {
        std::vector<Bytes> got = fresh_outputs();
        execute(threads, &got);
        if (threads == 1) {
          compare(got, expected);
          first = got;
        } else {
          EXPECT_TRUE(got == first) << "differs with " << threads << " threads";
        }
      }
      last = first;
      if (testing::Test::HasFailure()) break;
    }
    force_isa(before);
    return last;
  }

  const std::vector<TensorDesc>& output_descs() const { return output_descs_; }

 private:
  std::string describe() const {
    std::string s;
    for (const TensorDesc& d : descs_) s += d.shape.to_string() + " ";
    for (const Attribute& a : attributes_) {
      s += a.name + "=";
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&a.value)) {
        for (std::int64_t v : *list) s += std::to_string(v) + ",";
      } else if (const auto* v = std::get_if<std::int64_t>(&a.value)) {
        s += std::to_string(*v);
      }
      s += " ";
    }
    return s + "steps=" + std::to_string(epilogue_.count);
  }

  void build() {
    GraphBuilder b(opset_);
    std::vector<ValueId> ids;
    for (std::size_t i = 0; i < descs_.size(); ++i) {
      ids.push_back(descs_[i].dtype == DType::kUndefined ? kNoValue : b.input("x" + std::to_string(i), descs_[i].shape, descs_[i].dtype));
    }
    b.nodes(op_, ids, output_count_, attributes_, "node");
    node_ = b.graph().nodes.back();
    node_.epilogue = epilogue_;
    ASSERT_NE(node_.op, nullptr);
    output_descs_.assign(static_cast<std::size_t>(output_count_), {});
    std::vector<DType> dtypes;
    std::vector<ConstTensor> values;
    for (std::size_t i = 0; i < descs_.size(); ++i) {
      dtypes.push_back(descs_[i].dtype);
      values.push_back({descs_[i], inputs_[i].data()});
    }
    for (int i = 0; i < output_count_; ++i) {
      output_descs_[static_cast<std::size_t>(i)].dtype =
          node_.op->output_dtype == nullptr ? descs_[0].dtype : node_.op->output_dtype(node_, dtypes, i);
    }
    InferContext c{node_, descs_, values, output_descs_};
    node_.op->infer(c);
  }

  std::vector<Bytes> fresh_outputs() const {
    std::vector<Bytes> out;
    for (const TensorDesc& d : output_descs_) out.emplace_back(d.size_bytes(), '\xff');  // NaN where nothing is written
    return out;
  }

  void reference(std::vector<Bytes>* out) const {
    std::vector<ConstTensor> in;
    std::vector<MutableTensor> to;
    for (std::size_t i = 0; i < descs_.size(); ++i) in.push_back({descs_[i], inputs_[i].data()});
    for (std::size_t i = 0; i < out->size(); ++i) to.push_back({output_descs_[i], (*out)[i].data()});
    run_reference({node_, in, to});
  }

  void execute(int threads, std::vector<Bytes>* out) const {
    const std::shared_ptr<Device> device = cpu_device(threads);
    const OpDesc desc = {&node_, descs_, output_descs_, constants_};
    std::string reason;
    const Kernel* kernel = device->find_kernel(desc, &reason);
    ASSERT_NE(kernel, nullptr) << reason;
    EXPECT_EQ(kernel->name, kernel_) << reason;
    std::vector<Buffer> in, packed, to;
    std::vector<Bytes> copies = inputs_;
    std::vector<PooledMemory> packs;
    for (std::size_t i = 0; i < descs_.size(); ++i) {
      in.push_back({descs_[i].dtype == DType::kUndefined ? nullptr : copies[i].data(), 0, copies[i].size()});
      const std::size_t bytes = kernel->prepack_bytes == nullptr || constants_[i] == nullptr ? 0 : kernel->prepack_bytes(desc, static_cast<int>(i));
      packed.emplace_back();
      if (bytes == 0) continue;
      packs.push_back(device->allocate(bytes, MemoryClass::kPacked));
      kernel->prepack(desc, static_cast<int>(i), packs.back().memory());
      packed.back() = {packs.back().memory(), 0, bytes};
    }
    for (Bytes& b : *out) to.push_back({b.data(), 0, b.size()});
    KernelPlan plan;
    kernel->plan(desc, &plan);
    const std::size_t threads_bytes = align_up(plan.thread_scratch_bytes, 64) * device->traits().compute_units;
    const std::size_t scratch_bytes = align_up(plan.scratch_bytes, 64) + threads_bytes;
    const PooledMemory scratch = device->allocate(scratch_bytes, MemoryClass::kScratch);
    if (scratch_bytes != 0) std::memset(scratch.memory(), 0xff, scratch_bytes);
    KernelCall call;
    call.kernel = kernel;
    call.args.desc = &desc;
    call.args.plan = &plan;
    call.args.inputs = in;
    call.args.outputs = to;
    call.args.packed = packed;
    call.args.scratch = {scratch.memory(), 0, scratch_bytes};
    device->wait(device->enqueue(call, {}));
    EXPECT_TRUE(copies == inputs_) << "the kernel wrote to an input";
  }

  void compare(const std::vector<Bytes>& got, const std::vector<Bytes>& expected) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (output_descs_[i].dtype != DType::kFloat32) {
        EXPECT_TRUE(got[i] == expected[i]) << "output " << i;
        continue;
      }
      compare_floats(reinterpret_cast<const float*>(got[i].data()), reinterpret_cast<const float*>(expected[i].data()),
                     got[i].size() / sizeof(float));
    }
  }

  void compare_floats(const float* got, const float* expected, std::size_t n) const {
    double top = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::isfinite(expected[i])) top = std::max(top, std::fabs(static_cast<double>(expected[i])));
    }
    // Fused steps cost a rounding each.
    const Tolerance t = node_.op->tolerance;
    const double extra = epilogue_.count == 0 ? 0 : 3e-6;
    for (std::size_t i = 0; i < n; ++i) {
      const double x = got[i], y = expected[i];
      if (std::isnan(y) || std::isinf(y)) {
        ASSERT_TRUE(std::isnan(y) ? std::isnan(x) : x == y) << "element " << i << ": " << x << ", reference " << y;
        continue;
      }
      ASSERT_LE(std::fabs(x - y), (t.rtol + extra) * std::fabs(y) + (t.atol + extra) * top) << "element " << i << ": " << x << ", reference " << y;
    }
  }

  std::string op_;
  int opset_;
  std::vector<Attribute> attributes_;
  std::vector<Bytes> inputs_;
  std::vector<TensorDesc> descs_;
  std::vector<WeightPtr> constants_;
  Epilogue epilogue_;
  int output_count_ = 1;
  std::string kernel_;
  Node node_;
  std::vector<TensorDesc> output_descs_;
};

}  // namespace evn::test
