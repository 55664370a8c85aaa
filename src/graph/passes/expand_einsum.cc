// An Einsum of float32 becomes transpositions, sums and products, which have kernels and which other rewrites know: operands are
// contracted from left to right, each pair by a MatMul over [both and kept..., rows..., columns..., row, column], or a Mul where
// nothing is summed over. Letters that occur twice in an operand (diagonals) stay an Einsum, as do equations whose operands are not
// known to fit.
#include "ops/einsum.h"

#include <algorithm>

#include "base/checked.h"
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

using Labels = std::vector<int>;

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

Labels operator+(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// An operand of what remains: a value, and the labels of its axes. A label of kOne is an axis of 1.
constexpr int kOne = -1;
struct Operand {
  int value;
  Labels labels;
};

// One node that is to be made. Values below 0 are the Einsum's inputs: ~i is number i; others are outputs of made nodes.
struct MadeNode {
  const char* op;
  int since;
  std::vector<int> inputs;
  std::vector<Attribute> attributes;
  std::vector<std::int64_t> shape;  // of a Reshape
};

// The nodes that compute an equation.
class Expansion {
 public:
  // False: the equation stays.
  bool make(const EinsumEquation& e) {
    result_.assign(e.result.label, e.result.label + e.result.count);
    sizes_ = e.size;
    std::vector<Operand> operands;
    for (int i = 0; i < e.inputs; ++i) {
      operands.push_back({~i, {}});
      for (int axis = 0; axis < e.term[i].count; ++axis) {
        if (has(operands.back().labels, e.term[i].label[axis])) return false;
        operands.back().labels.push_back(e.term[i].label[axis]);
      }
    }
    Operand left = operands[0];
    for (std::size_t i = 1; i < operands.size(); ++i) {
      if (!contract(&left, operands[i], {operands.data() + i + 1, operands.size() - i - 1})) return false;
    }
    sum_over(&left, [&](int label) { return !has(result_, label); });
    transpose(&left, result_);
    return true;
  }

  const std::vector<MadeNode>& nodes() const { return nodes_; }

 private:
  int add(const char* op, int since, std::vector<int> inputs, std::vector<Attribute> attributes = {},
          std::vector<std::int64_t> shape = {}) {
    nodes_.push_back({op, since, std::move(inputs), std::move(attributes), std::move(shape)});
    return static_cast<int>(nodes_.size()) - 1;
  }

  template <typename F>
  void sum_over(Operand* x, F is_summed) {
    std::vector<std::int64_t> axes;
    Labels kept;
    for (std::size_t i = 0; i < x->labels.size(); ++i) {
      if (is_summed(x->labels[i])) {
        axes.push_back(static_cast<std::int64_t>(i));
      } else {
        kept.push_back(x->labels[i]);
      }
    }
    if (axes.empty()) return;
    *x = {add("ReduceSum", 1, {x->value}, {{"axes", axes}, {"keepdims", std::int64_t{0}}}), kept};
  }

  // To an order of all its labels.
  void transpose(Operand* x, const Labels& order) {
    if (x->labels == order) return;
    std::vector<std::int64_t> perm;
    for (const int label : order) perm.push_back(std::find(x->labels.begin(), x->labels.end(), label) - x->labels.begin());
    *x = {add("Transpose", 1, {x->value}, {{"perm", perm}}), order};
  }

  // To an order that has kOne where there is an axis of 1 to be. Leading ones, but for the last `least` axes, are left to
  // broadcast.
  void arrange(Operand* x, const Labels& order, std::size_t least) {
    Labels given;
    std::vector<std::int64_t> ones;
    std::size_t skipped = 0;
    while (order.size() - skipped > least && order[skipped] == kOne) ++skipped;
    for (std::size_t i = skipped; i < order.size(); ++i) {
      if (order[i] == kOne) {
        ones.push_back(static_cast<std::int64_t>(i - skipped));
      } else {
        given.push_back(order[i]);
      }
    }
    transpose(x, given);
    if (!ones.empty()) x->value = add("Unsqueeze", 1, {x->value}, {{"axes", ones}});
    x->labels.assign(order.begin() + static_cast<std::ptrdiff_t>(skipped), order.end());
  }

  // By where they stand in the result; labels that it does not have come last.
  void sort(Labels* labels) const {
    Labels sorted;
    for (const int label : result_) {
      if (has(*labels, label)) sorted.push_back(label);
    }
    for (const int label : *labels) {
      if (!has(result_, label)) sorted.push_back(label);
    }
    *labels = std::move(sorted);
  }

  // *a becomes the contraction of *a and b, whose labels that `others` or the result need are kept.
  bool contract(Operand* a, Operand b, std::span<const Operand> others) {
    const auto is_kept = [&](int label) {
      return has(result_, label) ||
             std::any_of(others.begin(), others.end(), [&](const Operand& o) { return has(o.labels, label); });
    };
    sum_over(a, [&](int label) { return !has(b.labels, label) && !is_kept(label); });
    sum_over(&b, [&](int label) { return !has(a->labels, label) && !is_kept(label); });
    Labels both, inner, rows, columns;
    for (const int label : a->labels) {
      (!has(b.labels, label) ? rows : is_kept(label) ? both : inner).push_back(label);
    }
    for (const int label : b.labels) {
      if (!has(a->labels, label)) columns.push_back(label);
    }
    for (Labels* labels : {&both, &rows, &columns}) sort(labels);
    if (inner.empty()) return multiply(a, b, both, rows, columns);
    // The result's last axis is to be that of the product's columns.
    if (!rows.empty() && (columns.empty() || last_of(rows) > last_of(columns))) {
      std::swap(*a, b);
      std::swap(rows, columns);
    }
    // Columns that another operand has too may be 1 here, and more there.
    const bool own_columns = std::none_of(columns.begin(), columns.end(), [&](int label) {
      return std::any_of(others.begin(), others.end(), [&](const Operand& o) { return has(o.labels, label); });
    });
    return product(a, b, both, inner, rows, columns, own_columns);
  }

  std::ptrdiff_t last_of(const Labels& labels) const {
    return std::find(result_.begin(), result_.end(), labels.back()) - result_.begin();
  }

  bool multiply(Operand* a, Operand b, const Labels& both, const Labels& rows, const Labels& columns) {
    Labels all = both + rows + columns;
    if (all.size() > static_cast<std::size_t>(kMaxRank)) return false;
    sort(&all);
    const auto with_ones = [&](const Labels& missing) {
      Labels order = all;
      for (int& label : order) label = has(missing, label) ? kOne : label;
      return order;
    };
    arrange(a, with_ones(columns), 0);
    arrange(&b, with_ones(rows), 0);
    *a = {add("Mul", 7, {a->value, b.value}), all};
    return true;
  }

  // Several axes of columns as one, where nothing but the columns tells matrices apart: else each row by itself is multiplied by
  // one of many.
  bool wide_product(Operand* a, Operand b, const Labels& inner, const Labels& rows, const Labels& columns) {
    std::int64_t width = 1;
    std::vector<std::int64_t> shape(rows.size(), 0);  // as they are
    for (const int label : columns) {
      if (sizes_[label] < 1) return false;
      width = checked_mul(width, sizes_[label]);
      shape.push_back(sizes_[label]);
    }
    if (shape.size() > static_cast<std::size_t>(kMaxRank)) return false;
    transpose(a, rows + inner);
    join_last(a, inner.size());
    transpose(&b, inner + columns);
    b.value = add("Reshape", 5, {b.value}, {}, {-1, width});
    *a = {add("Reshape", 5, {add("MatMul", 1, {a->value, b.value})}, {}, shape), rows + columns};
    return true;
  }

  bool product(Operand* a, Operand b, const Labels& both, const Labels& inner, Labels rows, Labels columns, bool own_columns) {
    if (own_columns && both.empty() && columns.size() > 1 && wide_product(a, b, inner, rows, columns)) return true;
    const auto take_last = [](Labels* labels) {
      const int last = labels->empty() ? kOne : labels->back();
      if (last != kOne) labels->pop_back();
      return last;
    };
    const int row = take_last(&rows), column = take_last(&columns);
    const std::size_t rank = both.size() + rows.size() + columns.size() + 2;
    if (rank + inner.size() - 1 > static_cast<std::size_t>(kMaxRank)) return false;
    const Labels row_ones(rows.size(), kOne), column_ones(columns.size(), kOne);
    arrange(a, both + rows + column_ones + Labels{row} + inner, 1 + inner.size());
    join_last(a, inner.size());
    if (inner.size() == 1) {
      arrange(&b, both + row_ones + columns + inner + Labels{column}, 2);
    } else {
      arrange(&b, both + row_ones + columns + Labels{column} + inner, 1 + inner.size());
      join_last(&b, inner.size());
      std::vector<std::int64_t> perm(b.labels.size());
      for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
      std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
      b.value = add("Transpose", 1, {b.value}, {{"perm", perm}});
    }
    *a = {add("MatMul", 1, {a->value, b.value}), both + rows + columns};
    std::vector<std::int64_t> ones;
    auto axis = static_cast<std::int64_t>(rank) - 2;
    for (const int label : {row, column}) {
      label == kOne ? ones.push_back(axis) : a->labels.push_back(label);
      ++axis;
    }
    if (!ones.empty()) a->value = add("Squeeze", 1, {a->value}, {{"axes", ones}});
    return true;
  }

  // The last `count` axes become one.
  void join_last(Operand* x, std::size_t count) {
    if (count == 1) return;
    std::vector<std::int64_t> shape(x->labels.size() - count, 0);  // as they are
    shape.push_back(-1);
    x->labels.resize(shape.size());
    x->value = add("Reshape", 5, {x->value}, {}, shape);
  }

  Labels result_;
  const std::int64_t* sizes_ = nullptr;  // of labels
  std::vector<MadeNode> nodes_;
};

class Einsums {
 public:
  Einsums(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Einsum") && match_.plain(n)) expand(n);
    }
    return edit_.commit();
  }

 private:
  void expand(int n) {
    const Node& node = edit_.node(n);
    std::vector<TensorDesc> inputs;
    for (const ValueId v : node.inputs) {
      if (v == kNoValue || !edit_.value(v).has_shape) return;
      inputs.push_back({edit_.value(v).dtype, edit_.value(v).shape});
    }
    const EinsumEquation e = einsum_equation(node, inputs);
    Expansion expansion;
    if (!agree(e, node.inputs) || !expansion.make(e)) return;
    insert(n, expansion.nodes());
  }

  // Whether operands that share a label have the same dim there. Dims that nothing is known of do, as exporters leave them open,
  // where they are a letter's or kept, and so may be broadcast: where a run has others, the product says that they do not fit.
  // Known dims that differ are left to the Einsum, which broadcasts a 1 that is summed over, or says what is wrong; so are axes of
  // "..." that are summed over.
  bool agree(const EinsumEquation& e, const std::vector<ValueId>& operands) const {
    for (int label = 0; label < kEinsumLabels; ++label) {
      const Value* first = nullptr;
      int first_axis = 0;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const EinsumTerm& term = e.term[i];
        const auto axis = static_cast<int>(std::find(term.label, term.label + term.count, label) - term.label);
        if (axis == term.count) continue;
        const Value& value = edit_.value(operands[i]);
        if (first != nullptr && !same_dim(*first, first_axis, value, axis, e.result.has(label), label < kEinsumLetters))
          return false;
        if (first == nullptr || first->shape[first_axis] == 1) {
          first = &value;
          first_axis = axis;
        }
      }
    }
    return true;
  }

  static bool same_dim(const Value& a, int axis, const Value& b, int other, bool may_broadcast, bool is_letter) {
    const std::int64_t x = a.shape[axis], y = b.shape[other];
    if (may_broadcast && (x < 0 || x == 1 || y < 0 || y == 1)) return true;
    if (x >= 0 && y >= 0) return x == y;
    if (is_letter && x != 1 && y != 1) return true;
    const auto symbol = [](const Value& v, int i) {
      return static_cast<std::size_t>(i) < v.symbols.size() ? v.symbols[static_cast<std::size_t>(i)] : std::string();
    };
    return x < 0 && y < 0 && !symbol(a, axis).empty() && symbol(a, axis) == symbol(b, other);
  }

  // In the place of node n, which becomes the last of them.
  void insert(int n, const std::vector<MadeNode>& nodes) {
    const std::vector<ValueId> operands = edit_.node(n).inputs;
    const std::string name = edit_.node(n).name;
    std::vector<ValueId> values;
    const auto value_of = [&](int v) {
      return v < 0 ? operands[static_cast<std::size_t>(~v)] : values[static_cast<std::size_t>(v)];
    };
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      cancellation_point();
      const MadeNode& made = nodes[i];
      const std::string part = name + "/" + std::to_string(i);
      std::vector<ValueId> inputs;
      for (const int v : made.inputs) inputs.push_back(value_of(v));
      if (!made.shape.empty()) inputs.push_back(add_vector(edit_, context_, (part + "/shape").c_str(), made.shape));
      if (i + 1 == nodes.size()) return match_.replace(n, made.op, made.since, made.attributes, inputs);
      Node node = Matcher::made(made.op, "", made.since, part, edit_.node(n).region, made.attributes);
      node.model_op = "Einsum";
      node.inputs = inputs;
      node.outputs = {edit_.add_value(part, DType::kFloat32)};
      values.push_back(node.outputs[0]);
      edit_.insert_node(n, std::move(node));
    }
    match_.replace(n, "Identity", 1, {}, {operands[0]});  // "ij->ij"
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool expand_einsum(Graph& graph, const PassContext& context) { return Einsums(graph, context).run(); }

}  // namespace evn
