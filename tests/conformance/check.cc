#include "tests/conformance/check.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace evn::conformance {

using test::Bytes;
using test::KernelRun;
using test::KernelSubject;

// Inputs without elements go to the reference kernel (device/device.h); those that are read by value are lists, which may be empty.
bool needs_no_kernel(const KernelSubject& s) {
  const auto empty = [](const TensorDesc& d) { return d.dtype != DType::kUndefined && d.shape.elements() == 0; };
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const bool by_value = s.node.op->reads_value(i);
    if (!by_value && empty(s.inputs[i])) return true;
  }
  return std::all_of(s.outputs.begin(), s.outputs.end(), empty);
}

std::string label(const Target& target, const Kernel& kernel) { return target.name + ", kernel " + kernel.name; }

namespace {

void check_in_place(const Target& target, const Kernel& kernel, const KernelSubject& s, KernelRun* run,
                    const std::vector<Bytes>& plain) {
  for (std::size_t i = 0; i < s.inputs.size() && i < 32; ++i) {
    const bool allowed = (run->plan().in_place >> i & 1u) != 0;
    if (!allowed || s.values[i].size() != plain[0].size()) continue;
    EXPECT_TRUE(run->run(static_cast<int>(i)) == plain) << label(target, kernel) << ": the output over input " << i << " differs";
  }
}

double largest_of(const Bytes& floats) {
  double largest = 0;
  for (std::size_t i = 0; i + sizeof(float) <= floats.size(); i += sizeof(float)) {
    float v;
    std::memcpy(&v, &floats[i], sizeof v);
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  }
  return largest;
}

// As the operator says; but in bfloat16 attention rounds its weights too, which sum to 1, each by 2^-8 of itself: the result is off
// by as much of the largest value. Recurrent layers round each state that goes into the next step's products, by 2^-9 of itself: a
// sum over n states is off by some sqrt(n) of that, as the roundings have either sign. bfloat_recurrent_test.cc in
// tests/backends/cpu/bfloat rounds as they do, and is stricter.
Tolerance tolerance_for(const Kernel& kernel, const KernelSubject& s, const std::vector<Bytes>& expected) {
  Tolerance t = test::tolerance_of(s.node);
  const std::string_view name = kernel.name;
  if (name == "fused_attention_bf16") t.atol += std::ldexp(largest_of(s.values[2]), -8);
  if (name == "lstm_bf16" || name == "gru_bf16" || name == "rnn_bf16") {
    double largest = 1;
    for (const Bytes& output : expected) largest = std::max(largest, largest_of(output));
    t.atol += std::ldexp(largest * (1 + std::sqrt(static_cast<double>(s.inputs[2].shape[2]))), -9);
  }
  return t;
}

}  // namespace

void check_kernel(const Target& target, const Kernel& kernel, const KernelSubject& s, const std::vector<Bytes>& expected) {
  try {
    for (const Layout given : {Layout::kPlain, Layout::kChannelsLast}) {
      if (given != Layout::kPlain && kernel.layouts == nullptr) continue;
      KernelRun run(*target.device, kernel, s, given);
      const std::vector<Bytes> got = run.run();
      EXPECT_TRUE(test::outputs_near(s, got, expected, tolerance_for(kernel, s, expected))) << label(target, kernel);
      check_in_place(target, kernel, s, &run, got);
    }
  } catch (const Error& e) {
    ADD_FAILURE() << label(target, kernel) << " threw: " << e.message;
  }
}

Bytes fused(const Epilogue& epilogue, const Bytes& plain) {
  Bytes out = plain;
  for (std::size_t i = 0; i + sizeof(float) <= out.size(); i += sizeof(float)) {
    float x;
    std::memcpy(&x, &out[i], sizeof x);
    x = apply_epilogue(epilogue, x);
    std::memcpy(&out[i], &x, sizeof x);
  }
  return out;
}

}  // namespace evn::conformance
