// See infer.h.
#include "graph/infer.h"

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/edit.h"
#include "ops/custom.h"

namespace evn {
namespace {

// The dtypes of a node's inputs; on the stack for all but the widest nodes, because planning allocates nothing here.
class InputDTypes {
 public:
  explicit InputDTypes(std::span<const TensorDesc> inputs) : size_(inputs.size()) {
    if (size_ > few_.size()) many_.resize(size_);
    DType* out = size_ > few_.size() ? many_.data() : few_.data();
    for (std::size_t i = 0; i < size_; ++i) out[i] = inputs[i].dtype;
  }
  std::span<const DType> get() const { return {size_ > few_.size() ? many_.data() : few_.data(), size_}; }

 private:
  std::size_t size_;
  std::array<DType, 32> few_;
  std::vector<DType> many_;
};

void infer_dtypes(const Node& node, std::span<const DType> inputs, std::span<TensorDesc> outputs) {
  const OpDef& op = *node.op;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = TensorDesc{};
    if (op.output_dtype != nullptr) {
      outputs[i].dtype = op.output_dtype(node, inputs, static_cast<int>(i));
    } else if (!inputs.empty()) {
      outputs[i].dtype = inputs[0];
    }
    if (outputs[i].dtype == DType::kUndefined && node.outputs[i] != kNoValue) {
      fail(EVN_ERROR_INVALID_MODEL, "the element type of output %zu of %s cannot be told", i, node.op_type.c_str());
    }
  }
  const DType decisive = !inputs.empty() ? inputs[0] : outputs.empty() ? DType::kUndefined : outputs[0].dtype;
  const int number = static_cast<int>(decisive);
  const bool known = number > 0 && number < 32 && (op.dtypes & dtype_bit(decisive)) != 0;
  if (decisive != DType::kUndefined && !known) {
    fail(EVN_ERROR_UNSUPPORTED, "%s of %s is not supported", node.op_type.c_str(), dtype_name(decisive));
  }
}

void infer_shapes(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                  std::span<TensorDesc> outputs) {
  InferContext context{node, inputs, values, outputs};
  node.op->infer(context);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) {
      outputs[i] = TensorDesc{};
      continue;
    }
    if (InferContext::is_unknown_rank(outputs[i].shape)) continue;
    for (std::int64_t dim : outputs[i].shape.dims()) {
      if (dim < -1) {
        fail(EVN_ERROR_INVALID_MODEL, "output %zu of %s would have a negative dimension", i, node.op_type.c_str());
      }
    }
    if (outputs[i].shape.is_known()) outputs[i].size_bytes();
  }
}

template <typename F>
void naming(const Node& node, F&& body) {
  try {
    body();
  } catch (Error& e) {
    if (e.node[0] == '\0') e.with_node(node.name.c_str());
    throw;
  }
}

// What a value was declared as before inference went over it.
struct Declared {
  ValueId value;
  DType dtype;
  bool has_shape;
  Shape shape;
  std::vector<std::string> symbols;
};

// Holds the buffers of one inference over a graph, so that a node costs no allocation.
class GraphInference {
 public:
  explicit GraphInference(Graph& graph) : graph_(graph) {}

  void run() {
    remember_outputs();
    for (const Node& node : graph_.nodes) {
      try {
        naming(node, [&] { infer(node); });
      } catch (Error& e) {
        // While a model loads, shapes that do not fit are nobody's argument.
        if (e.status == EVN_ERROR_INVALID_ARGUMENT) e.status = EVN_ERROR_INVALID_MODEL;
        throw;
      }
    }
    for (Declared& d : declared_) merge(d);
  }

 private:
  void remember_outputs() {
    std::vector<bool> computed(graph_.values.size(), false);
    for (const Node& node : graph_.nodes) {
      for (ValueId v : node.outputs) {
        if (v != kNoValue) computed[v] = true;
      }
    }
    for (ValueId v : graph_.outputs) {
      if (!computed[v]) continue;
      computed[v] = false;  // an output that is listed twice is merged once
      const Value& value = graph_.values[v];
      declared_.push_back({v, value.dtype, value.has_shape, value.shape, value.symbols});
    }
  }

