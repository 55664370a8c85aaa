#include "graph/cut_node.h"

#include <algorithm>
#include <string>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/unique_names.h"
#include "ops/conv.h"
#include "ops/conv_transpose.h"
#include "ops/gemm.h"

namespace evn {
namespace {

// What is asked about a node that may be cut.
class Question {
 public:
  Question(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s cannot be split: %s", node_.op_type.c_str(), why.c_str())
        .with_node(node_.name.c_str());
  }
  bool has(std::size_t input) const { return input < node_.inputs.size() && node_.inputs[input] != kNoValue; }
  const Value& value(std::size_t input) const { return graph_.values[static_cast<std::size_t>(node_.inputs[input])]; }
  bool is_constant(std::size_t input) const { return has(input) && value(input).constant != nullptr; }
  int rank(std::size_t input) const { return has(input) && value(input).has_shape ? value(input).shape.rank() : -1; }

  // How many elements an input has along the axis on which it is to be cut.
  std::int64_t dim(std::size_t input, int axis) const {
    const Value& v = value(input);
    if (!v.has_shape || v.shape[axis] < 0) refuse("dim " + std::to_string(axis) + " of " + v.name + " is not known before a run");
    if (is_sub_byte(v.dtype) || v.dtype == DType::kString) refuse("elements of " + v.name + " have no bytes of their own");
    return v.shape[axis];
  }

  // A rule without inputs.
  CutRule rule(const char* what, int axis, std::int64_t units) const {
    CutRule r;
    r.what = what;
    r.axis = axis;
    r.units = units;
    r.inputs.resize(node_.inputs.size());
    return r;
  }
  // An input with the elements of its axis dealt to the units.
  void cut(CutRule* r, std::size_t input, int axis) const {
    const std::int64_t d = dim(input, axis);
    if (d % r->units != 0) {
      refuse(std::to_string(d) + " elements of " + value(input).name + " for " + std::to_string(r->units) + " " + r->what);
    }
    r->inputs[input] = {axis, d / r->units};
  }
  // A scale, zero point or bias: one for all, or one for each channel.
  void cut_vector(CutRule* r, std::size_t input) const {
    if (!has(input)) return;
    const int rank = this->rank(input);
    if (rank < 0) refuse("the rank of " + value(input).name + " is not known before a run");
    if (rank == 0 || (rank == 1 && dim(input, 0) == 1 && r->units * r->per_unit != 1)) return;
    cut(r, input, 0);
  }

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }

 private:
  const Graph& graph_;
  const Node& node_;
};

// Output channels, of whole groups where there are several; `weight` and the numbers of one-dimensional operands of channels.
CutRule conv(const Question& q, std::size_t weight, std::initializer_list<std::size_t> vectors) {
  if (q.rank(weight) < 3) q.refuse("the weight's shape is not known before a run");
  const std::int64_t channels = q.dim(weight, 0), group = attr_int(q.node(), ConvAttr::kGroup);
  CutRule r = q.rule("channels", 1, group > 1 ? group : channels);
  r.per_unit = channels / r.units;
  if (group > 1) {
    q.cut(&r, 0, 1);
    r.attribute = "group";
  }
  q.cut(&r, weight, 0);
  for (const std::size_t v : vectors) q.cut_vector(&r, v);
  return r;
}

CutRule conv_transpose(const Question& q) {
  if (attr_int(q.node(), ConvTransposeAttr::kGroup) != 1) q.refuse("it has groups");
  if (q.rank(1) < 3) q.refuse("the weight's shape is not known before a run");
  CutRule r = q.rule("channels", 1, q.dim(1, 1));
  q.cut(&r, 1, 1);
  q.cut_vector(&r, 2);
  return r;
}

// Columns where the second operand is a constant, which is sliced for good; else rows of the first, which are cut in every run.
// `b`: the second operand; `vectors`: its scales and zero points, for each column or for all.
CutRule matmul(const Question& q, std::size_t b, std::initializer_list<std::size_t> vectors,
               std::initializer_list<std::size_t> row_vectors) {
  const int rank_a = q.rank(0), rank_b = q.rank(b);
  if (rank_a < 1 || rank_b < 1) q.refuse("the rank of an operand is not known before a run");
  if (q.is_constant(b) && rank_b >= 2) {
    CutRule r = q.rule("columns", -1, q.dim(b, rank_b - 1));
    q.cut(&r, b, rank_b - 1);
    for (const std::size_t v : vectors) q.cut_vector(&r, v);
    return r;
  }
  if (rank_a < 2 || rank_b < 2) q.refuse("an operand is a vector");
  CutRule r = q.rule("rows", -2, q.dim(0, rank_a - 2));
  q.cut(&r, 0, rank_a - 2);
  for (const std::size_t v : row_vectors) q.cut_vector(&r, v);
  return r;
}

CutRule gemm(const Question& q) {
  if (q.rank(0) != 2 || q.rank(1) != 2) q.refuse("the rank of an operand is not known before a run");
  const bool columns = q.is_constant(1);
  const bool turned = attr_int(q.node(), columns ? GemmAttr::kTransB : GemmAttr::kTransA) != 0;
  const std::size_t operand = columns ? 1 : 0;
  const int axis = columns == turned ? 0 : 1;
  CutRule r = q.rule(columns ? "columns" : "rows", columns ? 1 : 0, q.dim(operand, axis));
  q.cut(&r, operand, axis);
  if (!q.has(2)) return r;
  const int rank = q.rank(2);
  if (rank < 0) q.refuse("the rank of " + q.value(2).name + " is not known before a run");
  const int bias_axis = columns ? rank - 1 : rank - 2;  // what broadcasts along the cut is read whole
  if (bias_axis >= 0 && q.dim(2, bias_axis) != 1) q.cut(&r, 2, bias_axis);
  return r;
}

// The quantized weight has a row for each column of the product.
CutRule matmul_nbits(const Question& q) {
  if (q.rank(1) < 1) q.refuse("the weight's shape is not known before a run");
  CutRule r = q.rule("columns", -1, q.dim(1, 0));
  r.attribute = "N";
  q.cut(&r, 1, 0);
  for (const std::size_t v : {2u, 3u, 5u}) {
    if (q.has(v)) q.cut(&r, v, 0);
  }
  return r;
}

}  // namespace

CutRule cut_rule(const Graph& graph, const Node& node) {
  const Question q(graph, node);
  if (node.op == nullptr || node.outputs.size() != 1 || node.outputs[0] == kNoValue) q.refuse("it has not one output");
  CutRule r;
  if (is_op(node, "Conv")) r = conv(q, 1, {2});
  else if (is_op(node, "ConvInteger")) r = conv(q, 1, {3});
  else if (is_op(node, "QLinearConv")) r = conv(q, 3, {4, 5, 8});
  else if (is_op(node, "ConvTranspose")) r = conv_transpose(q);
  else if (is_op(node, "MatMul")) r = matmul(q, 1, {}, {});
  else if (is_op(node, "MatMulInteger")) r = matmul(q, 1, {3}, {2});
  else if (is_op(node, "QLinearMatMul")) r = matmul(q, 3, {4, 5}, {1, 2, 6, 7});
  else if (is_op(node, "Gemm")) r = gemm(q);
  else if (node.op_type == "MatMulNBits" && node.domain == "com.microsoft") r = matmul_nbits(q);
  else q.refuse("it is no product of matrices and no convolution");
  if (r.units < 2) q.refuse("it has " + std::to_string(r.units) + " " + r.what);
  const Value& y = graph.values[static_cast<std::size_t>(node.outputs[0])];
  if (y.has_shape && r.axis < 0) r.axis += y.shape.rank();
  return r;
}

namespace {

class Cutter {
 public:
  explicit Cutter(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) names_.take(node.name);
    for (const Value& v : graph.values) names_.take(v.name);
  }

  void run(std::span<const NodeCut> cuts) {
    std::vector<Node> before = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (std::size_t i = 0; i < before.size(); ++i) {
      cancellation_point(kNodeWork);
      if (cuts.empty() || static_cast<std::size_t>(cuts.front().node) != i) {
        graph_.nodes.push_back(std::move(before[i]));
        continue;
      }
      cut(std::move(before[i]), cuts.front());
      cuts = cuts.subspan(1);
    }
    EVN_CHECK(cuts.empty());
  }

