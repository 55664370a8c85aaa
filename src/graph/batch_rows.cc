#include "graph/batch_rows.h"

#include <algorithm>
#include <string>

#include "base/cancel.h"

namespace evn {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  // products with sizes of batches stay numbers

// Product of dims; 0 if one is 0, or if there are too many elements.
std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t n = 1;
  for (int i = begin; i < end; ++i) {
    if (__builtin_mul_overflow(n, shape[i], &n) || n > kMostRows) return 0;
  }
  return n;
}

bool is_one_element(const Shape& shape) {
  return std::all_of(shape.dims().begin(), shape.dims().end(), [](std::int64_t dim) { return dim == 1; });
}

bool is_reshape(const Node& node) {
  const std::string& op = node.op_type;
  return node.domain.empty() && (op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze");
}

// Softmax and its like before opset 13: the dims from an axis on are one.
bool flattens(const Node& node) {
  const std::string& op = node.op_type;
  return node.since_version < 13 && (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax");
}

std::int64_t int_of(const Node& node, const char* name, std::int64_t otherwise) {
  for (const Attribute& a : node.attributes) {
    if (const auto* const value = std::get_if<std::int64_t>(&a.value); value != nullptr && a.name == name) return *value;
  }
  return otherwise;
}

Ints axes_from(std::int64_t first, int rank) {
  Ints axes;
  for (std::int64_t i = first < 0 ? first + rank : first; i < rank; ++i) axes.push_back(i);
  return axes;
}

// Axes of the first input whose letter is not in the result.
Ints summed_axes(const Node& node) {
  std::string equation;
  for (const Attribute& a : node.attributes) {
    if (const auto* const text = std::get_if<std::string>(&a.value); text != nullptr && a.name == "equation") equation = *text;
  }
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  const std::string term = equation.substr(0, std::min(equation.find(','), arrow));
  const auto is_summed = [&](char c) {
    return arrow == std::string::npos ? std::count(equation.begin(), equation.end(), c) > 1
                                      : equation.find(c, arrow + 2) == std::string::npos;
  };
  Ints axes;
  const std::size_t dots = std::min(term.find('.'), term.size());
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.' || !is_summed(term[i])) continue;
    axes.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(i < dots ? 0 : term.size()));
  }
  return axes;
}

}  // namespace

BatchRows::BatchRows(const Graph& graph, std::int64_t batch, std::int64_t other, const BatchWalk& own, const BatchWalk& walk)
    : graph_(graph), batch_(batch), other_(other), own_(own), walk_(walk), outer_(graph.values.size(), 0) {}

std::optional<Error> BatchRows::visit(const Node& node) {
  if (node.domain.empty() && (works_along_rows(node) || moves_rows(node))) {
    return make_error(EVN_ERROR_UNSUPPORTED, "%s works along an axis that has rows of the batch beside something else",
                      node.op_type.c_str());
  }
  if (node.domain.empty() && loses_rows(node)) {
    return make_error(EVN_ERROR_UNSUPPORTED, "%s changes the number of rows of the batch", node.op_type.c_str());
  }
  bool keeps = true;
  for (const ValueId v : node.outputs) {
    cancellation_point();
    if (v != kNoValue) keeps &= is_reshape(node) ? follow_reshape(node.inputs[0], v) : follow(node, v);
  }
  if (keeps) return std::nullopt;
  return make_error(EVN_ERROR_UNSUPPORTED, "%s would mix rows of the batch, which are in another order", node.op_type.c_str());
}

bool BatchRows::holds_batch(std::int64_t own, std::int64_t other) const {
  return own != other && own <= kMostRows && other <= kMostRows && own * other_ == other * batch_;
}

// Returns true if a dim has the batch and another factor.
bool BatchRows::is_shared(std::int64_t own, std::int64_t other) const { return own > batch_ && holds_batch(own, other); }

// The only dim that has the batch in it; -1: none or several have.
int BatchRows::dim_of_batch(ValueId v) const {
  const Shape *const own = own_.shape(v), *const other = walk_.shape(v);
  if (own == nullptr || other == nullptr || own->rank() != other->rank()) return -1;
  int found = -1;
  for (int i = 0; i < own->rank(); ++i) {
    if ((*own)[i] == (*other)[i]) continue;
    if (found >= 0 || !holds_batch((*own)[i], (*other)[i])) return -1;
    found = i;
  }
  return found;
}

