// See infer.h.
#include "graph/infer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "base/heap.h"
#include "graph/edit.h"
#include "ops/custom.h"
#include "ops/host.h"

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
  if (op.host != nullptr) return;  // what it takes depends on more than a dtype: its shape rule says
  const DType decisive = !inputs.empty() ? inputs[0] : outputs.empty() ? DType::kUndefined : outputs[0].dtype;
  const int number = static_cast<int>(decisive);
  const bool known = number > 0 && number < 32 && (op.dtypes & dtype_bit(decisive)) != 0;
  if (decisive != DType::kUndefined && !known) {
    fail(EVN_ERROR_UNSUPPORTED, "%s of %s is not supported", node.op_type.c_str(), dtype_name(decisive));
  }
}

void infer_shapes(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                  std::span<TensorDesc> outputs, std::span<const TensorDesc> body = {}) {
  InferContext context{node, inputs, values, outputs, body};
  node.op->infer(context);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) {
      outputs[i] = TensorDesc{};
      continue;
    }
    if (outputs[i].wraps || InferContext::is_unknown_rank(outputs[i].shape)) continue;
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
  naming_node(node.name, body);
}

// What a value was declared as before inference went over it.
struct Declared {
  ValueId value;
  DType dtype;
  bool has_shape;
  Shape shape;
  std::vector<std::string> symbols;
  Wraps wraps;
};

// Inferences of one body so far. Each round over the graph around the body asks for the types of the body's outputs.
struct BodyRecord {
  int rounds = 0;
  std::optional<std::vector<TensorDesc>> given;  // types of inputs for which the body was inferred last; none: that has failed
};
using BodyRecords = std::unordered_map<const Graph*, BodyRecord>;

// Holds the buffers of one inference over a graph, so that a node costs no allocation.
class GraphInference {
 public:
  GraphInference(Graph& graph, BodyRecords& bodies, TypeConflicts* conflicts)
      : graph_(graph), bodies_(bodies), conflicts_(conflicts) {}

  // The outputs of a body are what they are: nobody was promised anything.
  void run(bool is_body, std::vector<WrongShape>* wrong = nullptr) {
    if (!is_body) remember_outputs();
    for (const Node& node : graph_.nodes) {
      cancellation_point(kNodeWork);
      try {
        naming(node, [&] { infer(node); });
      } catch (Error& e) {
        // While a model loads, shapes that do not fit are nobody's argument.
        if (e.status == EVN_ERROR_INVALID_ARGUMENT) e.status = EVN_ERROR_INVALID_MODEL;
        throw;
      }
    }
    for (Declared& d : declared_) {
      if (!merge(d) && wrong != nullptr) wrong->push_back({d.value, d.shape});
    }
  }

 private:
  void remember_outputs() {
    std::vector<bool> computed(graph_.values.size(), false);
    is_declared_.assign(graph_.values.size(), false);
    for (const Node& node : graph_.nodes) {
      cancellation_point(8);
      for (ValueId v : node.outputs) {
        if (v != kNoValue) computed[v] = true;
      }
    }
    for (ValueId v : graph_.outputs) {
      if (!computed[v]) continue;
      computed[v] = false;  // an output that is listed twice is merged once
      is_declared_[static_cast<std::size_t>(v)] = true;
      const Value& value = graph_.values[v];
      declared_.push_back({v, value.dtype, value.has_shape, value.shape, value.symbols, value.wraps});
    }
  }

