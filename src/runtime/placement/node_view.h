// What is known of a node before a run: the descs of its inputs and outputs, and its constants.
#pragma once

#include <algorithm>
#include <vector>

#include "device/kernel.h"
#include "ops/op.h"

namespace evn {

struct NodeView {
  std::vector<TensorDesc> inputs, outputs;
  std::vector<WeightPtr> constants;
  bool ranks_known = true;

  // Whether the node may be in a segment: its rank and the inputs that it reads by value are known before a run.
  bool fits_segments(const Node& node) const {
    if (node.region >= 0 || !ranks_known || has_strings() || (node.op->flags & kOpShapeOnly) != 0) return false;
    for (std::size_t k = 0; k < node.inputs.size() && k < 32; ++k) {
      if (node.op->reads_value(k) && node.inputs[k] != kNoValue && constants[k] == nullptr) return false;
    }
    return true;
  }

  bool has_strings() const {
    const auto is_string = [](const TensorDesc& d) { return d.dtype == DType::kString; };
    return std::any_of(inputs.begin(), inputs.end(), is_string) || std::any_of(outputs.begin(), outputs.end(), is_string);
  }

  NodeView(const Graph& graph, const Node& node) {
    const auto add = [&](ValueId id, std::vector<TensorDesc>* to) {
      TensorDesc d;
      if (id != kNoValue) {
        const Value& v = graph.values[id];
        d = {v.dtype, v.shape};
        ranks_known &= v.has_shape;
      }
      to->push_back(d);
    };
    for (const ValueId id : node.inputs) {
      add(id, &inputs);
      constants.push_back(id == kNoValue ? nullptr : graph.values[id].constant);
    }
    for (const ValueId id : node.outputs) add(id, &outputs);
  }

  // Refers to this view.
  OpDesc desc(const Node& node) const { return {&node, inputs, outputs, constants}; }
};

}  // namespace evn
