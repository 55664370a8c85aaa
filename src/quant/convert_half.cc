#include "quant/convert_half.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include "base/cancel.h"
#include "base/heap.h"
#include "graph/subgraphs.h"
#include "ops/infra/numeric.h"
#include "quant/graph_writer.h"
#include "quant/keep.h"

namespace evn {
namespace {

constexpr float kLargestHalf = 65504;

bool is_product(const Node& node) { return is_one_of(node, {"MatMul", "Gemm", "Conv", "ConvTranspose"}); }

bool may_follow(const Node& node) {
  return is_one_of(
      node,
      {"Abs",          "Add",     "AveragePool", "Clip",        "Concat",    "DepthToSpace", "Div",       "Elu",       "Erf",
       "Expand",       "Flatten", "Gelu",        "HardSigmoid", "HardSwish", "Identity",     "LeakyRelu", "MaxPool",   "Mish",
       "Mul",          "Neg",     "PRelu",       "Pad",         "Relu",      "Reshape",      "Selu",      "Sigmoid",   "Slice",
       "SpaceToDepth", "Split",   "Squeeze",     "Sub",         "Tanh",      "Tile",         "Transpose", "Unsqueeze", "Where"});
}

class View {
 public:
  explicit View(const Graph& graph) : graph_(graph) {}
  bool is_float(ValueId v) const { return v != kNoValue && at(v).dtype == DType::kFloat32 && !at(v).wraps; }
  bool is_constant(ValueId v) const { return v != kNoValue && at(v).constant != nullptr; }
  const Value& at(ValueId v) const { return graph_.values[static_cast<std::size_t>(v)]; }

  bool is_table(const Node& node) const {
    return is_one_of(node, {"Gather"}) && is_float(node.inputs[0]) && is_constant(node.inputs[0]) &&
           at(node.inputs[0]).shape.rank() > 1;
  }

 private:
  const Graph& graph_;
};

float largest_of(const Weight& weight) {
  float largest = 0;
  const char* const bytes = static_cast<const char*>(weight.bytes());
  in_pieces(weight.desc.shape.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float x;
      std::memcpy(&x, bytes + static_cast<std::size_t>(i) * sizeof x, sizeof x);
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));  // infinities, as masks have them, stay what they are
    }
  });
  return largest;
}

class Converter {
 public:
  Converter(Graph& graph, const QuantScheme& scheme, DType half, const LedgerPtr& ledger)
      : graph_(graph), scheme_(scheme), half_(half), writer_(graph, ledger) {
    halves_.resize(graph.values.size());
    regions_ = value_regions(graph);
    needs_cast_.assign(graph.values.size(), false);
  }

