#include "quant/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/cancel.h"
#include "graph/attributes.h"
#include "quant/graph_writer.h"

namespace evn {
namespace {

bool is(const Node& node, std::string_view op) { return node.domain.empty() && node.op_type == op; }

class OperatorRewriter {
 public:
  OperatorRewriter(Graph& graph, const LedgerPtr& ledger) : graph_(graph), writer_(graph, ledger) {
    producer_.assign(graph.values.size(), -1);
    reader_.assign(graph.values.size(), -1);
    uses_.assign(graph.values.size(), 0);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      for (const ValueId v : graph.nodes[i].outputs) {
        if (v != kNoValue) producer_[at(v)] = static_cast<std::int32_t>(i);
      }
      for (const ValueId v : graph.nodes[i].inputs) {
        if (v == kNoValue) continue;
        ++uses_[at(v)];
        reader_[at(v)] = static_cast<std::int32_t>(i);
      }
    }
    for (const ValueId v : graph.outputs) ++uses_[at(v)];
    gone_.assign(graph.nodes.size(), false);
  }

  bool run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      if (!gone_[i]) rewrite(i);
    }
    drop_unread();
    return contrib_;
  }

 private:
  Graph& graph_;
  GraphWriter writer_;
  std::vector<std::int32_t> producer_, reader_;
  std::vector<int> uses_;
  std::vector<bool> gone_;
  bool contrib_ = false;

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }
  Node& node(std::int32_t n) { return graph_.nodes[static_cast<std::size_t>(n)]; }

  const Weight* constant(const Node& n, std::size_t input) {
    const bool is_given = input < n.inputs.size() && n.inputs[input] != kNoValue;
    return is_given ? writer_.value(n.inputs[input]).constant.get() : nullptr;
  }

  // The DequantizeLinear that makes v, if it is of bytes or of a constant bias, with a constant scale; else null. The model may
  // have others of its own.
  const Node* dequantizer(ValueId v) {
    if (v == kNoValue || at(v) >= producer_.size() || producer_[at(v)] < 0) return nullptr;
    const Node& n = node(producer_[at(v)]);
    if (!is(n, "DequantizeLinear") || constant(n, 1) == nullptr) return nullptr;
    if (n.inputs.size() < 3) return constant(n, 0) != nullptr ? &n : nullptr;
    const Weight* const zero = constant(n, 2);
    return zero != nullptr && (zero->desc.dtype == DType::kInt8 || zero->desc.dtype == DType::kUint8) ? &n : nullptr;
  }

  // Returns the same, if it has one scale for all elements.
  const Node* tensor_dequantizer(ValueId v) {
    const Node* const n = dequantizer(v);
    return n != nullptr && constant(*n, 1)->desc.shape.elements() == 1 ? n : nullptr;
  }

  // The node that alone reads v, or -1.
  std::int32_t only_reader(ValueId v) const { return uses_[at(v)] == 1 ? reader_[at(v)] : -1; }

  float number(ValueId v) {
    float x = 0;
    std::memcpy(&x, writer_.value(v).constant->bytes(), sizeof x);
    return x;
  }

  // Whether bounds do what saturation behind them does.
  bool is_saturation(const Node& bounds, const Node& quantize) {
    const Weight& zero = *writer_.value(quantize.inputs[2]).constant;
    const bool is_signed = zero.desc.dtype == DType::kInt8;
    const auto byte = *zero.as<std::uint8_t>();
    const float least = is_signed ? -128 : 0, most = is_signed ? 127 : 255, scale = number(quantize.inputs[1]);
    const float middle = is_signed ? static_cast<float>(static_cast<std::int8_t>(byte)) : static_cast<float>(byte);
    const auto step = [&](float x) { return std::nearbyint(x / scale) + middle; };
    if (is(bounds, "Relu")) return step(0) <= least;
    for (std::size_t i = 1; i < bounds.inputs.size(); ++i) {
      const ValueId v = bounds.inputs[i];
      if (v == kNoValue) continue;
      if (writer_.value(v).constant == nullptr || writer_.value(v).dtype != DType::kFloat32) return false;
      if (i == 1 ? !(step(number(v)) <= least) : !(step(number(v)) >= most)) return false;
    }
    return true;
  }

  // The QuantizeLinear that alone reads what node n makes, with bounds between them that may go; -1: none.
  std::int32_t quantizer_behind(const Node& n, std::int32_t* bounds) {
    if (n.outputs.size() != 1) return -1;
    std::int32_t next = only_reader(n.outputs[0]);
    *bounds = -1;
    if (next >= 0 && is_one_of(node(next), {"Relu", "Clip"})) {
      if (node(next).region != n.region) return -1;
      *bounds = next;
      next = only_reader(node(next).outputs[0]);
    }
    if (next < 0 || !is(node(next), "QuantizeLinear") || node(next).inputs.size() < 3 || node(next).region != n.region) return -1;
    return *bounds < 0 || is_saturation(node(*bounds), node(next)) ? next : -1;
  }

  void rewrite(std::size_t i) {
    Node& n = graph_.nodes[i];
    if (n.inputs.empty() || n.inputs[0] == kNoValue) return;
    std::int32_t bounds = -1;
    const Node* const x = tensor_dequantizer(n.inputs[0]);
    const std::int32_t q = x == nullptr || x->inputs.size() < 3 ? -1 : quantizer_behind(n, &bounds);
    if (q < 0) return;
    const std::vector<ValueId>& to = node(q).inputs;
    std::vector<ValueId> inputs(x->inputs);
    bool contrib = true;
    std::string op = "QLinear" + n.op_type;
    if (is_one_of(n, {"Conv", "MatMul", "Gemm", "Add", "Mul"})) {
      const Node* const w = is_one_of(n, {"Add", "Mul"}) ? tensor_dequantizer(n.inputs[1]) : dequantizer(n.inputs[1]);
      if (w == nullptr || w->inputs.size() < 3) return;
      const bool has_bias = n.inputs.size() > 2 && n.inputs[2] != kNoValue;
      const Node* const b = has_bias ? dequantizer(n.inputs[2]) : nullptr;
      if (has_bias && b == nullptr) return;
      const ValueId bias = has_bias ? b->inputs[0] : kNoValue;
      inputs.insert(inputs.end(), w->inputs.begin(), w->inputs.end());
      const bool gemm = is(n, "Gemm");
      if (gemm) {
        op = "QGemm";
        inputs.push_back(bias);
        drop_attribute(n, "beta");
      }
      inputs.insert(inputs.end(), {to[1], to[2]});
      if (!gemm && has_bias) inputs.push_back(bias);
      contrib = !is_one_of(n, {"Conv", "MatMul"});
    } else if (is_one_of(n, {"GlobalAveragePool", "AveragePool", "Sigmoid", "LeakyRelu"})) {
      if (is_dilated(n)) return;
      drop_attribute(n, "dilations");
      inputs.insert(inputs.end(), {to[1], to[2]});
    } else if (bounds < 0 &&
               is_one_of(n, {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Identity"})) {
      if (!moves_bytes(n, node(q))) return;
      const std::size_t operands = is(n, "Concat") ? n.inputs.size() : 1;
      inputs = n.inputs;
      for (std::size_t k = 0; k < operands; ++k) inputs[k] = dequantizer(n.inputs[k])->inputs[0];
      op = n.op_type;
      contrib = false;
    } else {
      return;
    }
    contrib_ |= contrib;
    n.op_type = op;
    n.domain = contrib ? "com.microsoft" : "";
    n.inputs = std::move(inputs);
    n.outputs[0] = node(q).outputs[0];
    gone_[static_cast<std::size_t>(q)] = true;
    if (bounds >= 0) gone_[static_cast<std::size_t>(bounds)] = true;
  }

  static bool is_dilated(const Node& n) {
    return std::ranges::any_of(ints_attribute_of(n, "dilations"), [](std::int64_t d) { return d != 1; });
  }

  // Whether all elements keep their numbers.
  bool moves_bytes(const Node& n, const Node& quantize) {
    const auto same = [&](ValueId a, ValueId b) {
      const Weight &v = *writer_.value(a).constant, &w = *writer_.value(b).constant;
      return v.desc.dtype == w.desc.dtype && v.size_bytes == w.size_bytes && std::memcmp(v.bytes(), w.bytes(), v.size_bytes) == 0;
    };
    const std::size_t operands = is(n, "Concat") ? n.inputs.size() : 1;
    for (std::size_t k = 0; k < operands; ++k) {
      const Node* const d = dequantizer(n.inputs[k]);
      if (d == nullptr || d->inputs.size() < 3 || !same(d->inputs[1], quantize.inputs[1]) ||
          !same(d->inputs[2], quantize.inputs[2]))
        return false;
    }
    return true;
  }

  // Nodes that were replaced, and DequantizeLinear that nobody reads any more.
  void drop_unread() {
    std::vector<bool> read(graph_.values.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      for (const ValueId v : graph_.nodes[i].inputs) {
        if (v != kNoValue && !gone_[i]) read[at(v)] = true;
      }
    }
    for (const ValueId v : graph_.outputs) read[at(v)] = true;
    std::vector<Node> kept;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      Node& n = graph_.nodes[i];
      if (!gone_[i] && !(is(n, "DequantizeLinear") && !read[at(n.outputs[0])])) kept.push_back(std::move(n));
    }
    graph_.nodes = std::move(kept);
    writer_.drop_unused_constants();
  }
};

}  // namespace

bool use_byte_operators(Graph* graph, const LedgerPtr& ledger) { return OperatorRewriter(*graph, ledger).run(); }

}  // namespace evn
