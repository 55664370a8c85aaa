// One node with everything that running it needs, its reference's result, and a run of any one kernel on any device: host memory or
// not. What the tests of backends and of conformance share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "device/device.h"
#include "ops/infra/numeric.h"
#include "ops/op.h"
#include "tests/support/graph_builder.h"

namespace evn::test {

// Ends where its allocation ends, so that a sanitizer sees each byte read or written beyond it.
using Bytes = std::vector<char>;

struct KernelSubject {
  Node node;
  std::vector<TensorDesc> inputs, outputs;
  std::vector<Bytes> values;         // per input; an absent one has none
  std::vector<WeightPtr> constants;  // per input: a copy of its value where it is constant, or null
  Precision precision = Precision::kFloat32;
  Products products = Products::kAuto;

  OpDesc desc() const {
    OpDesc d{&node, inputs, outputs, constants};
    d.precision = precision;
    d.products = products;
    return d;
  }
};

inline WeightPtr copy_of(const TensorDesc& desc, const Bytes& value) {
  void* to = nullptr;
  std::shared_ptr<Weight> weight = make_weight(desc, nullptr, &to);
  if (!value.empty()) std::memcpy(to, value.data(), value.size());
  return weight;
}

// Adds input `desc` of the given value; without a dtype: an absent one.
inline void add_operand(KernelSubject* s, const TensorDesc& desc, Bytes value, bool constant) {
  s->inputs.push_back(desc);
  s->constants.push_back(constant ? copy_of(desc, value) : nullptr);
  s->values.push_back(std::move(value));
}

// Dtypes and shapes of the outputs, from the inputs that are there now.
inline void infer_outputs(KernelSubject* s) {
  std::vector<DType> dtypes;
  std::vector<ConstTensor> values;
  for (std::size_t i = 0; i < s->inputs.size(); ++i) {
    dtypes.push_back(s->inputs[i].dtype);
    values.push_back({s->inputs[i], s->values[i].data()});
  }
  s->outputs.assign(s->node.outputs.size(), {});
  for (std::size_t i = 0; i < s->outputs.size(); ++i) {
    const OpDef& op = *s->node.op;
    s->outputs[i].dtype = op.output_dtype == nullptr ? dtypes.at(0) : op.output_dtype(s->node, dtypes, static_cast<int>(i));
  }
  InferContext c{s->node, s->inputs, values, s->outputs};
  s->node.op->infer(c);
}

// Makes the node once the operands are there, with attributes resolved as graph/validate does.
inline void finish_subject(KernelSubject* s, const std::string& op, int opset, const std::vector<Attribute>& attributes,
                           int outputs, const Epilogue& epilogue) {
  GraphBuilder b(opset);
  std::vector<ValueId> ids;
  for (const TensorDesc& d : s->inputs) {
    ids.push_back(d.dtype == DType::kUndefined ? kNoValue : b.input("x" + std::to_string(ids.size()), d.shape, d.dtype));
  }
  b.nodes(op, ids, outputs, attributes, "node");
  s->node = b.graph().nodes.back();
  s->node.epilogue = epilogue;
  if (s->node.op != nullptr) infer_outputs(s);
}

// x as a bfloat16 that a processor makes of it: to nearest even, with 0 for numbers below 2^-126.
inline float rounded_to_bfloat(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return x;
  const std::uint32_t sign = bits & 0x80000000u;
  if ((bits & 0x7f800000u) == 0) bits = sign;
  const std::uint32_t kept = bits & 0xffff0000u, rest = bits & 0xffffu;
  bits = kept + (rest > 0x8000u || (rest == 0x8000u && (kept & 0x10000u) != 0) ? 0x10000u : 0);
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline float rounded_to_half(float x) { return static_cast<float>(Float16::from(static_cast<double>(x)).value()); }

// The subject with all float32 inputs such that a product of a lower precision need not round them: there its result is that of
// float32, but for the order of sums.
inline KernelSubject rounded(const KernelSubject& s, Precision precision) {
  KernelSubject r = s;
  r.precision = precision;
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    if (precision == Precision::kFloat32 || r.inputs[i].dtype != DType::kFloat32) continue;
    for (std::size_t at = 0; at + sizeof(float) <= r.values[i].size(); at += sizeof(float)) {
      float x;
      std::memcpy(&x, &r.values[i][at], sizeof x);
      x = precision == Precision::kBfloat16 ? rounded_to_bfloat(x) : rounded_to_half(x);
      std::memcpy(&r.values[i][at], &x, sizeof x);
    }
    if (r.constants[i] != nullptr) r.constants[i] = copy_of(r.inputs[i], r.values[i]);
  }
  return r;
}

// Every bit set: NaN where nothing is written.
inline std::vector<Bytes> blank_outputs(const KernelSubject& s) {
  std::vector<Bytes> out;
  for (const TensorDesc& d : s.outputs) out.emplace_back(d.dtype == DType::kUndefined ? 0 : d.size_bytes(), '\xff');
  return out;
}

// `shares`: the reference is called so many times, for as many of its parts each (OpDef::parts), from the last ones on.
inline std::vector<Bytes> reference_result(const KernelSubject& s, std::int64_t shares = 1) {
  std::vector<Bytes> out = blank_outputs(s);
  std::vector<ConstTensor> in;
  std::vector<MutableTensor> to;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) in.push_back({s.inputs[i], s.values[i].data()});
  for (std::size_t i = 0; i < out.size(); ++i) to.push_back({s.outputs[i], out[i].data()});
  ReferenceContext c{s.node, in, to};
  const std::int64_t parts = shares > 1 ? s.node.op->parts(c) : 0;
  for (std::int64_t i = shares - 1; i >= 0; --i) {
    if (shares > 1) c.begin = i * parts / shares, c.end = (i + 1) * parts / shares;
    run_reference(c);
  }
  return out;
}

