#include "quant/rewrite.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "quant/layers.h"
#include "quant/weights.h"

namespace evn {
namespace {

class Rewriter {
 public:
  Rewriter(Graph& graph, QuantScheme& scheme, const RewriteOptions& options) : graph_(graph), scheme_(scheme), options_(options) {
    for (const Value& v : graph.values) names_.insert(v.name);
    for (const Node& n : graph.nodes) node_names_.insert(n.name);
  }

  void run_static(std::span<const QuantParams> params) {
    params_ = params;
    quantized_.assign(graph_.values.size(), kNoValue);
    made_of_bytes_.assign(graph_.values.size(), false);
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    const std::vector<ValueId> inputs = graph_.inputs;
    for (const ValueId v : inputs) pass_through(v);
    for (std::size_t i = 0; i < old.size(); ++i) {
      Node& node = old[i];
      QuantNode& q = scheme_.nodes[i];
      if (q.role == QuantRole::kProduct) replace_weight(node, q);
      divide_norm(node, static_cast<std::int32_t>(i));
      for (ValueId& v : node.inputs) {
        if (v == kNoValue || at(v) >= quantized_.size() || quantized_[at(v)] == kNoValue) continue;
        // Of what is made in 8 bits nobody sees more; of what is made in float32 only those who want 8 bits see these.
        if (made_of_bytes_[at(v)] || makes_bytes(q.role)) v = quantized_[at(v)];
      }
      const std::vector<ValueId> made = node.outputs;
      if (q.role == QuantRole::kTable) {
        replace_table(node);
        for (const ValueId v : made) pass_through(v);
        continue;
      }
      for (const ValueId v : made) {
        if (v != kNoValue) made_of_bytes_[at(v)] = makes_bytes(q.role);
      }
      graph_.nodes.push_back(std::move(node));
      for (const ValueId v : made) pass_through(v);
    }
    drop_unused_constants();
  }

  void run_dynamic() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    std::map<ValueId, Dynamic> made;  // a value that several products read is quantized once
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (scheme_.nodes[i].role == QuantRole::kProduct) {
        replace_product(std::move(old[i]), scheme_.nodes[i], made);
      } else if (scheme_.nodes[i].role == QuantRole::kTable) {
        replace_table(old[i]);
      } else {
        graph_.nodes.push_back(std::move(old[i]));
      }
    }
    drop_unused_constants();
  }

 private:
  struct Dynamic {
    ValueId values, scale, zero;
  };

  Graph& graph_;
  QuantScheme& scheme_;
  const RewriteOptions& options_;
  std::set<std::string> names_, node_names_;
  std::span<const QuantParams> params_;
  std::vector<bool> made_of_bytes_; // by old value
  std::vector<ValueId> quantized_;  // by old value: what stands for it in 8 bits and back
  // By weight, axis, the input by whose smoothing its rows are multiplied and whose scale the bias has, and the bias: its numbers, dequantized.
  std::map<std::tuple<ValueId, int, ValueId, ValueId>, std::pair<QuantizedWeight, ValueId>> weights_;

  std::map<ValueId, std::pair<ValueId, ValueId>> tables_;  // by matrix: its bytes, and a column of scales

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