  void run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (std::size_t i = 0; i < old.size(); ++i) {
      cancellation_point(kNodeWork);
      writer_.set_region(region_ = old[i].region);
      const std::string name = old[i].name;  // a copy: the node is moved
      naming_node(name, [&] { rewrite(std::move(old[i]), scheme_.nodes[i].role); });
    }
    writer_.set_region(region_ = -1);
    for (const ValueId v : graph_.outputs) in_float(v);
    writer_.drop_unused_constants();
  }

 private:
  Graph& graph_;
  const QuantScheme& scheme_;
  const DType half_;
  GraphWriter writer_;
  std::int32_t region_ = -1;           // of the node that is looked at
  std::vector<std::int32_t> regions_;  // by value of the model
  // By value of the model and region: the same in half; for bfloat16, what a Cast makes of the weight.
  std::vector<std::map<std::int32_t, ValueId>> halves_;
  std::map<ValueId, ValueId> constants_;  // in bfloat16
  std::vector<bool> needs_cast_;          // values of the model that half nodes make: nobody has cast them back yet

  bool is_float(ValueId v) const { return View(graph_).is_float(v); }

  std::string half_name(ValueId v) { return writer_.value(v).name + "_" + dtype_name(half_); }

  ValueId add_half_constant(ValueId v) {
    const WeightPtr weight = writer_.value(v).constant;
    void* to = nullptr;
    WeightPtr made = make_unfilled_weight({half_, weight->desc.shape}, writer_.ledger(), &to);
    const char* const bytes = static_cast<const char*>(weight->bytes());
    auto* const halves = static_cast<std::uint16_t*>(to);
    in_pieces(weight->desc.shape.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float x;
        std::memcpy(&x, bytes + static_cast<std::size_t>(i) * sizeof x, sizeof x);
        halves[i] =
            half_ == DType::kFloat16 ? Float16::from(static_cast<double>(x)).bits : Bfloat16::from(static_cast<double>(x)).bits;
      }
    });
    return writer_.add_constant(half_name(v), "", std::move(made));
  }

  void rewrite(Node node, QuantRole role) {
    if (role == QuantRole::kFloat) {
      add_float_node(std::move(node));
    } else if (half_ == DType::kBfloat16) {
      widen_weight(std::move(node));
    } else {
      add_half_node(std::move(node));
    }
  }

  // The value in half, cast where somebody made it float32.
  ValueId in_half(ValueId v) {
    auto& halves = halves_[GraphWriter::at(v)];
    for (std::int32_t region = region_;; region = graph_.regions[static_cast<std::size_t>(region)].parent) {
      cancellation_point();
      if (const auto it = halves.find(region); it != halves.end()) return it->second;
      if (region < 0) break;
    }
    if (writer_.value(v).constant != nullptr) return halves[-1] = add_half_constant(v);
    const ValueId half = halves[region_] = writer_.add_value(half_name(v), "", half_);
    writer_.add_cast(writer_.value(v).name, v, half, half_);
    return half;
  }

  // Sees to it that the model's value is there in float32.
  void in_float(ValueId v) {
    if (v == kNoValue || !needs_cast_[GraphWriter::at(v)]) return;
    needs_cast_[GraphWriter::at(v)] = false;
    const std::int32_t region = regions_[GraphWriter::at(v)];
    const ValueId half = halves_[GraphWriter::at(v)].at(region);
    writer_.set_region(region);
    writer_.add_cast(writer_.value(half).name, half, v, DType::kFloat32);
    writer_.set_region(region_);
  }

  void add_float_node(Node node) {
    for (const ValueId v : node.inputs) in_float(v);
    graph_.nodes.push_back(std::move(node));
  }

  void add_half_node(Node node) {
    for (ValueId& v : node.inputs) {
      if (is_float(v)) v = in_half(v);
    }
    for (ValueId& v : node.outputs) {
      if (!is_float(v)) continue;
      const ValueId made = writer_.add_value(half_name(v), "", half_);
      halves_[GraphWriter::at(v)][region_] = made;
      needs_cast_[GraphWriter::at(v)] = true;
      v = made;
    }
    graph_.nodes.push_back(std::move(node));
  }

  void widen_weight(Node node) {
    for (ValueId& v : node.inputs) {
      if (!is_float(v) || writer_.value(v).constant == nullptr || writer_.value(v).shape.rank() < 2) continue;
      const auto [wide, is_new] = halves_[GraphWriter::at(v)].try_emplace(region_, kNoValue);
      if (is_new) {
        const std::string name = writer_.value(v).name;
        const auto [half, is_first] = constants_.try_emplace(v, kNoValue);
        if (is_first) half->second = add_half_constant(v);
        wide->second = writer_.add_value(name, "_float32", DType::kFloat32);
        writer_.add_cast(name, half->second, wide->second, DType::kFloat32);
      }
      v = wide->second;
    }
    graph_.nodes.push_back(std::move(node));
  }
};

}  // namespace

QuantScheme make_half_scheme(const Graph& graph, const std::vector<std::string>& keep, DType half) {
  const NodePatterns patterns(keep);
  const View view(graph);
  QuantScheme scheme;
  scheme.nodes.resize(graph.nodes.size());
  scheme.group.assign(graph.values.size(), -1);
  std::vector<bool> is_half(graph.values.size());
  std::vector<float> largest(graph.values.size(), -1);  // by value: largest magnitude of a weight; negative: not computed yet
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    const Node& node = graph.nodes[i];
    QuantNode& q = scheme.nodes[i];
    const bool product = is_product(node) || view.is_table(node);
    if (node.inputs.empty() || node.outputs.empty() || !view.is_float(node.outputs[0])) continue;
    const auto reads = [&](ValueId v) { return v != kNoValue && is_half[static_cast<std::size_t>(v)]; };
    const bool follows = may_follow(node) && std::any_of(node.inputs.begin(), node.inputs.end(), reads);
    const auto is_weight = [&](ValueId v) { return view.is_float(v) && view.is_constant(v); };
    if (half == DType::kBfloat16 ? !product : !product && !follows) continue;
    if (half == DType::kBfloat16 && std::none_of(node.inputs.begin(), node.inputs.end(), is_weight)) continue;
    if (is_kept_by(patterns, node, &q.reason)) continue;
    const bool large = half == DType::kFloat16 && std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
                         if (!is_weight(v)) return false;
                         float& l = largest[static_cast<std::size_t>(v)];
                         if (l < 0) l = largest_of(*view.at(v).constant);
                         return l > kLargestHalf;
                       });
    if (large) {
      q.reason = "a constant of its is beyond 65504, float16's largest number";
      continue;
    }
    q.role = product ? QuantRole::kProduct : QuantRole::kBetween;
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) is_half[static_cast<std::size_t>(v)] = half == DType::kFloat16 && view.is_float(v);
    }
  }
  return scheme;
}

void convert_half(Graph* graph, const QuantScheme& scheme, DType half, const LedgerPtr& ledger) {
  Converter(*graph, scheme, half, ledger).run();
}

}  // namespace evn