 private:
  ValueId add_value(Value v) {
    graph_.values.push_back(std::move(v));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  // A part of a value of which these elements of an axis are taken; the axis may lie beyond what is known of it.
  Value part_of(const Value& whole, const std::string& name, int axis, std::int64_t count) {
    Value v;
    v.name = names_.make(name);
    v.dtype = whole.dtype;
    v.has_shape = whole.has_shape;
    v.shape = whole.shape;
    v.symbols = whole.symbols;
    if (v.has_shape) {
      const int at = axis < 0 ? axis + v.shape.rank() : axis;
      v.shape[at] = count;
      if (!v.symbols.empty()) v.symbols[static_cast<std::size_t>(at)].clear();
    }
    return v;
  }

  // Glue between what is split and what is not.
  Node glue(const char* op_type, int since, const Node& node, const char* name, std::vector<Attribute> attributes) {
    Node made = Matcher::made(op_type, "", since, names_.make(node.name + name), node.region, std::move(attributes));
    made.part_of = node.name;
    return made;
  }

  // The slices of an input, one for each part.
  std::vector<ValueId> slices(const Node& node, const NodeCut& c, std::size_t input) {
    const CutRule::Input& how = c.rule.inputs[input];
    const ValueId v = node.inputs[input];
    std::vector<ValueId> made(c.units.size(), v);
    if (how.axis < 0 || v == kNoValue) return made;
    std::vector<std::int64_t> sizes;
    for (const std::int64_t units : c.units) sizes.push_back(units * how.per_unit);
    const WeightPtr constant = graph_.values[static_cast<std::size_t>(v)].constant;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++]) {
      cancellation_point();
      const Value& whole = graph_.values[static_cast<std::size_t>(v)];
      Value part = part_of(whole, whole.name + "/part" + std::to_string(i + 1), how.axis, sizes[i]);
      if (constant != nullptr) part.constant = make_weight_slice(constant, how.axis, begin, sizes[i]);
      made[i] = add_value(std::move(part));
    }
    if (constant != nullptr) return made;
    Node split = glue("Split", 2, node, "/split", {{"axis", std::int64_t{how.axis}}, {"split", std::move(sizes)}});
    split.inputs = {v};
    split.outputs = made;
    graph_.nodes.push_back(std::move(split));
    return made;
  }

  static void set_attribute(Node* node, const char* name, std::int64_t value) {
    const std::span<const AttributeSpec> specs = node->op->attributes;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (std::string_view(specs[i].name) == name) node->resolved[i] = value;
    }
    for (Attribute& a : node->attributes) {
      if (a.name == name) a.value = value;
    }
  }

  void cut(Node node, const NodeCut& c) {
    std::vector<std::vector<ValueId>> inputs;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) inputs.push_back(slices(node, c, k));
    const ValueId y = node.outputs[0];
    Node whole = glue("Concat", 4, node, "/concat", {{"axis", std::int64_t{c.rule.axis}}});
    whole.outputs = {y};
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < c.units.size(); ++i) {
      Node part = node;
      part.name = names_.make(node.name + "/part" + std::to_string(i + 1));
      part.part_of = node.name;
      part.part = c.first_part + static_cast<std::int32_t>(i);
      for (std::size_t k = 0; k < inputs.size(); ++k) part.inputs[k] = inputs[k][i];
      if (c.rule.attribute[0] != '\0') set_attribute(&part, c.rule.attribute, c.units[i]);
      const Value& all = graph_.values[static_cast<std::size_t>(y)];
      part.outputs = {
          add_value(part_of(all, all.name + "/part" + std::to_string(i + 1), c.rule.axis, c.units[i] * c.rule.per_unit))};
      whole.inputs.push_back(part.outputs[0]);
      graph_.nodes.push_back(std::move(part));
      begin += c.units[i];
    }
    EVN_CHECK(begin == c.rule.units);
    graph_.nodes.push_back(std::move(whole));
  }

  Graph& graph_;
  UniqueNames names_;  // of nodes and values
};

}  // namespace

void cut_nodes(Graph& graph, std::span<const NodeCut> cuts) { Cutter(graph).run(cuts); }

}  // namespace evn