// A run of one kernel as the runtime does it: constants packed where the kernel wants them, shapes by value, scratch of the planned
// size. On a host-addressable device buffers are the tests' own bytes; elsewhere they begin at an offset in the device's memory.
class KernelRun {
 public:
  // `given`: the layout in which the inputs that are not constant lie, for kernels that may ask for others than the plain one.
  KernelRun(Device& device, const Kernel& kernel, const KernelSubject& subject, Layout given = Layout::kPlain)
      : device_(device), kernel_(kernel), s_(subject), constants_(subject.constants), host_(device.traits().host_addressable) {
    // Once shapes are planned, what they depend on is known.
    for (std::size_t i = 0; i < constants_.size(); ++i) {
      if (constants_[i] == nullptr && by_value(i)) constants_[i] = copy_of(s_.inputs[i], s_.values[i]);
    }
    desc_ = {&s_.node, s_.inputs, s_.outputs, constants_};
    desc_.precision = s_.precision;
    desc_.products = s_.products;
    desc_.threads = device_.traits().compute_units;
    if (kernel_.layouts != nullptr) choose_layouts(given);
    kernel_.plan(desc_, &plan_);
  }

  const KernelPlan& plan() const { return plan_; }

  // Value of all bytes of the scratch memory before the next runs.
  void set_scratch(unsigned char value) { scratch_value_ = value; }

  // Per input, then per output; none where the kernel has no wishes.
  const std::vector<Layout>& layouts() const { return layouts_; }