// ------------------------------------------------------------------------------------------------ order of elements --

std::int64_t BatchRows::outer_of(ValueId v, int dim) const {
  return (*own_.shape(v))[dim] == batch_ ? 1 : outer_[static_cast<std::size_t>(v)];
}

// As many elements are before the batch as in the input.
bool BatchRows::follow_reshape(ValueId in, ValueId out) {
  std::int64_t& outer = outer_[static_cast<std::size_t>(out)];
  outer = 0;
  const int at = dim_of_batch(in), place = dim_of_batch(out);
  if (at < 0 || place < 0 || outer_of(in, at) == 0) return true;
  const Shape &from = *own_.shape(in), &to = *own_.shape(out);
  const std::int64_t wanted = product(from, 0, at) * outer_of(in, at), before = product(to, 0, place);
  if (wanted == 0 || before == 0) return true;
  if (wanted % before != 0 || to[place] / batch_ % (wanted / before) != 0) return false;
  outer = wanted / before;
  return true;
}

// Other nodes leave a dim as it is. Returns false if inputs have the batch in another order.
bool BatchRows::follow(const Node& node, ValueId out) {
  std::int64_t& outer = outer_[static_cast<std::size_t>(out)];
  outer = 0;
  const int place = dim_of_batch(out);
  if (place < 0 || (*own_.shape(out))[place] == batch_) return true;
  for (const ValueId in : node.inputs) {
    cancellation_point();
    const int at = dim_of_batch(in);
    if (at < 0 || (*own_.shape(in))[at] != (*own_.shape(out))[place] || outer_of(in, at) == 0) continue;
    if (outer != 0 && outer != outer_of(in, at)) return false;
    outer = outer_of(in, at);
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ axes of operators --

// Returns true if elements along a shared dim meet in the result. One number that is made of all is what a loss is.
bool BatchRows::works_along_rows(const Node& node) const {
  if (node.inputs.empty() || node.outputs.empty()) return false;
  const Shape *const in = own_.shape(node.inputs[0]), *const in_other = walk_.shape(node.inputs[0]);
  const Shape* const out = own_.shape(node.outputs[0]);
  if (in == nullptr || in_other == nullptr || in->rank() != in_other->rank()) return false;
  if (out != nullptr && is_one_element(*out)) return false;
  const int rank = in->rank();
  if (flattens(node)) {
    const std::int64_t axis = int_of(node, "axis", 1), first = axis < 0 ? axis + rank : axis;
    if (first < 0 || first > rank) return false;
    const int begin = static_cast<int>(first);
    return is_shared(product(*in, begin, rank), product(*in_other, begin, rank));
  }
  const Ints axes = worked_axes(node, rank);
  return std::any_of(axes.begin(), axes.end(), [&](std::int64_t axis) {
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank && is_shared((*in)[static_cast<int>(axis)], (*in_other)[static_cast<int>(axis)]);
  });
}

// Axes of the first input.
Ints BatchRows::worked_axes(const Node& node, int rank) const {
  const std::string& op = node.op_type;
  if (op == "MatMul") return {-1};
  if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") return {int_of(node, "axis", -1)};
  if (op == "Attention") return {-2};
  if (op == "LayerNormalization" || op == "RMSNormalization") return axes_from(int_of(node, "axis", -1), rank);
  if (op == "TopK" || op == "LpNormalization") return {int_of(node, "axis", -1)};
  if (op == "ArgMax" || op == "ArgMin") return {int_of(node, "axis", 0)};
  if (op == "Gemm") return {int_of(node, "transA", 0) != 0 ? 0 : 1};
  if (op == "LSTM" || op == "GRU" || op == "RNN") return {int_of(node, "layout", 0)};
  if (op == "LRN") return {1};
  if (op == "Einsum") return summed_axes(node);
  if (op == "Gather" && is_same(node.inputs[1])) return {int_of(node, "axis", 0)};
  if (op == "CumSum" || op.starts_with("Reduce")) return reduced_axes(node, rank);
  const bool is_conv = op.find("Conv") != std::string::npos, is_pool = op.ends_with("Pool");
  const bool is_spatial = is_conv || is_pool || op == "InstanceNormalization" || op == "GroupNormalization";
  return is_spatial ? axes_from(2, rank) : Ints{};
}

Ints BatchRows::reduced_axes(const Node& node, int rank) const {
  for (const Attribute& a : node.attributes) {
    if (const auto* const axes = std::get_if<Ints>(&a.value); axes != nullptr && a.name == "axes") return *axes;
  }
  const bool has_axes = node.inputs.size() > 1 && node.inputs[1] != kNoValue;
  const Ints* const axes = has_axes ? own_.numbers(node.inputs[1]) : nullptr;
  if (axes != nullptr && !axes->empty()) return *axes;
  if (has_axes && axes == nullptr) return {};
  return int_of(node, "noop_with_empty_axes", 0) != 0 ? Ints{} : axes_from(0, rank);
}

// Returns true if a node shifts or leaves out places along a dim that has the batch and another factor, in its input or its result.
bool BatchRows::moves_rows(const Node& node) const {
  const std::string& op = node.op_type;
  const bool moves = op == "Concat" || op == "Pad" || op == "Slice" || op == "Split";
  if (node.outputs.empty() || !moves) return false;
  const Shape* const out = own_.shape(node.outputs[0]);
  const std::size_t count = op == "Concat" ? node.inputs.size() : std::min<std::size_t>(node.inputs.size(), 1);
  for (std::size_t i = 0; i < count && out != nullptr; ++i) {
    cancellation_point();
    const Shape *const in = own_.shape(node.inputs[i]), *const in_other = walk_.shape(node.inputs[i]);
    if (in == nullptr || in_other == nullptr || in->rank() != out->rank() || in_other->rank() != out->rank()) continue;
    for (int a = 0; a < out->rank(); ++a) {
      const bool is_moved = (*in)[a] != (*out)[a] && std::max((*in)[a], (*out)[a]) > batch_;
      if (is_moved && holds_batch((*in)[a], (*in_other)[a])) return true;
    }
  }
  return false;
}

// Returns true if a node changes a dim that has the batch: Gather takes rows of fixed numbers; a Slice changes it with the other
// size of the batch alone, if it takes all rows of the one; a node that resizes or crops changes it with either.
bool BatchRows::loses_rows(const Node& node) const {
  const std::string& op = node.op_type;
  const bool resizes = op == "Resize" || op == "Upsample" || op == "CenterCropPad";
  const bool gathers = op == "Gather" && is_same(node.inputs[1]);
  if (node.outputs.empty() || (!resizes && !gathers && op != "Slice")) return false;
  const Shape *const in = own_.shape(node.inputs[0]), *const in_other = walk_.shape(node.inputs[0]);
  const Shape *const out = own_.shape(node.outputs[0]), *const out_other = walk_.shape(node.outputs[0]);
  if (in == nullptr || in_other == nullptr || out == nullptr || out_other == nullptr || in->rank() != in_other->rank())
    return false;
  if (gathers) {
    const std::int64_t axis = int_of(node, "axis", 0), at = axis < 0 ? axis + in->rank() : axis;
    return holds_batch((*in)[static_cast<int>(at)], (*in_other)[static_cast<int>(at)]);
  }
  if (in->rank() != out->rank() || in->rank() != out_other->rank()) return false;
  for (int a = 0; a < in->rank(); ++a) {
    if (!holds_batch((*in)[a], (*in_other)[a])) continue;
    const bool is_kept = (*in)[a] == (*out)[a], is_kept_by_other = (*in_other)[a] == (*out_other)[a];
    if (is_kept ? !is_kept_by_other : resizes) return true;
  }
  return false;
}

// Returns true for indices that do not depend on the batch.
bool BatchRows::is_same(ValueId v) const {
  const Ints *const own = own_.numbers(v), *const other = walk_.numbers(v);
  return graph_.values[static_cast<std::size_t>(v)].constant != nullptr || (own != nullptr && other != nullptr && *own == *other);
}

}  // namespace evn
