// See tape.h. Inference here only helps to choose: what it cannot tell, or finds wrong, is left to graph/infer, which says so.
#include "graph/gradient/tape.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "graph/bodies.h"
#include "graph/edit.h"
#include "ops/gradient.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"
#include "ops/op.h"

namespace evn {
namespace {

// Opset of all operators of ai.onnx that are put in.
constexpr int kEmittedOpset = 21;

const TensorDesc kUnknown = {DType::kUndefined, Shape::of_rank(1, InferContext::kUnknownRank), {}};

}  // namespace

Tape::Tape(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete)
    : graph_(graph), limits_(limits), complete_(complete) {
  graph_.nodes.clear();
  producers_.assign(graph.values.size(), -1);
  for (const Value& v : graph.values) {
    descs_.push_back(kUnknown);
    if (v.wraps) continue;
    descs_.back().dtype = v.dtype;
    if (v.has_shape && v.constant != nullptr) descs_.back().shape = v.shape;
  }
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.values[static_cast<std::size_t>(v)];
    if (value.has_shape && !value.wraps) descs_[static_cast<std::size_t>(v)].shape = value.shape;
  }
}

void Tape::refuse(evn_status status, const char* format, ...) const {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw make_error(status, "%s", text).with_node(gradient_ == nullptr ? "" : gradient_->name.c_str());
}

// ------------------------------------------------------------------------------------------------------------- nodes --

std::size_t Tape::add(Node node) {
  const std::size_t at = push(std::move(node));
  if (graph_.nodes[at].op != nullptr) observe(graph_.nodes[at]);
  return at;
}

std::size_t Tape::push(Node node) {
  if (graph_.nodes.size() >= limits_.nodes) {
    refuse(EVN_ERROR_LIMIT, "with its derivatives the graph has more than %llu nodes",
           static_cast<unsigned long long>(limits_.nodes));
  }
  for (const ValueId v : node.outputs) {
    if (v != kNoValue) producers_[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(graph_.nodes.size());
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.size() - 1;
}

void Tape::observe(const Node& node) {
  const OpDef& op = *node.op;
  if (op.body != nullptr) return observe_body(node);
  std::vector<TensorDesc> inputs, outputs(node.outputs.size(), kUnknown);
  std::vector<ConstTensor> values;
  std::vector<DType> dtypes;
  std::vector<std::vector<std::uint64_t>> copies(node.inputs.size());
  const bool takes_any = (op.flags & kOpAnyRank) != 0 || op.custom != nullptr;
  bool ranks = true;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    inputs.push_back(v == kNoValue ? TensorDesc{} : descs_[static_cast<std::size_t>(v)]);
    dtypes.push_back(inputs[i].dtype);
    values.push_back({inputs[i], nullptr});
    if (v == kNoValue) continue;
    if (inputs[i].dtype == DType::kUndefined || graph_.values[static_cast<std::size_t>(v)].wraps) return;
    ranks = ranks && (takes_any || !InferContext::is_unknown_rank(inputs[i].shape));
    const WeightPtr& constant = graph_.values[static_cast<std::size_t>(v)].constant;
    if (constant != nullptr && op.reads_value(i)) values[i].data = aligned_bytes(*constant, copies[i]);
  }
  try {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].dtype = op.output_dtype != nullptr ? op.output_dtype(node, dtypes, static_cast<int>(i))
                         : dtypes.empty()           ? DType::kUndefined
                                                    : dtypes[0];
    }
    if (ranks) {
      std::vector<TensorDesc> inferred = outputs;
      InferContext context{node, inputs, values, inferred, {}};
      op.infer(context);
      outputs = std::move(inferred);
    }
  } catch (const Error&) {
    // graph/infer throws it again, with the node
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    if (v == kNoValue || outputs[i].wraps) continue;
    const bool as_declared = op.custom != nullptr && InferContext::is_unknown_rank(outputs[i].shape);
    if (!as_declared) descs_[static_cast<std::size_t>(v)] = outputs[i];
  }
}