  // The outputs' bytes. With in_place output 0 lies over that input, of the same size.
  std::vector<Bytes> run(int in_place = -1, const Cancel& cancel = {}) {
    memory_.clear();
    values_ = s_.values;
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = in_layout(values_[i], s_.inputs[i], desc_.input_layout(static_cast<int>(i)), true);
    const std::vector<Bytes> given = values_;
    std::vector<Bytes> results = blank_outputs(s_);
    std::vector<Buffer> in, packed, out;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      in.push_back(reads(i) ? place(values_[i]) : Buffer{});
      packed.push_back(pack(i));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool over = i == 0 && in_place >= 0;
      const bool wanted = s_.outputs[i].dtype != DType::kUndefined;
      out.push_back(over ? in[static_cast<std::size_t>(in_place)] : wanted ? place(results[i]) : Buffer{});
    }
    KernelArgs args;
    args.desc = &desc_;
    args.plan = &plan_;
    args.inputs = in;
    args.outputs = out;
    args.packed = packed;
    args.scratch = scratch();
    const Event done = device_.enqueue({&kernel_, args, &cancel}, {});
    device_.wait(done);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool over = i == 0 && in_place >= 0;
      if (!host_) download(out[i], &results[i]);
      if (host_ && over) results[i] = values_[static_cast<std::size_t>(in_place)];
      results[i] = in_layout(results[i], s_.outputs[i], desc_.output_layout(static_cast<int>(i)), false);
    }
    for (std::size_t i = 0; host_ && i < values_.size(); ++i) {
      EXPECT_TRUE(static_cast<int>(i) == in_place || values_[i] == given[i]) << kernel_.name << " wrote to input " << i;
    }
    return results;
  }

 private:
  void choose_layouts(Layout given) {
    layouts_.assign(s_.inputs.size() + s_.outputs.size(), Layout::kPlain);
    for (std::size_t i = 0; i < s_.inputs.size(); ++i) {
      if (s_.constants[i] == nullptr && s_.inputs[i].shape.rank() >= 3) layouts_[i] = given;
    }
    const std::span<Layout> all(layouts_);
    kernel_.layouts(desc_, all.first(s_.inputs.size()), all.subspan(s_.inputs.size()));
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const TensorDesc& d = i < s_.inputs.size() ? s_.inputs[i] : s_.outputs[i - s_.inputs.size()];
      EXPECT_TRUE(layouts_[i] == Layout::kPlain || d.shape.rank() >= 3)
          << kernel_.name << ": channels last of rank " << d.shape.rank();
    }
    desc_.layouts = layouts_.data();
  }

  // A plain value in a layout, or back.
  static Bytes in_layout(const Bytes& from, const TensorDesc& d, Layout layout, bool forth) {
    if (layout == Layout::kPlain || from.empty()) return from;
    const std::size_t channels = static_cast<std::size_t>(d.shape[1]);
    const std::size_t positions = static_cast<std::size_t>(d.shape.elements(2, d.shape.rank()));
    const std::size_t size = dtype_size(d.dtype);
    Bytes to(from.size());
    for (std::size_t at = 0; at < from.size() / size; ++at) {
      const std::size_t position = at % positions, channel = at / positions % channels, image = at / positions / channels;
      const std::size_t last = (image * positions + position) * channels + channel;
      std::memcpy(&to[(forth ? last : at) * size], &from[(forth ? at : last) * size], size);
    }
    return to;
  }

  // Kernels of devices with memory of their own read shapes from OpDesc::constants.
  bool reads(std::size_t i) const {
    if (s_.inputs[i].dtype == DType::kUndefined || (i == 0 && (s_.node.op->flags & kOpShapeOnly) != 0)) return false;
    return host_ || !by_value(i);
  }

  bool by_value(std::size_t i) const { return s_.inputs[i].dtype != DType::kUndefined && s_.node.op->reads_value(i); }

  Buffer place(Bytes& bytes) {
    if (host_) return {bytes.data(), 0, bytes.size()};
    constexpr std::size_t kShift = 256;
    memory_.push_back(device_.allocate(bytes.size() + kShift, MemoryClass::kTensors));
    const Buffer there = {memory_.back().memory(), kShift, bytes.size()};
    if (!bytes.empty()) device_.wait(device_.copy({nullptr, {bytes.data(), 0, bytes.size()}}, {&device_, there}, {}));
    return there;
  }

  void download(const Buffer& from, Bytes* bytes) {
    if (!bytes->empty()) device_.wait(device_.copy({&device_, from}, {nullptr, {bytes->data(), 0, bytes->size()}}, {}));
  }

  Buffer pack(std::size_t i) {
    const int input = static_cast<int>(i);
    const bool wanted = s_.constants[i] != nullptr && kernel_.prepack_bytes != nullptr;
    const std::size_t bytes = wanted ? kernel_.prepack_bytes(desc_, input) : 0;
    if (bytes == 0) return {};
    memory_.push_back(device_.allocate(bytes, MemoryClass::kPacked));
    const Buffer there = {memory_.back().memory(), 0, bytes};
    if (host_) {
      kernel_.prepack(desc_, input, there.address());
      return there;
    }
    Bytes staging(bytes);
    kernel_.prepack(desc_, input, staging.data());
    device_.wait(device_.copy({nullptr, {staging.data(), 0, bytes}}, {&device_, there}, {}));
    return there;
  }

  Buffer scratch() {
    const std::size_t per_thread = host_ ? align_up(plan_.thread_scratch_bytes, 64) * device_.traits().compute_units : 0;
    const std::size_t bytes = align_up(plan_.scratch_bytes, 64) + per_thread;
    if (bytes == 0) return {};
    memory_.push_back(device_.allocate(bytes, MemoryClass::kScratch));
    const Buffer there = {memory_.back().memory(), 0, bytes};
    Bytes blank(host_ ? 0 : bytes, static_cast<char>(scratch_value_));
    if (host_) std::memset(there.address(), scratch_value_, bytes);
    if (!host_) device_.wait(device_.copy({nullptr, {blank.data(), 0, bytes}}, {&device_, there}, {}));
    return there;
  }

  Device& device_;
  const Kernel& kernel_;
  const KernelSubject& s_;
  std::vector<WeightPtr> constants_;
  const bool host_;
  unsigned char scratch_value_ = 0xff;
  std::vector<Layout> layouts_;
  OpDesc desc_;
  KernelPlan plan_;
  std::vector<PooledMemory> memory_;
  std::vector<Bytes> values_;
};