  // Whether the ranks of all inputs are known.
  bool gather(const Node& node) {
    inputs_.assign(node.inputs.size(), TensorDesc{});
    values_.assign(node.inputs.size(), ConstTensor{});
    if (copies_.size() < node.inputs.size()) copies_.resize(node.inputs.size());
    bool ranks = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const Value& value = graph_.values[node.inputs[i]];
      if (value.dtype == DType::kUndefined) {
        fail(EVN_ERROR_INVALID_MODEL, "the element type of \"%s\" is not known", value.name.c_str());
      }
      inputs_[i].dtype = value.dtype;
      inputs_[i].shape = value.shape;
      ranks &= value.has_shape;
      values_[i].desc = inputs_[i];
      const bool wanted = i < 32 && (node.op->value_inputs >> i & 1u) != 0;
      if (value.constant != nullptr && wanted) values_[i].data = aligned_bytes(*value.constant, copies_[i]);
    }
    return ranks;
  }

  // False when the node is in a branch that cannot be taken with these shapes: nothing is known of its outputs then.
  bool infer_or_skip(const Node& node) {
    try {
      infer_node(node, inputs_, values_, outputs_);
      return true;
    } catch (const Error& e) {
      const bool shapes_do_not_fit = e.status == EVN_ERROR_INVALID_MODEL || e.status == EVN_ERROR_INVALID_ARGUMENT;
      if (node.region < 0 || !shapes_do_not_fit) throw;
      return false;
    }
  }

  void infer(const Node& node) {
    bool ranks = gather(node);
    outputs_.assign(node.outputs.size(), TensorDesc{});
    if (node.op->custom != nullptr && !ranks) {  // it may know more than what its inputs tell
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = node.inputs[i];
        if (v != kNoValue && !graph_.values[v].has_shape) inputs_[i].shape = Shape::of_rank(1, InferContext::kUnknownRank);
      }
      ranks = true;
    }
    ranks = ranks && infer_or_skip(node);
    if (!ranks) infer_dtypes(node, InputDTypes(inputs_).get(), outputs_);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      Value& value = graph_.values[node.outputs[i]];
      value.dtype = outputs_[i].dtype;
      value.has_shape = ranks && !InferContext::is_unknown_rank(outputs_[i].shape);
      value.shape = value.has_shape ? outputs_[i].shape : Shape{};
      value.symbols.clear();
    }
  }

  // A graph output is what the model promises to its user: here the declaration and the truth must fit, and dims that only the
  // declaration knows are taken over.
  void merge(Declared& declared) {
    Value& value = graph_.values[declared.value];
    const char* name = value.name.c_str();
    if (declared.dtype != DType::kUndefined && declared.dtype != value.dtype) {
      fail(EVN_ERROR_INVALID_MODEL, "output \"%s\" is declared as %s but computed as %s", name, dtype_name(declared.dtype),
           dtype_name(value.dtype));
    }
    if (!declared.has_shape) return;
    // Some exporters declare no dims where they know none.
    const bool is_scalar = value.has_shape && value.shape.rank() == 0;
    if (declared.shape.rank() == 0 && !is_scalar) return;
    if (!value.has_shape) {
      value.has_shape = true;
      value.shape = declared.shape;
    }
    bool fits = value.shape.rank() == declared.shape.rank();
    for (int i = 0; fits && i < value.shape.rank(); ++i) {
      if (value.shape[i] < 0) value.shape[i] = declared.shape[i];
      fits = declared.shape[i] < 0 || declared.shape[i] == value.shape[i];
    }
    if (!fits) {
      fail(EVN_ERROR_INVALID_MODEL, "output \"%s\" is declared with shape %s but computed with shape %s", name,
           declared.shape.to_string().c_str(), value.shape.to_string().c_str());
    }
    value.symbols = std::move(declared.symbols);
  }

  Graph& graph_;
  std::vector<Declared> declared_;
  std::vector<TensorDesc> inputs_;
  std::vector<ConstTensor> values_;
  std::vector<TensorDesc> outputs_;
  std::vector<std::vector<std::uint64_t>> copies_;
};

}  // namespace

void infer_graph(Graph& graph) { GraphInference(graph).run(); }

void infer_node(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                std::span<TensorDesc> outputs) {
  naming(node, [&] {
    if (node.op->custom != nullptr) return node.op->custom->infer(node, inputs, values, outputs);
    infer_dtypes(node, InputDTypes(inputs).get(), outputs);
    infer_shapes(node, inputs, values, outputs);
  });
}

}  // namespace evn
