#include "quant/scheme.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/cancel.h"
#include "quant/graph_writer.h"
#include "quant/keep.h"

namespace evn {
namespace {

constexpr std::int64_t kLeastTable = 4096;  // elements for which two more nodes are worth it
constexpr std::int64_t kMostProducts = std::numeric_limits<std::int32_t>::max() / (255 * 127);  // whose sum always fits into int32

class Maker {
 public:
  Maker(const Graph& graph, const SchemeOptions& options) : graph_(graph), options_(options), keep_(options.keep) {
    s_.nodes.resize(graph.nodes.size());
    s_.group.assign(graph.values.size(), -1);
    producer_.assign(graph.values.size(), -1);
    readers_.resize(graph.values.size());
    source_.assign(graph.values.size(), kNoValue);
    is_output_.assign(graph.values.size(), false);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      for (const ValueId v : graph.nodes[i].outputs) {
        if (v != kNoValue) producer_[at(v)] = static_cast<std::int32_t>(i);
      }
      for (const ValueId v : graph.nodes[i].inputs) {
        if (v != kNoValue) readers_[at(v)].push_back(static_cast<std::int32_t>(i));
      }
    }
    for (const ValueId v : graph.outputs) is_output_[at(v)] = true;
  }

  QuantScheme make() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      find_product(i);
      find_table(i);
    }
    if (!options_.dynamic) {
      for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
        cancellation_point(kNodeWork);
        join(i);
      }
      while (leave()) {}
      make_groups();
    }
    return std::move(s_);
  }

 private:
  const Graph& graph_;
  const SchemeOptions& options_;
  const NodePatterns keep_;
  QuantScheme s_;
  std::vector<std::int32_t> producer_;
  std::vector<std::vector<std::int32_t>> readers_;
  std::vector<bool> is_output_;
  std::vector<ValueId> source_;  // by value: the value of 8-bit numbers that it is a function of, or is itself

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }
  const Value& value(ValueId v) const { return graph_.values[at(v)]; }
  bool is_float(ValueId v) const { return v != kNoValue && value(v).dtype == DType::kFloat32 && !value(v).wraps; }
  bool is_constant(ValueId v) const { return v != kNoValue && value(v).constant != nullptr; }
  bool is_activation(ValueId v) const { return is_float(v) && !is_constant(v); }
  QuantRole role(std::int32_t node) const { return s_.nodes[static_cast<std::size_t>(node)].role; }

  void find_product(std::size_t i) {
    const Node& node = graph_.nodes[i];
    QuantNode& q = s_.nodes[i];
    const bool conv = is_one_of(node, {"Conv"}), gemm = is_one_of(node, {"Gemm"}), matmul = is_one_of(node, {"MatMul"});
    const bool lstm = options_.lstm && is_one_of(node, {"LSTM"});
    if (!conv && !gemm && !matmul && !lstm) return;
    const auto refuse = [&](const char* why) { q.reason = why; };
    if (is_kept_by(keep_, node, &q.reason)) return;
    if (i < options_.refused.size() && !options_.refused[i].empty()) return refuse(options_.refused[i].c_str());
    if (lstm) return find_lstm(node, &q);
    if (!is_activation(node.inputs[0]) || !is_float(node.outputs[0])) return refuse("not float32");
    if (!is_constant(node.inputs[1]) || !is_float(node.inputs[1])) return refuse("its weight is computed");
    const Shape& w = value(node.inputs[1]).shape;
    if (!conv && w.rank() != 2) return refuse("its weight is no matrix");
    if (w.elements() == 0) return refuse("its weight is empty");
    const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (gemm) {
      const auto one = [&](const char* name) {
        for (const Attribute& a : node.attributes) {
          if (a.name == name && attribute_type(a.value) == AttributeType::kFloat) return std::get<float>(a.value) == 1.0f;
        }
        return true;
      };
      if (int_attribute_of(node, "transA", 0) != 0) return refuse("its left-hand matrix is transposed");
      if (!one("alpha") || (has_bias && !one("beta"))) return refuse("its product is scaled");
      const Shape* c = has_bias ? &value(node.inputs[2]).shape : nullptr;
      const std::int64_t columns = w[int_attribute_of(node, "transB", 0) != 0 ? 0 : 1];
      if (c != nullptr && (!is_constant(node.inputs[2]) || c->rank() != 1 || (*c)[0] != columns))
        return refuse("its bias is no constant vector");
    }
    if (conv && has_bias && !is_constant(node.inputs[2])) return refuse("its bias is computed");
    const int axis = conv || (gemm && int_attribute_of(node, "transB", 0) != 0) ? 0 : 1;
    if (w.elements() / w[axis] > kMostProducts) return refuse("its sums could overflow 32 bits");
    q.role = QuantRole::kProduct;
    q.weight = 1;
    q.bias = has_bias ? 2 : -1;
    q.weight_axis = axis;
  }

  void find_lstm(const Node& node, QuantNode* q) const {
    const auto is_weight = [&](ValueId v) { return is_constant(v) && is_float(v) && value(v).shape.elements() > 0; };
    if (!options_.contrib) {
      q->reason = "an LSTM; in 8 bits it is an operator of com.microsoft, which has to be asked for";
    } else if (!is_activation(node.inputs[0]) || !is_weight(node.inputs[1]) || !is_weight(node.inputs[2])) {
      q->reason = "its weights are computed, or not float32";
    } else if (int_attribute_of(node, "layout", 0) != 0) {
      q->reason = "its batch comes first";
    } else {
      q->role = QuantRole::kProduct;
      q->weight = 1;
    }
  }

  void find_table(std::size_t i) {
    const Node& node = graph_.nodes[i];
    QuantNode& q = s_.nodes[i];
    if (!is_one_of(node, {"Gather"}) || int_attribute_of(node, "axis", 0) != 0) return;
    if (!is_constant(node.inputs[0]) || !is_float(node.inputs[0]) || is_constant(node.inputs[1])) return;
    const Shape& table = value(node.inputs[0]).shape;
    if (table.rank() != 2 || table.elements() < kLeastTable || is_kept_by(keep_, node, &q.reason)) return;
    if (i < options_.refused.size() && !options_.refused[i].empty()) {
      q.reason = options_.refused[i];
      return;
    }
    q.role = QuantRole::kTable;
  }

  // The value that stands for what the node makes: behind a Relu or Clip that alone reads it.
  ValueId made_by(std::size_t i) const {
    const ValueId v = graph_.nodes[i].outputs[0];
    if (is_output_[at(v)] || readers_[at(v)].size() != 1) return v;
    const auto reader = static_cast<std::size_t>(readers_[at(v)][0]);
    return s_.nodes[reader].role == QuantRole::kBounds ? graph_.nodes[reader].outputs[0] : v;
  }

  static bool is_unary(const Node& node) {
    return is_one_of(node, {"Abs", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Sigmoid", "Sqrt", "Relu", "Clip", "Tanh",
                            "Softplus"});
  }

  bool is_one_number(ValueId v) const {
    return is_constant(v) && value(v).shape.elements() == 1 && value(v).dtype == DType::kFloat32;
  }

  // The value of 8-bit numbers that the node is an element-wise function of; kNoValue: it is none.
  ValueId function_of(const Node& node) const {
    const bool pair = is_one_of(node, {"Add", "Sub", "Mul", "Div"});
    if (!pair && !is_unary(node)) return kNoValue;
    ValueId source = kNoValue;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId v = node.inputs[k];
      if (v == kNoValue || is_one_number(v)) continue;
      if (!is_activation(v) || (source != kNoValue && source_[at(v)] != source)) return kNoValue;
      source = source_[at(v)];
      if (source == kNoValue) return kNoValue;
    }
    // A constant of a higher rank would give the result another shape.
    const auto higher = [&](ValueId v) { return is_constant(v) && value(v).shape.rank() > 1; };
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return v != kNoValue && higher(v); }) ? kNoValue
                                                                                                                      : source;
  }

  // Relu or Clip that alone reads what a product or a node between makes.
  bool is_bounds(const Node& node) const {
    if (!is_one_of(node, {"Relu", "Clip"})) return false;
    const std::int32_t p = producer_[at(node.inputs[0])];
    const bool alone = p >= 0 && readers_[at(node.inputs[0])].size() == 1 && !is_output_[at(node.inputs[0])] &&
                       graph_.nodes[static_cast<std::size_t>(p)].region == node.region;
    const bool bounds =
        std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](ValueId v) { return v == kNoValue || is_constant(v); });
    return alone && bounds && (role(p) == QuantRole::kProduct || role(p) == QuantRole::kBetween);
  }

  bool moves_elements(const Node& node) const {
    if (is_one_of(node, {"Resize"})) {
      const std::string* mode = string_attribute(node, "mode");
      const std::string* crop = string_attribute(node, "coordinate_transformation_mode");
      return (mode == nullptr || *mode == "nearest") && (crop == nullptr || *crop != "tf_crop_and_resize");
    }
    return is_one_of(node, {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "DepthToSpace",
                            "SpaceToDepth", "Slice", "Identity"});
  }

  static const std::string* string_attribute(const Node& node, std::string_view name) {
    for (const Attribute& a : node.attributes) {
      if (a.name == name && attribute_type(a.value) == AttributeType::kString) return &std::get<std::string>(a.value);
    }
    return nullptr;
  }

  // Nodes come in topological order, so that what a node reads has been decided.
  void join(std::size_t i) {
    QuantNode& q = s_.nodes[i];
    const Node& node = graph_.nodes[i];
    const bool refused = i < options_.refused.size() && !options_.refused[i].empty();
    if (q.role == QuantRole::kFloat && !refused && !node.inputs.empty() && !node.outputs.empty() && is_float(node.outputs[0])) {
      q.role = role_between(node, &q.reason);
      if (q.role == QuantRole::kFunction) source_[at(node.outputs[0])] = function_of(node);
    }
    if (!makes_bytes(q.role)) return;
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) source_[at(v)] = v;
    }
  }

  QuantRole role_between(const Node& node, std::string* reason) const {
    if (is_bounds(node)) return QuantRole::kBounds;
    if (function_of(node) != kNoValue) return is_kept_by(keep_, node, reason) ? QuantRole::kFloat : QuantRole::kFunction;
    const bool pair = is_one_of(node, {"Add", "Mul"}), moves = moves_elements(node);
    if (!pair && !moves && !is_one_of(node, {"GlobalAveragePool", "AveragePool"})) return QuantRole::kFloat;
    const std::size_t operands = pair || node.op_type == "Concat" ? node.inputs.size() : 1;
    for (std::size_t k = 0; k < operands; ++k) {
      if (!is_activation(node.inputs[k]) || source_[at(node.inputs[k])] == kNoValue) return QuantRole::kFloat;
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue && !is_float(v)) return QuantRole::kFloat;  // the indices of a MaxPool
    }
    if (is_kept_by(keep_, node, reason)) return QuantRole::kFloat;
    return moves ? QuantRole::kHandsOn : QuantRole::kBetween;
  }

  bool is_read_by_quantized(ValueId v) const {
    return std::any_of(readers_[at(v)].begin(), readers_[at(v)].end(),
                       [&](std::int32_t r) { return role(r) != QuantRole::kFloat; });
  }

  // Takes back nodes whose results only float32 nodes read. Whether one was.
  bool leave() {
    bool changed = false;
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      cancellation_point(kNodeWork);
      QuantNode& q = s_.nodes[i];
      if (q.role != QuantRole::kBetween && q.role != QuantRole::kHandsOn && q.role != QuantRole::kFunction) continue;
      const Node& node = graph_.nodes[i];
      const bool read = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
        return v != kNoValue && is_read_by_quantized(v == node.outputs[0] ? made_by(i) : v);
      });
      if (read) continue;
      q.role = QuantRole::kFloat;
      if (const ValueId v = node.outputs[0]; readers_[at(v)].size() == 1) {
        QuantNode& reader = s_.nodes[static_cast<std::size_t>(readers_[at(v)][0])];
        if (reader.role == QuantRole::kBounds) reader.role = QuantRole::kFloat;
      }
      changed = true;
    }
    return changed;
  }

  std::int32_t find(std::vector<std::int32_t>& parent, std::int32_t v) {
    const auto up = [&](std::int32_t i) -> std::int32_t& { return parent[static_cast<std::size_t>(i)]; };
    while (up(v) != v) v = up(v) = up(up(v));
    return v;
  }

  void make_groups() {
    std::vector<std::int32_t> parent(graph_.values.size());
    for (std::size_t v = 0; v < parent.size(); ++v) parent[v] = static_cast<std::int32_t>(v);
    std::vector<bool> quantized(graph_.values.size());
    const auto operands = [&](std::size_t i) {
      const Node& node = graph_.nodes[i];
      const bool many = is_one_of(node, {"Add", "Mul", "Concat"});
      return std::span(node.inputs).first(many ? node.inputs.size() : 1);
    };
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const QuantRole r = s_.nodes[i].role;
      if (r == QuantRole::kFunction) quantized[at(source_[at(graph_.nodes[i].outputs[0])])] = true;
      if (r == QuantRole::kFloat || r == QuantRole::kBounds || r == QuantRole::kFunction) continue;
      for (const ValueId v : operands(i)) quantized[at(v)] = true;
      if (r == QuantRole::kProduct && graph_.nodes[i].op_type == "Conv" && !is_output_[at(made_by(i))])
        quantized[at(made_by(i))] = true;
      if (r != QuantRole::kHandsOn) continue;
      // All outputs of a node that hands elements on are quantized: its reader would otherwise find them in float32 and in 8 bits.
      for (const ValueId v : graph_.nodes[i].outputs) {
        if (v == kNoValue) continue;
        quantized[at(v)] = true;
        parent[static_cast<std::size_t>(find(parent, v))] = find(parent, graph_.nodes[i].inputs[0]);
      }
      for (const ValueId v : operands(i))
        parent[static_cast<std::size_t>(find(parent, v))] = find(parent, graph_.nodes[i].inputs[0]);
    }
    std::vector<std::int32_t> number(graph_.values.size(), -1);
    for (std::size_t v = 0; v < parent.size(); ++v) {
      cancellation_point();
      if (!quantized[v]) continue;
      std::int32_t& n = number[static_cast<std::size_t>(find(parent, static_cast<std::int32_t>(v)))];
      if (n < 0) n = s_.group_count++;
      s_.group[v] = n;
    }
  }
};

}  // namespace

std::vector<ValueId> QuantScheme::observed(const Graph& graph) const {
  std::vector<bool> handed_on(group.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    cancellation_point();
    if (nodes[i].role != QuantRole::kHandsOn) continue;
    for (const ValueId v : graph.nodes[i].outputs) {
      if (v != kNoValue) handed_on[static_cast<std::size_t>(v)] = true;
    }
  }
  std::vector<ValueId> values;
  for (std::size_t v = 0; v < group.size(); ++v) {
    cancellation_point();
    if (group[v] >= 0 && !handed_on[v]) values.push_back(static_cast<ValueId>(v));
  }
  return values;
}

QuantScheme make_scheme(const Graph& graph, const SchemeOptions& options) { return Maker(graph, options).make(); }

}  // namespace evn