  // Whether the ranks of all inputs are known.
  bool gather(const Node& node) {
    inputs_.assign(node.inputs.size(), TensorDesc{});
    values_.assign(node.inputs.size(), ConstTensor{});
    if (copies_.size() < node.inputs.size()) copies_.resize(node.inputs.size());
    bool ranks = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      cancellation_point(4);
      if (node.inputs[i] == kNoValue) continue;
      const Value& value = graph_.values[node.inputs[i]];
      if (value.dtype == DType::kUndefined) {
        fail(EVN_ERROR_INVALID_MODEL, "the element type of \"%s\" is not known", value.name.c_str());
      }
      inputs_[i] = desc_of(value);
      ranks &= value.has_shape && !value.wraps;
      if (value.wraps && node.op->host == nullptr) {
        fail(EVN_ERROR_INVALID_MODEL, "input %zu of %s is of type %s", i, node.op->name, inputs_[i].type_string().c_str());
      }
      values_[i].desc = inputs_[i];
      const bool wanted = node.op->reads_value(i);
      if (value.constant != nullptr && wanted) values_[i].data = aligned_bytes(*value.constant, copies_[i]);
    }
    return ranks;
  }

  static TensorDesc desc_of(const Value& value) {
    if (value.wraps) return {value.dtype, {}, value.wraps};
    return {value.dtype, value.has_shape ? value.shape : Shape::of_rank(1, InferContext::kUnknownRank)};
  }

  static void set_desc(Value& value, const TensorDesc& desc) {
    value.dtype = desc.dtype;
    value.wraps = desc.wraps;
    value.has_shape = !desc.wraps && !InferContext::is_unknown_rank(desc.shape);
    value.shape = value.has_shape ? desc.shape : Shape{};
    value.symbols.clear();
  }

  // Sets body_ to the types of the body's outputs for the inputs that the node has now. A body is not inferred again for inputs of
  // the same types as the last time. The rounds of nested bodies multiply: after kMostRounds rounds over a body, its inputs count
  // as values of unknown rank, so that one more inference serves all that follow.
  void infer_body(const Node& node) {
    constexpr int kMostRounds = 100;
    Graph& body = *node.body;
    std::vector<TensorDesc> in(body.inputs.size());
    const std::size_t captures = static_cast<std::size_t>(node.captures);
    if (captures > in.size()) fail(EVN_ERROR_INVALID_MODEL, "a body without inputs");
    for (std::size_t k = 0; k < captures; ++k) in[in.size() - captures + k] = inputs_[inputs_.size() - captures + k];
    node.op->body->inputs(node, inputs_, in);
    BodyRecord& record = bodies_[&body];
    if (record.rounds >= kMostRounds) {
      for (TensorDesc& desc : in) forget_shape(&desc);
    }
    if (record.given != in) {
      record.given.reset();
      const std::vector<TensorDesc> given = in;
      settle_body(node, &in, &record);
      record.given = given;
    }
    body_.clear();
    for (const ValueId v : body.outputs) body_.push_back(desc_of(body.values[v]));
  }

  static void forget_shape(TensorDesc* desc) {
    if (!desc->wraps) desc->shape = Shape::of_rank(1, InferContext::kUnknownRank);
  }

  // Infers the node's body for inputs of these types. Where an output is an input of the next iteration, dims that do not stay what
  // they were are unknown, and if that does not settle, the rank.
  void settle_body(const Node& node, std::vector<TensorDesc>* inputs, BodyRecord* record) {
    constexpr int kRounds = 8;  // then no shape that is handed on is known
    Graph& body = *node.body;
    std::vector<TensorDesc>& in = *inputs;
    const std::size_t own = in.size() - static_cast<std::size_t>(node.captures);
    for (int round = 0;; ++round) {
      ++record->rounds;
      for (std::size_t i = 0; i < in.size(); ++i) set_desc(body.values[body.inputs[i]], in[i]);
      GraphInference(body, bodies_, conflicts_).run(true);
      bool changed = false;
      for (std::size_t i = 0; i < own; ++i) {
        const int from = node.op->body->feedback(node, static_cast<int>(i));
        if (from < 0 || static_cast<std::size_t>(from) >= body.outputs.size()) continue;
        changed |= widen(&in[i], desc_of(body.values[body.outputs[static_cast<std::size_t>(from)]]), round >= 2);
        if (round >= kRounds) forget_shape(&in[i]);
      }
      if (!changed) return;
    }
  }

  // Makes `desc` cover `also`. Returns whether it did not.
  static bool widen(TensorDesc* desc, const TensorDesc& also, bool at_once) {
    const bool fills = desc->wraps.outer() == Wrap::kOptional && desc->wraps.inside() == also.wraps;  // an optional
    if (desc->dtype != also.dtype || (desc->wraps != also.wraps && !fills)) {
      fail(EVN_ERROR_INVALID_MODEL, "a value of the body is %s in one iteration and %s in the next", desc->type_string().c_str(),
           also.type_string().c_str());
    }
    if (desc->wraps || desc->shape == also.shape || InferContext::is_unknown_rank(desc->shape)) return false;
    if (at_once || InferContext::is_unknown_rank(also.shape) || desc->shape.rank() != also.shape.rank()) {
      desc->shape = Shape::of_rank(1, InferContext::kUnknownRank);
      return true;
    }
    bool changed = false;
    for (int i = 0; i < desc->shape.rank(); ++i) {
      if (desc->shape[i] == also.shape[i] || desc->shape[i] == -1) continue;
      desc->shape[i] = -1;
      changed = true;
    }
    return changed;
  }

  // False when the node is in a branch that cannot be taken with these shapes: nothing is known of its outputs then.
  bool infer_or_skip(const Node& node) {
    try {
      if (node.body != nullptr) infer_body(node);
      naming(node, [&] {
        if (node.op->custom != nullptr) return node.op->custom->infer(node, inputs_, values_, outputs_);
        infer_dtypes(node, InputDTypes(inputs_).get(), outputs_);
        infer_shapes(node, inputs_, values_, outputs_, body_);
      });
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
    // Host operators and those of a host may know more than what their inputs tell.
    const bool any_rank = (node.op->flags & kOpAnyRank) != 0 || node.op->custom != nullptr;
    ranks = (ranks || any_rank) && infer_or_skip(node);
    if (!ranks) infer_dtypes(node, InputDTypes(inputs_).get(), outputs_);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      cancellation_point(4);
      if (node.outputs[i] == kNoValue) continue;
      if (!ranks) outputs_[i].shape = Shape::of_rank(1, InferContext::kUnknownRank);
      note_conflict(node, node.outputs[i], outputs_[i]);
      set_desc(graph_.values[node.outputs[i]], outputs_[i]);
    }
  }

  // Outputs of the graph are merged instead.
  void note_conflict(const Node& node, ValueId v, const TensorDesc& desc) {
    const Value& value = graph_.values[v];
    if (conflicts_ == nullptr || value.dtype == DType::kUndefined || (value.dtype == desc.dtype && value.wraps == desc.wraps))
      return;
    if (!is_declared_.empty() && is_declared_[static_cast<std::size_t>(v)]) return;
    conflicts_->push_back({node.name, value.name, TensorDesc{value.dtype, {}, value.wraps}.type_string(),
                           TensorDesc{desc.dtype, {}, desc.wraps}.type_string()});
  }

  // A graph output is what the model promises to its user: dims that only the declaration knows are taken over. Returns false where
  // the declared shape contradicts the computed one, which stands.
  bool merge(Declared& declared) {
    Value& value = graph_.values[declared.value];
    const char* name = value.name.c_str();
    if (declared.dtype != DType::kUndefined && (declared.dtype != value.dtype || declared.wraps != value.wraps)) {
      fail(EVN_ERROR_INVALID_MODEL, "output \"%s\" is declared as %s but computed as %s", name,
           TensorDesc{declared.dtype, {}, declared.wraps}.type_string().c_str(),
           TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
    }
    if (!declared.has_shape || value.wraps) return true;
    // Some exporters declare no dims where they know none.
    const bool is_scalar = value.has_shape && value.shape.rank() == 0;
    if (declared.shape.rank() == 0 && !is_scalar) return true;
    if (!value.has_shape) {
      value.has_shape = true;
      value.shape = declared.shape;
    }
    Shape merged = value.shape;
    bool fits = merged.rank() == declared.shape.rank();
    for (int i = 0; fits && i < merged.rank(); ++i) {
      if (merged[i] < 0) merged[i] = declared.shape[i];
      fits = declared.shape[i] < 0 || declared.shape[i] == merged[i];
    }
    if (!fits) return false;
    value.shape = merged;
    value.symbols = std::move(declared.symbols);
    return true;
  }

  Graph& graph_;
  BodyRecords& bodies_;             // of all graphs within the one that is inferred
  TypeConflicts* const conflicts_;  // nullable
  std::vector<Declared> declared_;
  std::vector<bool> is_declared_;  // by value: it is in declared_; empty for a body
  std::vector<TensorDesc> inputs_;
  std::vector<ConstTensor> values_;
  std::vector<TensorDesc> outputs_;
  std::vector<TensorDesc> body_;  // of the body's outputs
  std::vector<std::vector<std::uint64_t>> copies_;
};

}  // namespace

void infer_graph(Graph& graph, std::vector<WrongShape>* wrong, TypeConflicts* conflicts) {
  BodyRecords bodies;
  GraphInference(graph, bodies, conflicts).run(false, wrong);
}
void infer_body_graph(Graph& body) {
  BodyRecords bodies;
  GraphInference(body, bodies, nullptr).run(true);
}

void infer_node(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                std::span<TensorDesc> outputs) {
  naming(node, [&] {
    if (node.op->custom != nullptr) return node.op->custom->infer(node, inputs, values, outputs);
    infer_dtypes(node, InputDTypes(inputs).get(), outputs);
    infer_shapes(node, inputs, values, outputs);
  });
}

}  // namespace evn
