// See strided_view.h.
#include "graph/passes/strided_view.h"

#include "graph/edit.h"
#include "ops/gather.h"
#include "ops/slice.h"
#include "ops/split.h"
#include "ops/transpose.h"

namespace evn {
namespace {

// Maximum number of outputs of a Split that are seen as views: the parts before an output are walked over to find where it begins.
constexpr std::size_t kMostParts = 1024;

bool is_view_op(const Node& node) { return node.op != nullptr && (node.op->flags & kOpView) != 0; }

// Axes that follow each other without a gap become one, and are cut anew.
bool reshape(const Shape& to, StridedView* view) {
  if (to.elements() == 0) return false;
  std::vector<std::int64_t> sizes, steps;
  for (std::size_t i = 0; i < view->dims.size(); ++i) {
    if (view->dims[i] == 1) continue;
    if (!sizes.empty() && steps.back() == view->steps[i] * view->dims[i]) {
      sizes.back() *= view->dims[i];
      steps.back() = view->steps[i];
    } else {
      sizes.push_back(view->dims[i]);
      steps.push_back(view->steps[i]);
    }
  }
  std::vector<std::int64_t> cut;
  std::size_t group = 0;
  for (const std::int64_t dim : to.dims()) {
    if (dim == 1) {
      cut.push_back(0);
      continue;
    }
    if (group == sizes.size() || sizes[group] % dim != 0) return false;
    sizes[group] /= dim;
    cut.push_back(steps[group] * sizes[group]);
    if (sizes[group] == 1) ++group;
  }
  view->dims.assign(to.dims().begin(), to.dims().end());
  view->steps = std::move(cut);
  return true;
}

void transpose(const Node& node, StridedView* view) {
  int perm[kMaxRank];
  transpose_perm(node, static_cast<int>(view->dims.size()), perm);
  const StridedView from = *view;
  for (std::size_t i = 0; i < from.dims.size(); ++i) {
    view->dims[i] = from.dims[static_cast<std::size_t>(perm[i])];
    view->steps[i] = from.steps[static_cast<std::size_t>(perm[i])];
  }
}

// One index of an axis.
bool gather(const Graph& graph, const Node& node, const Shape& to, StridedView* view) {
  std::vector<std::int64_t> indices;
  if (!int_constant(graph, node.inputs[1], &indices) || indices.size() != 1) return false;
  const auto axis =
      static_cast<std::size_t>(normalize_axis(attr_int(node, GatherAttr::kAxis), static_cast<int>(view->dims.size())));
  const std::int64_t dim = view->dims[axis];
  const std::int64_t index = indices[0] < 0 ? indices[0] + dim : indices[0];
  if (index < 0 || index >= dim) return false;
  view->offset += index * view->steps[axis];
  view->dims[axis] = 1;
  return reshape(to, view);
}

bool slice(const Graph& graph, const Node& node, StridedView* view) {
  if (node.inputs.size() > 5) return false;
  std::vector<ConstTensor> lists(node.inputs.size());
  std::vector<std::vector<std::uint64_t>> storage(node.inputs.size());
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const Weight* w = graph.values[node.inputs[i]].constant.get();
    if (w == nullptr) return false;
    lists[i] = {w->desc, aligned_bytes(*w, storage[i])};
  }
  SliceAxis axes[kMaxRank];
  resolve_slice(node, lists, Shape(view->dims), axes);
  for (std::size_t i = 0; i < view->dims.size(); ++i) {
    if (axes[i].count < 1) return false;
    view->offset += axes[i].start * view->steps[i];
    view->steps[i] = axes[i].count > 1 ? view->steps[i] * axes[i].step : 0;
    view->dims[i] = axes[i].count;
  }
  return true;
}

bool split(const Graph& graph, const Node& node, ValueId v, StridedView* view) {
  const auto axis = static_cast<std::size_t>(normalize_axis(attr_int(node, SplitAttr::kAxis), static_cast<int>(view->dims.size())));
  for (const ValueId part : node.outputs) {
    cancellation_point();
    if (part == kNoValue || !graph.values[part].has_shape) return false;
    const std::int64_t size = graph.values[part].shape[static_cast<int>(axis)];
    if (size < 1) return false;
    if (part == v) {
      view->dims[axis] = size;
      return true;
    }
    view->offset += size * view->steps[axis];
  }
  return false;
}

}  // namespace

StridedView dense_view(const Shape& shape) {
  StridedView view;
  view.dims.assign(shape.dims().begin(), shape.dims().end());
  view.steps.resize(view.dims.size());
  row_major_strides(shape, view.steps.data());
  return view;
}

bool is_view_maker(const Node& node) {
  if (!node.epilogue.empty() || node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  return is_view_op(node) || is_op(node, "Transpose") || is_op(node, "Gather") || is_op(node, "Slice") ||
         (is_op(node, "Split") && node.outputs.size() <= kMostParts);
}

bool copies(const Node& node) { return !is_view_op(node); }

bool advance_view(const Graph& graph, const Node& node, ValueId v, StridedView* view) {
  const Shape& to = graph.values[v].shape;
  if (is_view_op(node)) return reshape(to, view);
  if (is_op(node, "Gather")) return gather(graph, node, to, view);
  if (is_op(node, "Slice")) return slice(graph, node, view);
  if (is_op(node, "Split")) return split(graph, node, v, view);
  if (!is_op(node, "Transpose")) return false;
  transpose(node, view);
  return true;
}

}  // namespace evn
