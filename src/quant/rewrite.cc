#include "quant/rewrite.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/cancel.h"
#include "base/heap.h"
#include "graph/attributes.h"
#include "graph/subgraphs.h"
#include "quant/graph_writer.h"
#include "quant/layers.h"
#include "quant/weights.h"

namespace evn {
namespace {

class ActivationRewriter {
 public:
  ActivationRewriter(Graph& graph, QuantScheme& scheme, const RewriteOptions& options)
      : graph_(graph), scheme_(scheme), options_(options), writer_(graph, options.ledger) {}

  void run_static(std::span<const QuantParams> params) {
    params_ = params;
    old_.resize(graph_.values.size());
    const std::vector<std::int32_t> regions = value_regions(graph_);
    for (std::size_t v = 0; v < old_.size(); ++v) old_[v].region = regions[v];
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (std::size_t i = 0; i < old.size(); ++i) {
      cancellation_point(kNodeWork);
      if (!makes_bytes(scheme_.nodes[i].role)) continue;
      for (const ValueId v : old[i].inputs) {
        if (v != kNoValue && old[i].region == old_[at(v)].region) old_[at(v)].wanted = true;
      }
    }
    const std::vector<ValueId> inputs = graph_.inputs;
    for (const ValueId v : inputs) pass_through(v);
    for (std::size_t i = 0; i < old.size(); ++i) {
      cancellation_point(kNodeWork);
      const std::string name = old[i].name;  // a copy: the node is moved
      naming_node(name, [&] { rewrite_static_node(std::move(old[i]), i); });
    }
    writer_.drop_unused_constants();
  }

  void run_dynamic() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    std::map<std::pair<ValueId, std::int32_t>, Dynamic> made;  // a value that several products of a region read is quantized once
    for (std::size_t i = 0; i < old.size(); ++i) {
      cancellation_point(kNodeWork);
      const std::string name = old[i].name;  // a copy: the node is moved
      naming_node(name, [&] { rewrite_dynamic_node(std::move(old[i]), scheme_.nodes[i], made); });
    }
    writer_.drop_unused_constants();
  }

 private:
  struct Dynamic {
    ValueId values, scale, zero;
  };
  // A value of the graph before.
  struct Old {
    std::int32_t region = -1;  // of the node that makes it
    bool wanted = false;       // somebody in that region reads it in 8 bits
    bool made_of_bytes = false;
    ValueId bytes = kNoValue, scale = kNoValue, zero = kNoValue;
    std::map<std::int32_t, ValueId> back = {};  // by region: what stands for it in 8 bits and back
  };
  struct MadeWeight {
    QuantizedWeight numbers;
    std::vector<ValueId> constants;             // inputs of a DequantizeLinear
    std::map<std::int32_t, ValueId> back = {};  // by region
  };

  Graph& graph_;
  QuantScheme& scheme_;
  const RewriteOptions& options_;
  GraphWriter writer_;
  std::span<const QuantParams> params_;
  std::int32_t region_ = -1;  // of new nodes
  std::vector<Old> old_;
  // By weight, axis, the input by whose smoothing its rows are multiplied and whose scale the bias has, and the bias: its numbers,
  // dequantized.
  std::map<std::tuple<ValueId, int, ValueId, ValueId>, MadeWeight> weights_;

  std::map<ValueId, std::pair<ValueId, ValueId>> tables_;  // by matrix: its bytes, and a column of scales

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

