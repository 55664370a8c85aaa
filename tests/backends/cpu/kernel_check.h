// Runs one node on the CPU device, on every instruction-set cluster that this machine has, with plain inputs and with such that lie
// channels last, and with several numbers of threads, and compares it with the operator's reference: within the operator's
// tolerance, and bit for bit between thread counts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "device/backend.h"
#include "tests/support/isas.h"
#include "tests/support/kernel_run.h"

namespace evn {
extern const Backend cpu_backend;
}  // namespace evn

namespace evn::test {

inline std::shared_ptr<Device> cpu_device(int threads) {
  DeviceRequest request;
  request.name = "cpu";
  request.settings.set_number("threads", static_cast<std::uint64_t>(threads));
  std::shared_ptr<Device> device = cpu_backend.open(request);
  return device;
}

// Floats, for tests that compute what they expect themselves.
inline std::vector<float> floats_by(Device& device, const Kernel& kernel, const KernelSubject& s) {
  const Bytes bytes = KernelRun(device, kernel, s).run()[0];
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
inline float float_at(const KernelSubject& s, std::size_t input, std::int64_t i) {
  float x;
  std::memcpy(&x, &s.values[input][static_cast<std::size_t>(i) * sizeof x], sizeof x);
  return x;
}

// Keys or values [batch, heads, keys, depth] of which each batch has so many; the rows behind them have one value everywhere.
inline std::vector<float> padded_rows(const Shape& shape, const std::vector<std::int64_t>& lengths, float padding) {
  Random random(29);
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / shape[3], batch = row / (shape[1] * shape[2]);
    const float drawn = random.uniform(-1, 1);
    values[i] = row % shape[2] < lengths[static_cast<std::size_t>(batch)] ? drawn : padding;
  }
  return values;
}

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
    Random random(subject_.inputs.size() + 17);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& v : values) v = random.uniform(low, high);
    return input_of<float>(shape, values, constant);
  }
  KernelCheck& weight(Shape shape) { return input(shape, true); }
  template <typename T>
  KernelCheck& input_of(Shape shape, const std::vector<T>& values, bool constant = false) {
    Bytes bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    add_operand(&subject_, {kDTypeOf<T>, shape}, std::move(bytes), constant);
    return *this;
  }
  KernelCheck& bools(Shape shape, const std::vector<std::uint8_t>& values) {
    add_operand(&subject_, {DType::kBool, shape}, Bytes(values.begin(), values.end()), false);
    return *this;
  }
  KernelCheck& absent() {
    add_operand(&subject_, {}, {}, false);
    return *this;
  }
  KernelCheck& step(EpilogueOpKind kind, float a = 0, float b = 0) {
    epilogue_.push({kind, a, b});
    return *this;
  }
  KernelCheck& by(Products products) {
    subject_.products = products;
    return *this;
  }
  KernelCheck& outputs(int n) {
    output_count_ = n;
    return *this;
  }
  // The names of the kernels that run it, each of which must take it. The results are the last one's.
  KernelCheck& kernel(std::string name) { return kernels({std::move(name)}); }
  KernelCheck& kernels(std::vector<std::string> names) {
    kernels_ = std::move(names);
    return *this;
  }

  // Only on these instruction sets, as far as they are there.
  KernelCheck& only(std::vector<Isa> isas) {
    only_ = std::move(isas);
    return *this;
  }

  // Results of the last cluster with one thread.
  std::vector<Bytes> run() {
    SCOPED_TRACE(op_ + " " + describe());
    finish_subject(&subject_, op_, opset_, attributes_, output_count_, epilogue_);
    EXPECT_NE(subject_.node.op, nullptr);
    if (subject_.node.op == nullptr) return {};
    const std::vector<Bytes> expected = reference_result(subject_);
    std::vector<Bytes> last;
    for (Isa isa : available_isas(has_bytes(subject_))) {
      if (!only_.empty() && std::find(only_.begin(), only_.end(), isa) == only_.end()) continue;
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa_name(isa));
      for (const Layout layout : {Layout::kChannelsLast, Layout::kPlain}) {
        SCOPED_TRACE(layout == Layout::kPlain ? "plain" : "channels last");
        for (const std::string& kernel : kernels_) {
          SCOPED_TRACE(kernel);
          last = run_kernel(kernel, layout, expected);
        }
      }
      if (testing::Test::HasFailure()) break;
    }
    return last;
  }

  const std::vector<TensorDesc>& output_descs() const { return subject_.outputs; }

 private:
  std::string describe() const {
    std::string s;
    for (const TensorDesc& d : subject_.inputs) s += d.shape.to_string() + " ";
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

  std::vector<Bytes> run_kernel(const std::string& name, Layout given, const std::vector<Bytes>& expected) const {
    std::vector<Bytes> first;
    const std::vector<int> counts = has_bytes(subject_) ? std::vector{1, 2, 3, 7, 16} : std::vector{1, 2, 3, 4};
    for (const int threads : counts) {
      const std::vector<Bytes> got = execute(name, given, threads);
      if (threads == 1) {
        EXPECT_TRUE(outputs_near(subject_, got, expected, tolerance_of(subject_.node)));
        first = got;
      } else {
        EXPECT_TRUE(got == first) << "differs with " << threads << " threads";
      }
    }
    return first;
  }

  std::vector<Bytes> execute(const std::string& name, Layout given, int threads) const {
    const std::shared_ptr<Device> device = cpu_device(threads);
    std::vector<const Kernel*> all = supporting_kernels(*device, subject_.desc());
    if (all.empty() || name == "reference") all.push_back(device->reference_kernel(subject_.desc()));
    for (const Kernel* kernel : all) {
      if (kernel != nullptr && kernel->name == name) return KernelRun(*device, *kernel, subject_, given).run();
    }
    ADD_FAILURE() << "no kernel of that name takes it";
    return {};
  }

  std::string op_;
  int opset_;
  std::vector<Attribute> attributes_;
  KernelSubject subject_;
  std::vector<Isa> only_;
  Epilogue epilogue_;
  int output_count_ = 1;
  std::vector<std::string> kernels_;
};

}  // namespace evn::test
