// Puts nodes at the end of a graph and knows of each value what can be told of its dtype and shape already, so that rules may
// choose plainer forms. Everything that is put in is an ordinary operator of one opset, or one of ops/gradient.h.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "core/graph.h"

namespace evn {

class Tape {
 public:
  using Ints = std::vector<std::int64_t>;
  using Attributes = std::vector<Attribute>;

  // Takes the nodes of the graph out: `add` puts them back, one after another.
  Tape(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete);

  // A node of the model, or a copy of one. Returns its number in the graph.
  std::size_t add(Node node);
  // Where nodes come from that are put in from now on: names and the branch of an If.
  void set_origin(const Node& gradient) {
    gradient_ = &gradient;
    region_ = gradient.region;
  }
  void set_origin(std::string path) { path_ = std::move(path); }
  // Whether another Gradient follows, which may differentiate what is put in now: then it is made of operators with rules.
  void set_may_be_differentiated(bool may) { may_be_differentiated_ = may; }
  bool may_be_differentiated() const { return may_be_differentiated_; }
  std::int32_t gradient_region() const { return gradient_->region; }
  const std::string& gradient_name() const { return gradient_->name; }
  // The branch of an If that nodes are put into: the Gradient's, or one inside it.
  std::int32_t region() const { return region_; }
  void set_region(std::int32_t region) { region_ = region; }
  std::string fresh_name(const char* op);

  Graph& graph() { return graph_; }
  const Node& node(std::size_t n) const { return graph_.nodes[n]; }
  // The number of the node that makes v; -1: none.
  std::int64_t producer(ValueId v) const { return producers_[static_cast<std::size_t>(v)]; }
  const std::string& name(ValueId v) const { return graph_.values[static_cast<std::size_t>(v)].name; }
  // A value that the node which makes others does not make yet.
  ValueId add_output(std::size_t node, std::size_t output);
  ValueId add_value();
  // Declared as v is.
  ValueId add_value_like(ValueId v);

  // What is known. kUndefined: the dtype is not.
  DType dtype(ValueId v) const { return descs_[static_cast<std::size_t>(v)].dtype; }
  const Shape& shape(ValueId v) const {
    return descs_[static_cast<std::size_t>(v)].shape;
  }                                             // with dims of -1; rank() must be known
  int rank(ValueId v) const;                    // -1: not known
  bool has_known_shape(ValueId v) const;        // all dims
  bool same_shape(ValueId a, ValueId b) const;  // surely
  // Floating point, or perhaps.
  bool may_be_float(ValueId v) const;

  // One output. `op` is of ai.onnx.
  ValueId op(const char* op, std::vector<ValueId> inputs, Attributes attributes = {});
  std::vector<ValueId> ops(const char* op, std::vector<ValueId> inputs, Attributes attributes, std::size_t outputs);
  ValueId own(const char* op, std::vector<ValueId> inputs, Attributes attributes = {});  // of ops/gradient.h
  std::vector<ValueId> owns(const char* op, std::vector<ValueId> inputs, Attributes attributes, std::size_t outputs);
  // The operator and attributes of a node of the model, of one output, on other inputs.
  ValueId like(const Node& node, std::vector<ValueId> inputs);
  // A node that has a body, the last inputs of which are `captures` (core/graph.h).
  std::vector<ValueId> with_body(const char* op, std::vector<ValueId> inputs, std::vector<ValueId> captures, Attributes attributes,
                                 std::shared_ptr<Graph> body, std::size_t outputs);
  // After a node's attributes or outputs have been changed.
  void renew(std::size_t node);
  // An operator whose output is a value that is there.
  void into(ValueId output, const char* op, std::vector<ValueId> inputs);

  ValueId add(ValueId a, ValueId b) { return op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("Div", {a, b}); }
  ValueId neg(ValueId a) { return op("Neg", {a}); }
  ValueId mul(ValueId a, double b) { return op("Mul", {a, scalar(b, a)}); }
  ValueId add(ValueId a, double b) { return op("Add", {a, scalar(b, a)}); }
  ValueId square(ValueId a) { return op("Mul", {a, a}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return op("Where", {condition, a, b}); }
  ValueId where_else_0(ValueId condition, ValueId a) { return op("Where", {condition, a, scalar(0, a)}); }

  // A constant of rank 0 of the dtype of `like`, float32 where that is not known.
  ValueId scalar(double value, ValueId like);
  ValueId ints(const Ints& values);
  // A value of the shape of `like`, each element the same.
  ValueId filled(double value, ValueId like);
  // `x` summed to, or repeated to, the shape of `like`; with its elements in it.
  ValueId sum_to(ValueId like, ValueId x);
  ValueId repeat_to(ValueId like, ValueId x);
  ValueId reshape_to(ValueId like, ValueId x);
  // Reshape that takes a dim of 0 as it is. It has no -1, which would be open in a tensor without elements.
  ValueId reshape(ValueId x, ValueId dims) { return op("Reshape", {x, dims}, {{"allowzero", std::int64_t{1}, {}}}); }
  // Dims of v from axis `begin` to `end`, as a list.
  ValueId dims(ValueId v, std::int64_t begin, std::int64_t end) {
    return op("Shape", {v}, {{"start", begin, {}}, {"end", end, {}}});
  }
  ValueId concat(std::vector<ValueId> lists) { return op("Concat", std::move(lists), {{"axis", std::int64_t{0}, {}}}); }
  // ReduceSum that keeps the axes. kNoValue: all axes.
  ValueId sum(ValueId x, ValueId axes) { return op("ReduceSum", {x, axes}, {{"keepdims", std::int64_t{1}, {}}}); }

  // Refuses with the Gradient's name.
  [[noreturn]] void refuse(evn_status status, const char* format, ...) const __attribute__((format(printf, 3, 4)));

 private:
  Graph& graph_;
  const Limits& limits_;
  const std::function<void(Node&)>& complete_;
  const Node* gradient_ = nullptr;
  std::int32_t region_ = -1;
  std::string path_;
  std::uint64_t number_ = 0;
  bool may_be_differentiated_ = false;
  std::vector<std::int64_t> producers_;
  std::vector<TensorDesc> descs_;

  std::size_t push(Node node);
  std::vector<ValueId> put(Node node, std::size_t outputs);
  void observe(const Node& node);
  void observe_body(const Node& node);
  ValueId add_constant(WeightPtr weight);
  ValueId constant_of(double number, DType dtype);  // float32 or float64
};

}  // namespace evn