  void rewrite_static_node(Node node, std::size_t number) {
    QuantNode& q = scheme_.nodes[number];
    writer_.set_region(region_ = node.region);
    if (q.role == QuantRole::kProduct) replace_weight(node, q);
    divide_norm(node, static_cast<std::int32_t>(number));
    for (ValueId& v : node.inputs) {
      if (v != kNoValue && at(v) < old_.size() && old_[at(v)].bytes != kNoValue) v = read_of(v, makes_bytes(q.role));
    }
    const std::vector<ValueId> made = node.outputs;
    if (q.role == QuantRole::kTable) {
      replace_table(node);
    } else {
      for (const ValueId v : made) {
        if (v != kNoValue) old_[at(v)].made_of_bytes = makes_bytes(q.role);
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (const ValueId v : made) pass_through(v);
  }

  void rewrite_dynamic_node(Node node, const QuantNode& q, std::map<std::pair<ValueId, std::int32_t>, Dynamic>& made) {
    writer_.set_region(region_ = node.region);
    if (q.role == QuantRole::kProduct) {
      replace_product(std::move(node), q, made);
    } else if (q.role == QuantRole::kTable) {
      replace_table(node);
    } else {
      graph_.nodes.push_back(std::move(node));
    }
  }

  ValueId add_numbers(const std::string& name, const char* suffix, std::span<const float> numbers, bool scalar) {
    return writer_.add_floats(name, suffix, scalar ? Shape{} : Shape{static_cast<std::int64_t>(numbers.size())}, numbers);
  }
  ValueId add_zeros(const std::string& name, const char* suffix, std::size_t count, bool scalar) {
    const std::vector<std::int8_t> zeros(count, 0);
    return writer_.add_bytes(name, suffix, DType::kInt8, scalar ? Shape{} : Shape{static_cast<std::int64_t>(count)}, zeros.data());
  }

  void add_node(const char* op, const std::string& name, const char* suffix, std::initializer_list<ValueId> inputs,
                ValueId output) {
    writer_.add_node(op, name, suffix, {inputs.begin(), inputs.size()}, output);
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
      for (std::size_t c = 0; c < numbers.size(); ++c) {
        cancellation_point();
        numbers[c] /= s->factors[c];
      }
      node.inputs[k] = add_numbers(old.name, "_smooth", numbers, false);
    }
  }

  // What a node of the present region reads in the place of v. Of what is made in 8 bits nobody sees more; of what is made in
  // float32 only those who want 8 bits see these. They have a DequantizeLinear in their own region: engines make one operator of it
  // and of theirs.
  ValueId read_of(ValueId v, bool wants) {
    const Old& old = old_[at(v)];
    const bool here = region_ == old.region || !region_contains(graph_, old.region, region_);
    if (!wants) return old.made_of_bytes ? old.back.at(old.region) : v;
    return dequantized_in(v, here ? old.region : region_);
  }

  ValueId dequantized_in(ValueId v, std::int32_t region) {
    const auto [it, is_new] = old_[at(v)].back.try_emplace(region, kNoValue);
    if (!is_new) return it->second;
    const std::string name = graph_.values[at(v)].name;
    it->second = writer_.add_value(name, "_dequantized", DType::kFloat32);
    add_node("DequantizeLinear", name, "_DequantizeLinear", {old_[at(v)].bytes, old_[at(v)].scale, old_[at(v)].zero}, it->second);
    return it->second;
  }

  // Puts QuantizeLinear and, where it is of use, DequantizeLinear behind a value that has a group.
  void pass_through(ValueId v) {
    if (v == kNoValue || at(v) >= old_.size() || scheme_.group[at(v)] < 0) return;
    Old& old = old_[at(v)];
    writer_.set_region(region_ = old.region);
    const QuantParams p = params_of_value(v);
    const std::string name = graph_.values[at(v)].name;
    ValueId from = v;
    if (const Smoothing* s = smoothing_of(v); s != nullptr && s->norm < 0) {
      std::vector<float> parts;
      for (const float f : s->factors) {
        cancellation_point();
        parts.push_back(1 / f);
      }
      from = writer_.add_value(name, "_smooth", DType::kFloat32);
      add_node("Mul", name, "_smooth_Mul", {v, add_numbers(name, "_smooth_factors", parts, false)}, from);
    }
    const auto byte = static_cast<std::uint8_t>(p.zero);
    old.scale = add_numbers(name, "_scale", {&p.scale, 1}, true);
    old.zero = writer_.add_bytes(name, "_zero_point", options_.activation, {}, &byte);
    old.bytes = writer_.add_value(name, "_quantized", options_.activation);
    add_node("QuantizeLinear", name, "_QuantizeLinear", {from, old.scale, old.zero}, old.bytes);
    if (old.wanted || old.made_of_bytes) dequantized_in(v, old.region);
  }

  MadeWeight& weight_of(const Node& node, const QuantNode& quant, int axis) {
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
    QuantizedWeight& q = it->second.numbers;
    std::vector<float> least;
    if (bias != kNoValue) least = scales_for_bias(*graph_.values[at(bias)].constant, params_of_value(node.inputs[0]).scale, axis);
    q = quantize_weight(*weight, name, axis, options_.ledger, least);
    it->second.constants = add_constants(name, q.values, q.scales, axis < 0, true);
    return it->second;
  }

  std::vector<ValueId> add_constants(const std::string& name, const WeightPtr& values, std::span<const float> scales, bool one,
                                     bool with_zero) {
    std::vector<ValueId> inputs{writer_.add_constant(name, "_quantized", values), add_numbers(name, "_scale", scales, one)};
    if (with_zero) inputs.push_back(add_zeros(name, "_zero_point", scales.size(), one));
    return inputs;
  }

  // A constant through DequantizeLinear; axis < 0: one scale.
  ValueId dequantized(const std::string& name, const std::vector<ValueId>& inputs, int axis) {
    const ValueId back = writer_.add_value(name, "_dequantized", DType::kFloat32);
    writer_.add_node("DequantizeLinear", name, "_DequantizeLinear", inputs, back);
    if (axis >= 0) writer_.set_int("axis", axis);
    return back;
  }

  int axis_of(const QuantNode& q) const { return options_.per_tensor ? -1 : q.weight_axis; }

  // The bias with what is added to it, as an input of its own.
  void shift_bias(Node& node, QuantNode& q) {
    if (q.bias_shift.empty() || node.op_type == "MatMul") return;
    std::vector<float> numbers(q.bias_shift.size());
    if (q.bias >= 0) numbers = floats_of_weight(*graph_.values[at(node.inputs[static_cast<std::size_t>(q.bias)])].constant);
    for (std::size_t c = 0; c < numbers.size(); ++c) {
      cancellation_point();
      numbers[c] += q.bias_shift[c];
    }
    q.bias = 2;
    node.inputs.resize(3, kNoValue);
    node.inputs[2] = add_numbers(node.name, "_bias", numbers, false);
  }

  void replace_weight(Node& node, QuantNode& q) {
    shift_bias(node, q);
    MadeWeight& made = weight_of(node, q, axis_of(q));
    const QuantizedWeight& numbers = made.numbers;
    const auto [back, is_new] = made.back.try_emplace(region_, kNoValue);
    ValueId& weight = node.inputs[static_cast<std::size_t>(q.weight)];
    const std::string name = graph_.values[at(weight)].name;  // a copy: values are added
    if (is_new) back->second = dequantized(name, made.constants, axis_of(q));
    weight = back->second;
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
    for (const float s : numbers.scales) {
      cancellation_point();
      scales.push_back(input_scale * s);
    }
    node.inputs[static_cast<std::size_t>(q.bias)] =
        dequantized(b.name, add_constants(b.name, values, scales, axis_of(q) < 0, false), axis_of(q) < 0 ? -1 : 0);
  }

  // Rows of bytes times their scales.
  void replace_table(const Node& node) {
    const ValueId table = node.inputs[0], rows = node.inputs[1];
    const auto [it, is_new] = tables_.try_emplace(table);
    if (is_new) {
      const std::string name = graph_.values[at(table)].name;
      const QuantizedWeight q = quantize_weight(*graph_.values[at(table)].constant, name, 0, options_.ledger);
      const Shape column{static_cast<std::int64_t>(q.scales.size()), 1};
      it->second = {writer_.add_constant(name, "_quantized", q.values), writer_.add_floats(name, "_scales", column, q.scales)};
    }
    const ValueId bytes = writer_.add_value(node.name, "_bytes", DType::kInt8),
                  steps = writer_.add_value(node.name, "_steps", DType::kFloat32);
    const ValueId scales = writer_.add_value(node.name, "_scales", DType::kFloat32);
    add_node("Gather", node.name, "_bytes_Gather", {it->second.first, rows}, bytes);
    add_node("Gather", node.name, "_scales_Gather", {it->second.second, rows}, scales);
    writer_.add_cast(node.name, bytes, steps, DType::kFloat32);
    add_node("Mul", node.name, "_Mul", {steps, scales}, node.outputs[0]);
  }

  // W or R as DynamicQuantizeLSTM has it, transposed, with a scale for each row or direction; its scales; zero points.
  std::array<ValueId, 3> add_recurrent(ValueId v) {
    const std::string name = writer_.value(v).name;
    Weight plain = *writer_.value(v).constant;
    const Shape shape = plain.desc.shape;
    const std::int64_t directions = shape[0], rows = shape[1], columns = shape[2];
    plain.desc.shape = options_.per_tensor ? Shape{directions, rows * columns} : Shape{directions * rows, columns};
    const QuantizedWeight q = quantize_weight(plain, name, 0, options_.ledger);
    std::vector<std::int8_t> turned(static_cast<std::size_t>(shape.elements()));
    const auto* const from = q.values->as<std::int8_t>();
    in_pieces(shape.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / columns % rows, matrix = i / columns / rows;
        turned[static_cast<std::size_t>((matrix * columns + i % columns) * rows + row)] = from[i];
      }
    });
    const Shape numbers = options_.per_tensor ? Shape{directions} : Shape{directions, rows};
    const std::vector<std::int8_t> zeros(q.scales.size(), 0);
    return {writer_.add_bytes(name, "_quantized", DType::kInt8, {directions, columns, rows}, turned.data()),
            writer_.add_floats(name, "_scale", numbers, q.scales),
            writer_.add_bytes(name, "_zero_point", DType::kInt8, numbers, zeros.data())};
  }