  static std::string unique(std::set<std::string>& taken, const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken.insert(name).second; ++i) name = wanted + "_" + std::to_string(i);
    return name;
  }

  ValueId add_value(const std::string& name, DType dtype) {
    Value v;
    v.name = unique(names_, name);
    v.dtype = dtype;
    graph_.values.push_back(std::move(v));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  ValueId add_constant(const std::string& name, WeightPtr weight) {
    const ValueId id = add_value(name, weight->desc.dtype);
    Value& v = graph_.values[at(id)];
    v.has_shape = true;
    v.shape = weight->desc.shape;
    v.constant = std::move(weight);
    return id;
  }

  template <typename T>
  ValueId add_numbers(const std::string& name, DType dtype, std::span<const T> numbers, bool scalar) {
    void* to = nullptr;
    WeightPtr weight = make_unfilled_weight({dtype, scalar ? Shape{} : Shape{static_cast<std::int64_t>(numbers.size())}}, options_.ledger, &to);
    std::memcpy(to, numbers.data(), numbers.size_bytes());
    return add_constant(name, std::move(weight));
  }
  ValueId add_scalar(const std::string& name, float x) { return add_numbers<float>(name, DType::kFloat32, {&x, 1}, true); }
  ValueId add_zero(const std::string& name, DType dtype, std::int32_t zero) {
    const auto byte = static_cast<std::uint8_t>(zero);
    return add_numbers<std::uint8_t>(name, dtype, {&byte, 1}, true);
  }

  Node& add_node(const char* op, const std::string& name, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    Node n;
    n.name = unique(node_names_, name);
    n.op_type = op;
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    return graph_.nodes.emplace_back(std::move(n));
  }

  const Smoothing* smoothing_of(ValueId v) const {
    const auto it = options_.smoothing.find(v);
    return it == options_.smoothing.end() ? nullptr : &it->second;
  }

  QuantParams params_of_value(ValueId v) const {
    const Smoothing* s = smoothing_of(v);
    return s != nullptr ? params_of(s->range, options_.activation) : params_[static_cast<std::size_t>(scheme_.group[at(v)])];
  }

  // A LayerNormalization that gives a value divided by its smoothing.
  void divide_norm(Node& node, std::int32_t number) {
    const Smoothing* s = node.outputs.empty() || node.outputs[0] == kNoValue ? nullptr : smoothing_of(node.outputs[0]);
    if (s == nullptr || s->norm != number) return;
    for (std::size_t k = 1; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kNoValue) continue;
      const Value& old = graph_.values[at(node.inputs[k])];
      std::vector<float> numbers = floats_of_weight(*old.constant);
      for (std::size_t c = 0; c < numbers.size(); ++c) numbers[c] /= s->factors[c];
      node.inputs[k] = add_numbers<float>(old.name + "_smooth", DType::kFloat32, numbers, false);
    }
  }

  // Puts QuantizeLinear and DequantizeLinear behind a value that has a group.
  void pass_through(ValueId v) {
    if (v == kNoValue || at(v) >= quantized_.size() || scheme_.group[at(v)] < 0) return;
    const QuantParams p = params_of_value(v);
    const std::string name = graph_.values[at(v)].name;
    ValueId from = v;
    if (const Smoothing* s = smoothing_of(v); s != nullptr && s->norm < 0) {
      std::vector<float> parts;
      for (const float f : s->factors) parts.push_back(1 / f);
      from = add_value(name + "_smooth", DType::kFloat32);
      add_node("Mul", name + "_smooth_Mul", {v, add_numbers<float>(name + "_smooth_factors", DType::kFloat32, parts, false)}, {from});
    }
    const ValueId scale = add_scalar(name + "_scale", p.scale), zero = add_zero(name + "_zero_point", options_.activation, p.zero);
    const ValueId q = add_value(name + "_quantized", options_.activation), back = add_value(name + "_dequantized", DType::kFloat32);
    add_node("QuantizeLinear", name + "_QuantizeLinear", {from, scale, zero}, {q});
    add_node("DequantizeLinear", name + "_DequantizeLinear", {q, scale, zero}, {back});
    quantized_[at(v)] = back;
  }

  const std::pair<QuantizedWeight, ValueId>& weight_of(const Node& node, const QuantNode& quant, int axis) {
    const ValueId v = node.inputs[static_cast<std::size_t>(quant.weight)];
    const Smoothing* s = smoothing_of(node.inputs[0]);
    const ValueId bias = quant.bias < 0 ? kNoValue : node.inputs[static_cast<std::size_t>(quant.bias)];
    const bool alone = s != nullptr || bias != kNoValue;
    const auto [it, is_new] = weights_.try_emplace({v, axis, alone ? node.inputs[0] : kNoValue, bias});
    if (!is_new) return it->second;
    const std::string name = graph_.values[at(v)].name;
    WeightPtr weight = graph_.values[at(v)].constant;
    if (s != nullptr) {
      std::vector<float> numbers = floats_of_weight(*weight);
      for_input_channels(node, quant, weight->desc.shape, [&](std::size_t c, std::size_t i) { numbers[i] *= s->factors[c]; });
      weight = weight_of_floats(weight->desc.shape, numbers, options_.ledger);
    }
    QuantizedWeight& q = it->second.first;
    std::vector<float> least;
    if (bias != kNoValue) least = scales_for_bias(*graph_.values[at(bias)].constant, params_of_value(node.inputs[0]).scale, axis);
    q = quantize_weight(*weight, axis, options_.ledger, least);
    it->second.second = dequantized(name, q.values, q.scales, axis, true);
    return it->second;
  }

  // A constant through DequantizeLinear; axis < 0: one scale.
  ValueId dequantized(const std::string& name, const WeightPtr& values, std::span<const float> scales, int axis, bool with_zero) {
    const bool one = axis < 0;
    std::vector<ValueId> inputs{add_constant(name + "_quantized", values), add_numbers<float>(name + "_scale", DType::kFloat32, scales, one)};
    if (with_zero) {
      const std::vector<std::int8_t> zeros(scales.size(), 0);
      inputs.push_back(add_numbers<std::int8_t>(name + "_zero_point", DType::kInt8, zeros, one));
    }
    const ValueId back = add_value(name + "_dequantized", DType::kFloat32);
    Node& n = add_node("DequantizeLinear", name + "_DequantizeLinear", std::move(inputs), {back});
    if (!one) n.attributes.push_back({"axis", std::int64_t{axis}});
    return back;
  }

  int axis_of(const QuantNode& q) const { return options_.per_tensor ? -1 : q.weight_axis; }

  // The bias with what is added to it, as an input of its own.
  void shift_bias(Node& node, QuantNode& q) {
    if (q.bias_shift.empty() || node.op_type == "MatMul") return;
    std::vector<float> numbers(q.bias_shift.size());
    if (q.bias >= 0) numbers = floats_of_weight(*graph_.values[at(node.inputs[static_cast<std::size_t>(q.bias)])].constant);
    for (std::size_t c = 0; c < numbers.size(); ++c) numbers[c] += q.bias_shift[c];
    q.bias = 2;
    node.inputs.resize(3, kNoValue);
    node.inputs[2] = add_numbers<float>(node.name + "_bias", DType::kFloat32, numbers, false);
  }

  void replace_weight(Node& node, QuantNode& q) {
    shift_bias(node, q);
    const auto& [numbers, back] = weight_of(node, q, axis_of(q));
    node.inputs[static_cast<std::size_t>(q.weight)] = back;
    if (q.bias < 0) return;
    const ValueId bias = node.inputs[static_cast<std::size_t>(q.bias)];
    const Value b = graph_.values[at(bias)];  // a copy: values are added
    const float input_scale = params_of_value(node.inputs[0]).scale;
    WeightPtr values = quantize_bias(*b.constant, input_scale, numbers.scales, options_.ledger);
    if (values == nullptr) {  // the bias stays float32, which every engine takes too, if slower
      q.reason = "its bias does not fit 32 bits";
      return;
    }
    std::vector<float> scales;
    for (const float s : numbers.scales) scales.push_back(input_scale * s);
    node.inputs[static_cast<std::size_t>(q.bias)] = dequantized(b.name, values, scales, numbers.scales.size() == 1 && axis_of(q) < 0 ? -1 : 0, false);
  }

  // Rows of bytes times their scales.
  void replace_table(const Node& node) {
    const ValueId table = node.inputs[0], rows = node.inputs[1];
    const auto [it, is_new] = tables_.try_emplace(table);
    if (is_new) {
      const std::string name = graph_.values[at(table)].name;
      const QuantizedWeight q = quantize_weight(*graph_.values[at(table)].constant, 0, options_.ledger);
      const Shape column{static_cast<std::int64_t>(q.scales.size()), 1};
      it->second = {add_constant(name + "_quantized", q.values), add_constant(name + "_scales", weight_of_floats(column, q.scales, options_.ledger))};
    }
    const ValueId bytes = add_value(node.name + "_bytes", DType::kInt8), steps = add_value(node.name + "_steps", DType::kFloat32);
    const ValueId scales = add_value(node.name + "_scales", DType::kFloat32);
    add_node("Gather", node.name + "_bytes_Gather", {it->second.first, rows}, {bytes});
    add_node("Gather", node.name + "_scales_Gather", {it->second.second, rows}, {scales});
    add_node("Cast", node.name + "_Cast", {bytes}, {steps}).attributes.push_back({"to", std::int64_t{EVN_DTYPE_FLOAT32}});
    add_node("Mul", node.name + "_Mul", {steps, scales}, {node.outputs[0]});
  }

  void replace_product(Node node, const QuantNode& q, std::map<ValueId, Dynamic>& made) {
    const ValueId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
    const auto it = made.find(x);
    Dynamic d = it == made.end() ? Dynamic{kNoValue, kNoValue, kNoValue} : it->second;
    if (it == made.end()) {
      const std::string name = graph_.values[at(x)].name;
      d.values = add_value(name + "_quantized", DType::kUint8);
      d.scale = add_value(name + "_scale", DType::kFloat32);
      d.zero = add_value(name + "_zero_point", DType::kUint8);
      add_node("DynamicQuantizeLinear", name + "_DynamicQuantizeLinear", {x}, {d.values, d.scale, d.zero});
      made.emplace(x, d);
    }
    const std::string name = graph_.values[at(w)].name;
    Weight plain = *graph_.values[at(w)].constant;
    const bool turned = node.op_type == "Gemm" && q.weight_axis == 0;
    QuantizedWeight numbers = quantize_weight(plain, options_.per_tensor ? -1 : q.weight_axis, options_.ledger);
    if (turned) numbers.values = transposed_bytes(*numbers.values, options_.ledger);
    const std::vector<std::int8_t> zeros(numbers.scales.size(), 0);
    const ValueId values = add_constant(name + "_quantized", numbers.values);
    const ValueId zero = add_numbers<std::int8_t>(name + "_zero_point", DType::kInt8, zeros, options_.per_tensor);
    const ValueId scale = add_numbers<float>(name + "_scale", DType::kFloat32, numbers.scales, options_.per_tensor);
    const ValueId sum = add_value(node.name + "_sum", DType::kInt32), real = add_value(node.name + "_sum_float", DType::kFloat32);
    const ValueId scales = add_value(node.name + "_scales", DType::kFloat32);
    const ValueId product = q.bias < 0 ? y : add_value(node.name + "_product", DType::kFloat32);
    add_node("MatMulInteger", node.name + "_MatMulInteger", {d.values, values, d.zero, zero}, {sum});
    add_node("Cast", node.name + "_Cast", {sum}, {real}).attributes.push_back({"to", std::int64_t{EVN_DTYPE_FLOAT32}});
    add_node("Mul", node.name + "_scales_Mul", {d.scale, scale}, {scales});
    add_node("Mul", node.name + "_Mul", {real, scales}, {product});
    if (q.bias >= 0) add_node("Add", node.name + "_Add", {product, node.inputs[static_cast<std::size_t>(q.bias)]}, {y});
  }

  // Constants that nobody reads any more lose their bytes.
  void drop_unused_constants() {
    std::vector<bool> read(graph_.values.size());
    for (const Node& n : graph_.nodes) {
      for (const ValueId v : n.inputs) {
        if (v != kNoValue) read[at(v)] = true;
      }
    }
    for (const ValueId v : graph_.outputs) read[at(v)] = true;
    for (std::size_t v = 0; v < read.size(); ++v) {
      Value& value = graph_.values[v];
      if (!read[v]) value.constant = nullptr;
    }
  }
};

}  // namespace

void rewrite_static(Graph* graph, QuantScheme* scheme, std::span<const QuantParams> params, const RewriteOptions& options) {
  Rewriter(*graph, *scheme, options).run_static(params);
}

void rewrite_dynamic(Graph* graph, QuantScheme* scheme, const RewriteOptions& options) {
  Rewriter(*graph, *scheme, options).run_dynamic();
}

}  // namespace evn
