// Builds graphs with QuantizeLinear and DequantizeLinear around float operators, and compares them with what the rewrites make of
// them.
#pragma once

#include <limits>

#include "tests/support/pass_check.h"

namespace evn::test {

struct Numbers {
  float scale = 0.05f;
  int zero = 0;
};

class QdqBuilder : public GraphBuilder {
 public:
  explicit QdqBuilder(DType activations = DType::kUint8, int opset = 13) : GraphBuilder(opset), dtype_(activations) {}

  DType dtype() const { return dtype_; }

  ValueId byte(int v, DType dtype) {
    if (dtype == DType::kInt8) return constant<std::int8_t>(next("zero"), Shape{}, {static_cast<std::int8_t>(v)});
    return constant<std::uint8_t>(next("zero"), Shape{}, {static_cast<std::uint8_t>(v)});
  }
  ValueId quantize(ValueId x, Numbers n) { return node("QuantizeLinear", {x, scalar(n.scale), byte(n.zero, dtype_)}); }
  ValueId dequantize(ValueId x, Numbers n) { return node("DequantizeLinear", {x, scalar(n.scale), byte(n.zero, dtype_)}); }
  ValueId both(ValueId x, Numbers n) { return dequantize(quantize(x, n), n); }
  // A float input, quantized.
  ValueId source(Shape shape, Numbers n = {}) { return both(input(next("x"), shape), n); }

  // A constant of int8 or uint8, dequantized with one scale, or, where axis >= 0, one for each of its indices.
  ValueId weight(Shape shape, int axis = -1, DType dtype = DType::kInt8, float scale = 0.01f) {
    Random random(graph().values.size() + 1);
    const auto count = static_cast<std::size_t>(shape.elements());
    ValueId w = kNoValue;
    if (dtype == DType::kInt8) {
      std::vector<std::int8_t> v(count);
      for (auto& e : v) e = static_cast<std::int8_t>(random.uniform(-127, 127));
      w = constant<std::int8_t>(next("w"), shape, v);
    } else {
      std::vector<std::uint8_t> v(count);
      for (auto& e : v) e = static_cast<std::uint8_t>(random.uniform(0, 255));
      w = constant<std::uint8_t>(next("w"), shape, v);
    }
    if (axis < 0) return node("DequantizeLinear", {w, scalar(scale), byte(dtype == DType::kInt8 ? 0 : 121, dtype)});
    std::vector<float> scales(static_cast<std::size_t>(shape[axis]));
    for (auto& s : scales) s = scale * random.uniform(0.5f, 1);
    scales_ = scales;
    const ValueId s = constant<float>(next("scales"), Shape{shape[axis]}, scales);
    return node("DequantizeLinear", {w, s}, {{"axis", std::int64_t{axis}}});
  }
  // A bias in steps of x scale times the last weight's scales.
  ValueId bias(std::int64_t n, float x_scale, float scale = 0.01f) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(n));
    std::vector<float> s(v.size(), x_scale * scale);
    Random random(7);
    for (std::size_t i = 0; i < v.size(); ++i) {
      v[i] = static_cast<std::int32_t>(random.uniform(-2000, 2000));
      if (!scales_.empty()) s[i] = x_scale * scales_[i];
    }
    return node("DequantizeLinear", {constant<std::int32_t>(next("b"), Shape{n}, v), constant<float>(next("bs"), Shape{n}, s)},
                {{"axis", std::int64_t{0}}});
  }
  void result(ValueId v, Numbers n) {
    output(both(v, n));
    steps_.push_back(n.scale);
  }

  // All rewrites.
  Graph optimized() {
    Graph g = build();
    optimize_graph(g, {});
    return g;
  }

  // Rewritten, outputs are within a step of what they were, for some inputs.
  void expect_near(const Graph& rewritten, float range = 6) {
    const Graph original = build();
    for (std::uint64_t seed : {3, 1789}) {
      std::vector<HostTensor> inputs;
      for (ValueId v : original.inputs) {
        inputs.push_back(random_tensor(original.values[static_cast<std::size_t>(v)].shape, seed++, -range, range));
      }
      const std::vector<HostTensor> expected = run_graph(original, inputs), got = run_graph(rewritten, inputs);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) expect_steps(got[i], expected[i], i < steps_.size() ? steps_[i] : 0);
    }
  }

 private:
  static void expect_steps(const HostTensor& got, const HostTensor& expected, float step) {
    ASSERT_EQ(got.desc.shape.to_string(), expected.desc.shape.to_string());
    ASSERT_EQ(got.desc.dtype, DType::kFloat32);
    const auto a = got.as<float>(), b = expected.as<float>();
    bool varies = false;
    std::size_t other = 0;
    float largest = 0;
    for (const float v : b) largest = std::max(largest, std::fabs(v));
    for (std::size_t i = 0; i < b.size(); ++i) {
      varies |= b[i] != b[0];
      other += a[i] != b[i];
      ASSERT_LE(std::fabs(a[i] - b[i]), step * 1.001f + 1e-6f * largest) << "at " << i;
    }
    EXPECT_TRUE(varies) << "the expected tensor is constant";
    if (step > 0) {
      EXPECT_LE(other, b.size() / 20 + 1) << "of " << b.size() << " are beside";
    }
  }

  std::string next(const char* name) { return std::string(name) + "_" + std::to_string(graph().values.size()); }

  DType dtype_;
  std::vector<float> scales_;
  std::vector<float> steps_;  // of outputs
};

// How many nodes of each kind are left; 0 of what is not named.
inline int floats_left(const Graph& g) {
  int n = 0;
  for (const Node& node : g.nodes) {
    for (const ValueId v : node.outputs) n += v != kNoValue && g.values[static_cast<std::size_t>(v)].dtype == DType::kFloat32;
  }
  return n;
}

}  // namespace evn::test