  void replace_lstm(Node node) {
    const std::array<ValueId, 3> w = add_recurrent(node.inputs[1]), r = add_recurrent(node.inputs[2]);
    node.inputs.resize(8, kNoValue);
    node.inputs[1] = w[0];
    node.inputs[2] = r[0];
    node.inputs.insert(node.inputs.end(), {w[1], w[2], r[1], r[2]});
    node.name += "_DynamicQuantizeLSTM";
    node.op_type = "DynamicQuantizeLSTM";
    node.domain = "com.microsoft";
    drop_attribute(node, "layout");
    graph_.nodes.push_back(std::move(node));
  }

  // [channels, 1, ...], as a picture has its channels.
  static Shape channels_of(const Shape& weight) {
    std::int64_t dims[kMaxRank];
    std::fill_n(dims, kMaxRank, 1);
    dims[0] = weight[0];
    return Shape(std::span<const std::int64_t>(dims, static_cast<std::size_t>(weight.rank() - 1)));
  }

  void replace_product(Node node, const QuantNode& q, std::map<std::pair<ValueId, std::int32_t>, Dynamic>& made) {
    if (node.op_type == "LSTM") return replace_lstm(std::move(node));
    const ValueId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
    const auto it = made.find({x, region_});
    Dynamic d = it == made.end() ? Dynamic{kNoValue, kNoValue, kNoValue} : it->second;
    if (it == made.end()) {
      const std::string name = graph_.values[at(x)].name;
      d.values = writer_.add_value(name, "_quantized", DType::kUint8);
      d.scale = writer_.add_value(name, "_scale", DType::kFloat32);
      d.zero = writer_.add_value(name, "_zero_point", DType::kUint8);
      add_node("DynamicQuantizeLinear", name, "_DynamicQuantizeLinear", {x}, d.values);
      graph_.nodes.back().outputs = {d.values, d.scale, d.zero};
      made.emplace(std::pair{x, region_}, d);
    }
    const std::string name = graph_.values[at(w)].name;
    const bool is_conv = node.op_type == "Conv";
    const Weight& plain = *graph_.values[at(w)].constant;
    const bool turned = node.op_type == "Gemm" && q.weight_axis == 0;
    QuantizedWeight numbers = quantize_weight(plain, name, options_.per_tensor ? -1 : q.weight_axis, options_.ledger);
    if (turned) numbers.values = transposed_bytes(*numbers.values, options_.ledger);
    const ValueId sum = writer_.add_value(node.name, "_sum", DType::kInt32),
                  real = writer_.add_value(node.name, "_sum_float", DType::kFloat32);
    const ValueId scales = writer_.add_value(node.name, "_scales", DType::kFloat32);
    const ValueId product = q.bias < 0 ? y : writer_.add_value(node.name, "_product", DType::kFloat32);
    ValueId scale = kNoValue, bias = q.bias >= 0 ? node.inputs[static_cast<std::size_t>(q.bias)] : kNoValue;
    if (is_conv) {
      // Numbers of channels stand before the spatial axes. ONNX Runtime takes no zero points of channels: all are 0.
      const Shape by_channel = channels_of(plain.desc.shape);
      const ValueId weight = writer_.add_constant(name, "_quantized", numbers.values);
      scale = writer_.add_floats(name, "_scale", options_.per_tensor ? Shape{} : by_channel, numbers.scales);
      if (bias != kNoValue) {
        const std::vector<float> each = floats_of_weight(*graph_.values[at(bias)].constant);
        bias = writer_.add_floats(graph_.values[at(bias)].name, "_channels", by_channel, each);
      }
      add_node("ConvInteger", node.name, "_ConvInteger", {d.values, weight, d.zero}, sum);
      graph_.nodes.back().attributes = std::move(node.attributes);
    } else {
      const std::vector<ValueId> constants = add_constants(name, numbers.values, numbers.scales, options_.per_tensor, true);
      scale = constants[1];
      add_node("MatMulInteger", node.name, "_MatMulInteger", {d.values, constants[0], d.zero, constants[2]}, sum);
    }
    writer_.add_cast(node.name, sum, real, DType::kFloat32);
    add_node("Mul", node.name, "_scales_Mul", {d.scale, scale}, scales);
    add_node("Mul", node.name, "_Mul", {real, scales}, product);
    if (bias != kNoValue) add_node("Add", node.name, "_Add", {product, bias}, y);
  }
};

}  // namespace

void rewrite_static(Graph* graph, QuantScheme* scheme, std::span<const QuantParams> params, const RewriteOptions& options) {
  ActivationRewriter(*graph, *scheme, options).run_static(params);
}

void rewrite_dynamic(Graph* graph, QuantScheme* scheme, const RewriteOptions& options) {
  ActivationRewriter(*graph, *scheme, options).run_dynamic();
}

}  // namespace evn
