// Element-wise functions of one quantized tensor become one table of 256 elements (ops/byte_table.h):
//   DequantizeLinear -> Sigmoid, HardSwish, Clip, Add of a number, ... -> QuantizeLinear
// and com.microsoft's QLinearSigmoid, QLinearLeakyRelu. What comes of one tensor on several ways is still a function of it: SiLU,
// which quantizers leave as x * (sigmoid of x, quantized), is one table. The operators' own references compute it, so that it is
// right whatever the scales are; kernels of float32 differ by an ulp, and so may the step where a result lies half-way between two.
// A QuantizeLinear of what a DequantizeLinear gives back is nothing at all where the numbers are equal.
#include <cstring>
#include <memory>

#include "graph/infer.h"
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/byte_table.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr const char* kByteFunctions[] = {"QLinearSigmoid", "QLinearLeakyRelu", "QLinearAdd", "QLinearMul"};

bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUint8; }

// A value as a function of the bits of an element of `source`, float32 or bytes.
struct Curve {
  ValueId source = kNoValue;
  DType dtype = DType::kUndefined;
  alignas(8) std::array<float, 256> values;  // or bytes

  ByteValues bytes() const {
    ByteValues b;
    std::memcpy(b.data(), values.data(), b.size());
    return b;
  }
};

class Tables {
 public:
  Tables(Graph& graph, const PassContext& context) : edit_(graph), context_(context), curves_(graph.values.size()) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!takes_part(edit_.node(n))) continue;
      std::unique_ptr<Curve> curve = curve_of(edit_.node(n));
      if (curve == nullptr) continue;
      const ValueId y = edit_.node(n).outputs[0];
      const Curve& c = *(curves_[static_cast<std::size_t>(y)] = std::move(curve));
      if (is_byte(c.dtype)) rewrite(n, c);
    }
    return edit_.commit();
  }

 private:
  static bool is_byte_function(const Node& node) {
    if (node.domain != "com.microsoft") return false;
    for (const char* name : kByteFunctions) {
      if (node.op_type == name) return true;
    }
    return false;
  }

  static bool is_table(const Node& node) { return node.domain == kInternalDomain && node.op_type == kByteTable; }

  // Whether a node may make a curve of bytes, or go on from one.
  static bool takes_part(const Node& node) {
    if (node.op == nullptr || node.op->custom != nullptr || node.op->reference == nullptr || (node.op->flags & kOpRandom) != 0)
      return false;
    if (node.outputs.size() != 1 || node.outputs[0] == kNoValue || !node.epilogue.empty()) return false;
    if (is_op(node, "DequantizeLinear") || is_op(node, "QuantizeLinear") || is_byte_function(node)) return true;
    return (node.op->flags & kOpElementwise) != 0 && !is_table(node);
  }

  // One number, which changes the shape of nothing of that rank.
  bool is_number(ValueId v, int rank) const {
    const Weight* w = edit_.value(v).constant.get();
    if (w == nullptr || w->desc.dtype == DType::kString || dtype_size(w->desc.dtype) == 0) return false;
    return w->desc.shape.elements() == 1 && w->desc.shape.rank() <= std::max(rank, 0);
  }

  const Curve* known(ValueId v) const {
    const auto i = static_cast<std::size_t>(v);
    return i < curves_.size() ? curves_[i].get() : nullptr;
  }

  // The tensor of bytes on which all inputs depend that are no numbers; kNoValue: there is no such, or more than one.
  ValueId source_of(const Node& node) const {
    const bool reads_bytes = is_op(node, "DequantizeLinear") || is_byte_function(node);
    ValueId source = kNoValue;
    for (const ValueId v : node.inputs) {
      if (v == kNoValue || edit_.value(v).constant != nullptr) continue;
      const Curve* curve = known(v);
      if (curve == nullptr && !(reads_bytes && is_byte(edit_.value(v).dtype))) return kNoValue;
      const ValueId from = curve != nullptr ? curve->source : v;
      if (source != kNoValue && source != from) return kNoValue;
      source = from;
    }
    return source;
  }

  std::unique_ptr<Curve> curve_of(const Node& node) {
    const ValueId source = source_of(node);
    if (source == kNoValue) return nullptr;
    const int rank = value_rank(edit_.value(source));
    if (rank < 1) return nullptr;
    Curve identity;
    for (std::size_t i = 0; i < 256; ++i) reinterpret_cast<std::uint8_t*>(identity.values.data())[i] = static_cast<std::uint8_t>(i);
    std::vector<ConstTensor> inputs(node.inputs.size());
    std::vector<TensorDesc> descs(node.inputs.size());
    std::vector<std::vector<std::uint64_t>> copies(node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNoValue) continue;
      if (edit_.value(v).constant != nullptr) {
        // Scales and zero points may be vectors of one element whatever the rank is.
        if (!is_number(v, i == 0 || (node.op->flags & kOpElementwise) != 0 ? rank : 1)) return nullptr;
        inputs[i] = {{edit_.value(v).dtype, Shape{}}, aligned_bytes(*edit_.value(v).constant, copies[i])};
      } else {
        const Curve* curve = known(v);
        const DType dtype = curve != nullptr ? curve->dtype : edit_.value(v).dtype;
        inputs[i] = {{dtype, Shape{256}}, (curve != nullptr ? *curve : identity).values.data()};
      }
      descs[i] = inputs[i].desc;
    }
    try {
      TensorDesc out;
      infer_node(node, descs, inputs, {&out, 1});
      if (out.shape != Shape{256} || !(is_byte(out.dtype) || out.dtype == DType::kFloat32)) return nullptr;
      auto curve = std::make_unique<Curve>();
      curve->source = source;
      curve->dtype = out.dtype;
      const MutableTensor to = {out, curve->values.data()};
      run_reference({node, inputs, {&to, 1}});
      return curve;
    } catch (const Error&) {
      return nullptr;  // what is wrong with it, a run says
    }
  }

  void rewrite(int n, const Curve& c) {
    const Node& node = edit_.node(n);
    const ValueId y = node.outputs[0];
    if (c.dtype == edit_.value(c.source).dtype && is_identity(c.bytes()) && !edit_.is_output(y)) {
      edit_.replace_uses(y, c.source);
      edit_.remove_node(n);
      return;
    }
    become_table(edit_, context_, n, c.source, c.dtype, c.bytes());
  }

  GraphEditor edit_;
  const PassContext& context_;
  std::vector<std::unique_ptr<Curve>> curves_;  // per value of the graph as it was
};

}  // namespace

bool fuse_byte_tables(Graph& graph, const PassContext& context) { return Tables(graph, context).run(); }

}  // namespace evn