// What a Loop or a Scan carries has the dtype and the rank that it begins with, in a Scan the shape too; what it stacks, those that
// its body or the model declares.
void Tape::observe_body(const Node& node) {
  const bool is_loop = node.op_type == "Loop";
  if (!node.domain.empty() || (!is_loop && node.op_type != "Scan")) return;
  const std::size_t inputs = node.inputs.size() - static_cast<std::size_t>(node.captures), first = is_loop ? 2 : 0;
  const auto scans = is_loop ? 0 : static_cast<std::size_t>(std::max<std::int64_t>(attr_int(node, 1), 0));
  const std::size_t carried = inputs < first + scans ? 0 : inputs - first - scans, before = is_loop ? 1 : 0;
  for (std::size_t i = 0; i < node.outputs.size() && i + before < node.body->outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    if (v == kNoValue || graph_.values[static_cast<std::size_t>(v)].wraps) continue;
    const Value& made = node.body->values[static_cast<std::size_t>(node.body->outputs[i + before])];
    TensorDesc& to = descs_[static_cast<std::size_t>(v)];
    const ValueId start = i < carried ? node.inputs[first + i] : kNoValue;
    if (to.dtype == DType::kUndefined) to.dtype = start == kNoValue ? made.dtype : dtype(start);
    const Value& declared = graph_.values[static_cast<std::size_t>(v)];
    int rank = -1;
    if (start != kNoValue && !is_loop) {
      to.shape = shape(start);
    } else if (declared.has_shape) {
      rank = declared.shape.rank();
    } else if (made.has_shape) {
      rank = made.shape.rank() + (i < carried ? 0 : 1);
    } else if (start != kNoValue) {
      rank = this->rank(start);
    }
    if (rank >= 0) to.shape = Shape::of_rank(std::min(rank, kMaxRank), -1);
  }
}

std::string Tape::fresh_name(const char* op) { return bounded_path(path_ + "/" + op) + "_" + std::to_string(number_++); }