inline bool is_exact(const Tolerance& t) { return t.rtol == 0 && t.atol == 0; }

// |a-b| <= rtol*|b| + atol*max|b|; NaN and infinities must be where the reference has them. With a tolerance, a device may
// flush denormals; without one, the values are equal.
template <typename T>
testing::AssertionResult floats_near(const T* got, const T* expected, std::size_t n, Tolerance t) {
  double top = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isfinite(expected[i])) top = std::max(top, std::fabs(static_cast<double>(expected[i])));
  }
  const double smallest = is_exact(t) ? 0 : static_cast<double>(std::numeric_limits<T>::min());
  for (std::size_t i = 0; i < n; ++i) {
    const double x = got[i], y = expected[i];
    const bool near = std::isnan(y) ? std::isnan(x) : x == y || std::fabs(x - y) <= t.rtol * std::fabs(y) + t.atol * top + smallest;
    if (!near) return testing::AssertionFailure() << "element " << i << " of " << n << ": " << x << ", reference " << y;
  }
  return testing::AssertionSuccess();
}

// The same of Bytes.
template <typename T>
testing::AssertionResult bytes_near(const Bytes& got, const Bytes& expected, Tolerance t) {
  return floats_near(reinterpret_cast<const T*>(got.data()), reinterpret_cast<const T*>(expected.data()), got.size() / sizeof(T),
                     t);
}

// Float32 within the tolerance, float64 where there is one within roundings of sums in another order, everything else bit for bit.
inline testing::AssertionResult outputs_near(const KernelSubject& s, const std::vector<Bytes>& got,
                                             const std::vector<Bytes>& expected, Tolerance t) {
  for (std::size_t k = 0; k < got.size(); ++k) {
    const DType dtype = s.outputs[k].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
      if (got[k] != expected[k]) return testing::AssertionFailure() << "output " << k << " differs";
      continue;
    }
    const Tolerance doubles = is_exact(t) ? t : Tolerance{1e-12, 1e-13};
    const testing::AssertionResult near =
        dtype == DType::kFloat32 ? bytes_near<float>(got[k], expected[k], t) : bytes_near<double>(got[k], expected[k], doubles);
    if (!near) return testing::AssertionFailure() << "output " << k << ", " << near.message();
  }
  return testing::AssertionSuccess();
}

// The operator's tolerance, and what fused steps add: a rounding each, and the approximations of exp in some of them.
inline Tolerance tolerance_of(const Node& node) {
  Tolerance t = node.op->tolerance;
  if (node.epilogue.empty()) return t;
  t.rtol += 3e-6;
  t.atol += 3e-6;
  for (int i = 0; i < node.epilogue.count; ++i) {
    const EpilogueOpKind kind = node.epilogue.ops[i].kind;
    if (kind == EpilogueOpKind::kSigmoid || kind == EpilogueOpKind::kTanh || kind == EpilogueOpKind::kSwish) t.rtol += 1e-5;
  }
  return t;
}

// The kernels of a device's tables that take the node, in the order of the tables.
inline std::vector<const Kernel*> supporting_kernels(const Device& device, const OpDesc& desc) {
  std::vector<const Kernel*> all;
  for (const KernelFamily* family : device.kernels()) {
    for (const Kernel& k : family->kernels) {
      const bool is_op = desc.node->op_type == k.op && desc.node->domain == k.domain && k.operands == desc.precision;
      if (is_op && k.supports(desc) == nullptr) all.push_back(&k);
    }
  }
  return all;
}

}  // namespace evn::test
