// Runs one operator by its shape rule and reference, from literals: what the tests of ops/ share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/op.h"
#include "tests/support/graph_builder.h"

namespace evn::test {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;

// A tensor with bytes of its own, aligned for every dtype.
struct Tensor {
  TensorDesc desc;
  std::vector<std::uint64_t> bytes;

  template <typename T>
  std::vector<T> values() const {
    EXPECT_EQ(desc.dtype, kDTypeOf<T>);
    std::vector<T> v(static_cast<std::size_t>(desc.shape.elements()));
    if (!v.empty()) std::memcpy(static_cast<void*>(v.data()), bytes.data(), v.size() * sizeof(T));
    return v;
  }
  Floats floats() const { return values<float>(); }
  Ints ints() const { return values<std::int64_t>(); }
};

inline Tensor blank(DType dtype, const Shape& shape) {
  Tensor t{{dtype, shape}, {}};
  t.bytes.assign(t.desc.size_bytes() / 8 + 1, 0xCDCDCDCDCDCDCDCDull);
  return t;
}

template <typename T>
Tensor tensor(const Shape& shape, const std::vector<T>& values) {
  Tensor t = blank(kDTypeOf<T>, shape);
  EXPECT_EQ(values.size(), static_cast<std::size_t>(shape.elements()));
  if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), values.size() * sizeof(T));
  return t;
}

inline Tensor f32(const Shape& shape, const Floats& values) { return tensor<float>(shape, values); }
inline Tensor i32(const Shape& shape, const std::vector<std::int32_t>& values) { return tensor<std::int32_t>(shape, values); }
inline Tensor i64(const Ints& values) { return tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values); }
inline Tensor bools(const Shape& shape, const std::vector<std::uint8_t>& values) {
  Tensor t = tensor<std::uint8_t>(shape, values);
  t.desc.dtype = DType::kBool;
  return t;
}
inline std::vector<std::uint8_t> bool_values(const Tensor& t) {
  Tensor copy = t;
  EXPECT_EQ(copy.desc.dtype, DType::kBool);
  copy.desc.dtype = DType::kUint8;
  return copy.values<std::uint8_t>();
}
inline Tensor absent() { return {}; }

// 0, 1, 2, ...
inline Floats counting(int n) {
  Floats v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<float>(i));
  return v;
}

class Op {
 public:
  Op(const std::string& name, int opset) {
    node_.name = name;
    std::tie(node_.domain, node_.op_type) = split_domain(name);
    node_.since_version = opset;
    node_.op = find_op(node_.domain, node_.op_type, opset);
    EXPECT_NE(node_.op, nullptr) << node_.op_type;
  }

  Op& with(const char* name, AttributeValue value) {
    node_.attributes.push_back({name, std::move(value)});
    return *this;
  }
  Op& with(const char* name, int value) { return with(name, AttributeValue(std::int64_t{value})); }
  Op& with(const char* name, const char* word) { return with(name, AttributeValue(std::string(word))); }
  Op& with(const char* name, const Ints& list) { return with(name, AttributeValue(list)); }
  Op& outputs(int count) {
    output_count_ = count;
    return *this;
  }

  // Attributes resolved as graph/validate does.
  const Node& node() {
    node_.resolved.clear();
    for (const AttributeSpec& spec : node_.op->attributes) node_.resolved.push_back(resolve(spec));
    node_.outputs.assign(static_cast<std::size_t>(output_count_), 1);
    return node_;
  }

  // Shapes of the outputs; dims may be -1. Values of inputs in `known` are known.
  std::vector<Shape> infer(const std::vector<TensorDesc>& inputs, const std::vector<ConstTensor>& known = {}) {
    node();
    std::vector<TensorDesc> out = descs(inputs);
    InferContext c{node_, inputs, known, out};
    node_.op->infer(c);
    std::vector<Shape> shapes;
    for (const TensorDesc& d : out) shapes.push_back(d.shape);
    return shapes;
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    node();
    std::vector<TensorDesc> in;
    std::vector<ConstTensor> values;
    for (const Tensor& t : inputs) {
      in.push_back(t.desc);
      values.push_back({t.desc, t.desc.dtype == DType::kUndefined ? nullptr : t.bytes.data()});
    }
    std::vector<TensorDesc> out = descs(in);
    InferContext c{node_, in, values, out};
    node_.op->infer(c);
    std::vector<Tensor> results;
    std::vector<MutableTensor> written;
    for (const TensorDesc& d : out) results.push_back(blank(d.dtype, d.shape));
    for (Tensor& t : results) written.push_back({t.desc, t.bytes.data()});
    static TextPool texts(nullptr);  // results may hold its strings
    run_reference({node_, values, written, {&texts, 0}});
    return results;
  }

  // The status that running throws, EVN_OK when it does not.
  evn_status status(const std::vector<Tensor>& inputs) {
    try {
      run(inputs);
    } catch (const Error& e) {
      return e.status;
    }
    return EVN_OK;
  }

 private:
  AttributeValue resolve(const AttributeSpec& spec) const {
    for (const Attribute& a : node_.attributes) {
      if (a.name == spec.name) return a.value;
    }
    EXPECT_FALSE(spec.required) << spec.name;
    switch (spec.type) {
      case AttributeType::kInt: return spec.default_int;
      case AttributeType::kFloat: return spec.default_float;
      case AttributeType::kString:
        return spec.default_string != nullptr ? AttributeValue(std::string(spec.default_string)) : AttributeValue();
      default: return {};
    }
  }

  std::vector<TensorDesc> descs(const std::vector<TensorDesc>& inputs) const {
    std::vector<DType> dtypes;
    for (const TensorDesc& d : inputs) dtypes.push_back(d.dtype);
    std::vector<TensorDesc> out(static_cast<std::size_t>(output_count_));
    for (int i = 0; i < output_count_; ++i) {
      const bool has_rule = node_.op->output_dtype != nullptr;
      out[static_cast<std::size_t>(i)].dtype = has_rule ? node_.op->output_dtype(node_, dtypes, i) : dtypes[0];
    }
    return out;
  }

  Node node_;
  int output_count_ = 1;
};

inline TensorDesc desc(const Shape& shape, DType dtype = DType::kFloat32) { return {dtype, shape}; }

// A value that a shape rule may read. `t` must outlive it.
inline ConstTensor known(const Tensor& t) { return {t.desc, t.bytes.data()}; }

inline void expect_near(const Floats& got, const Floats& expected, float tolerance = 1e-5f) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "at " << i;
}

}  // namespace evn::test