ValueId Tape::add_value() {
  if (graph_.values.size() >= INT32_MAX) fail(EVN_ERROR_LIMIT, "the graph has too many values");
  graph_.values.emplace_back().name = fresh_name("value");
  producers_.push_back(-1);
  descs_.push_back(kUnknown);
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Tape::add_value_like(ValueId v) {
  const ValueId made = add_value();
  const Value& from = graph_.values[static_cast<std::size_t>(v)];
  Value& to = graph_.values[static_cast<std::size_t>(made)];
  to.dtype = from.dtype;
  to.wraps = from.wraps;
  descs_[static_cast<std::size_t>(made)].dtype = from.wraps ? DType::kUndefined : from.dtype;
  return made;
}

ValueId Tape::add_output(std::size_t n, std::size_t output) {
  if (graph_.nodes[n].outputs.size() <= output) graph_.nodes[n].outputs.resize(output + 1, kNoValue);
  if (graph_.nodes[n].outputs[output] == kNoValue) {
    const ValueId v = add_value();
    graph_.nodes[n].outputs[output] = v;
    producers_[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(n);
    observe(graph_.nodes[n]);
  }
  return graph_.nodes[n].outputs[output];
}

std::vector<ValueId> Tape::put(Node node, std::size_t outputs) {
  node.region = region_;
  for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(add_value());
  std::vector<ValueId> made = node.outputs;
  complete_(node);
  add(std::move(node));
  return made;
}

std::vector<ValueId> Tape::ops(const char* op, std::vector<ValueId> inputs, Attributes attributes, std::size_t outputs) {
  Node node;
  node.name = fresh_name(op);
  node.op_type = op;
  node.since_version = kEmittedOpset;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  return put(std::move(node), outputs);
}

std::vector<ValueId> Tape::with_body(const char* op, std::vector<ValueId> inputs, std::vector<ValueId> captures,
                                     Attributes attributes, std::shared_ptr<Graph> body, std::size_t outputs) {
  Node node;
  node.name = fresh_name(op);
  node.op_type = op;
  node.since_version = kEmittedOpset;
  node.inputs = std::move(inputs);
  node.captures = static_cast<std::int32_t>(captures.size());
  node.inputs.insert(node.inputs.end(), captures.begin(), captures.end());
  node.attributes = std::move(attributes);
  node.attributes.push_back({"body", body, {}});
  node.body = std::move(body);
  return put(std::move(node), outputs);
}

void Tape::renew(std::size_t n) {
  complete_(graph_.nodes[n]);
  for (const ValueId v : graph_.nodes[n].outputs) {
    if (v != kNoValue) producers_[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(n);
  }
  observe(graph_.nodes[n]);
}

ValueId Tape::op(const char* op, std::vector<ValueId> inputs, Attributes attributes) {
  return ops(op, std::move(inputs), std::move(attributes), 1)[0];
}

ValueId Tape::own(const char* op, std::vector<ValueId> inputs, Attributes attributes) {
  return owns(op, std::move(inputs), std::move(attributes), 1)[0];
}

std::vector<ValueId> Tape::owns(const char* op, std::vector<ValueId> inputs, Attributes attributes, std::size_t outputs) {
  Node node;
  node.name = fresh_name(op);
  node.op_type = op;
  node.domain = kInternalDomain;
  node.since_version = 1;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  return put(std::move(node), outputs);
}

ValueId Tape::like(const Node& node, std::vector<ValueId> inputs) {
  Node made;
  made.name = fresh_name(node.op_type.c_str());
  made.op_type = node.op_type;
  made.domain = node.domain;
  made.since_version = node.since_version;
  made.attributes = node.attributes;
  made.inputs = std::move(inputs);
  return put(std::move(made), 1)[0];
}

void Tape::into(ValueId output, const char* op, std::vector<ValueId> inputs) {
  Node node;
  node.name = fresh_name(op);
  node.op_type = op;
  node.since_version = kEmittedOpset;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  node.region = region_;
  complete_(node);
  add(std::move(node));
}

// ------------------------------------------------------------------------------------------------------------- facts --

int Tape::rank(ValueId v) const { return InferContext::is_unknown_rank(shape(v)) ? -1 : shape(v).rank(); }
bool Tape::has_known_shape(ValueId v) const { return rank(v) >= 0 && shape(v).is_known(); }
bool Tape::same_shape(ValueId a, ValueId b) const {
  return a == b || (has_known_shape(a) && has_known_shape(b) && shape(a) == shape(b));
}

bool Tape::may_be_float(ValueId v) const {
  switch (dtype(v)) {
    case DType::kUndefined:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBfloat16: return true;
    default: return false;
  }
}

// --------------------------------------------------------------------------------------------------------- constants --

ValueId Tape::add_constant(WeightPtr weight) {
  const ValueId v = add_value();
  Value& value = graph_.values[static_cast<std::size_t>(v)];
  value.dtype = weight->desc.dtype;
  value.has_shape = true;
  value.shape = weight->desc.shape;
  descs_[static_cast<std::size_t>(v)] = weight->desc;
  value.constant = std::move(weight);
  return v;
}

ValueId Tape::scalar(double number, ValueId like) {
  const DType dtype = this->dtype(like) == DType::kUndefined ? DType::kFloat32 : this->dtype(like);
  if (is_16bit_float(dtype)) {  // computed in float32, in which graph/passes/widen_half has this Cast end as well
    return op("Cast", {constant_of(number, DType::kFloat32)}, {{"to", static_cast<std::int64_t>(dtype), {}}});
  }
  return constant_of(number, dtype);
}

ValueId Tape::constant_of(double number, DType dtype) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight = make_weight({dtype, {}}, nullptr, &bytes);
  switch (dtype) {
    case DType::kFloat64: *static_cast<double*>(bytes) = number; break;
    case DType::kFloat32: *static_cast<float*>(bytes) = static_cast<float>(number); break;
    default: refuse(EVN_ERROR_INVALID_MODEL, "a derivative of %s", dtype_name(dtype));
  }
  return add_constant(std::move(weight));
}

ValueId Tape::ints(const Ints& values) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight = make_weight({DType::kInt64, {static_cast<std::int64_t>(values.size())}}, nullptr, &bytes);
  if (!values.empty()) std::memcpy(bytes, values.data(), values.size() * sizeof values[0]);
  return add_constant(std::move(weight));
}

// ------------------------------------------------------------------------------------------------------------ shapes --

ValueId Tape::filled(double value, ValueId like) {
  if (rank(like) == 0) return scalar(value, like);
  return own(kRepeatTo, {like, scalar(value, like)});
}

ValueId Tape::sum_to(ValueId like, ValueId x) { return same_shape(like, x) ? x : own(kSumTo, {like, x}); }
ValueId Tape::repeat_to(ValueId like, ValueId x) { return same_shape(like, x) ? x : own(kRepeatTo, {like, x}); }

ValueId Tape::reshape_to(ValueId like, ValueId x) {
  if (same_shape(like, x)) return x;
  if (!has_known_shape(like)) return reshape(x, op("Shape", {like}));
  const auto known = shape(like).dims();
  return reshape(x, ints({known.begin(), known.end()}));
}

}  // namespace evn
