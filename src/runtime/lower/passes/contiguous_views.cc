// Split, Slice and Gather elision by contiguous views: where the elements of an output lie together in the input (what is cut is
// the outermost axis that is longer than one), the output stays there, and nothing is copied. Heads that a transformer's joint
// projection makes for queries, keys and values are cut so.
#include <algorithm>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/small_array.h"
#include "ops/gather.h"
#include "ops/infra/index.h"
#include "ops/slice.h"
#include "ops/split.h"
#include "runtime/lower/plan_roots.h"
#include "runtime/lower/row_sources.h"

namespace evn {
namespace {

enum class Cut : std::uint8_t { kNone, kSplit, kSlice, kGather };

Cut cut_of(const Node& node) {
  if (!node.domain.empty() || !node.epilogue.empty()) return Cut::kNone;
  return node.op_type == "Split"    ? Cut::kSplit
         : node.op_type == "Slice"  ? Cut::kSlice
         : node.op_type == "Gather" ? Cut::kGather
                                    : Cut::kNone;
}

// Whether the positions [0, axis) of a shape are one position.
bool is_outermost(const Shape& shape, int axis) { return shape.elements(0, axis) == 1; }

class ContiguousViews final : public LoweringPass {
 public:
  explicit ContiguousViews(std::vector<Cut> cuts) : cuts_(std::move(cuts)) {}

  bool elide(PlanWork& p, PlanRoots& roots, std::int32_t index) const override {
    const Node& node = p.graph.nodes[index];
    const int slot = p.c.nodes[index].slot;
    if (cuts_[index] == Cut::kNone) return false;
    const std::int32_t from = p.root(node.inputs[0], slot);
    if (from < 0 || p.state.roots[from].source != Source::kArena || p.state.roots[from].view.is_strided()) return false;
    SmallArray<std::int64_t> skips(node.outputs.size());
    std::int64_t before = 0;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      cancellation_point(8);
      skips[k] = skip_of(p, index, k, &before);
      if (skips[k] < 0) return false;
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v != kNoValue) p.root(v, slot) = roots.add_part_root(v, from, static_cast<std::size_t>(skips[k]));
    }
    return true;
  }

  bool respecialize(PlanWork& p, std::int32_t index) const override {
    const Node& node = p.graph.nodes[index];
    const int slot = p.c.nodes[index].slot;
    const RootView& wider = p.state.roots[p.root(node.inputs[0], slot)].view;
    std::int64_t before = 0;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      cancellation_point(8);
      const ValueId v = node.outputs[k];
      const std::int64_t skip = skip_of(p, index, k, &before);
      if (skip < 0) return false;
      if (v != kNoValue) p.state.roots[p.root(v, slot)].view.skip = wider.skip + static_cast<std::size_t>(skip);
    }
    return true;
  }

 private:
  const std::vector<Cut> cuts_;  // per node

  // Bytes of the input in front of output k; -1 where that is no view. `before`: elements of the outputs before this one, for calls
  // in the order of the outputs; -1: one of them is not given.
  std::int64_t skip_of(const PlanWork& p, std::int32_t index, std::size_t k, std::int64_t* before) const {
    const Node& node = p.graph.nodes[index];
    if (node.outputs[k] == kNoValue) {
      *before = -1;
      return 0;
    }
    const TensorDesc& part = p.state.descs[node.outputs[k]];
    if (part.shape.elements() == 0 || is_sub_byte(part.dtype)) return -1;
    const std::int64_t elements = cuts_[index] == Cut::kSplit   ? elements_before_part(p, node, k, before)
                                  : cuts_[index] == Cut::kSlice ? elements_before_slice(p, node)
                                                                : elements_before_rows(p, node);
    if (elements < 0) return -1;
    const std::int64_t bytes = checked_mul(elements, static_cast<std::int64_t>(dtype_size(part.dtype)));
    const auto alignment = static_cast<std::int64_t>(p.c.devices[p.c.nodes[index].slot]->traits().alignment);
    return bytes % alignment == 0 ? bytes : -1;
  }

  static std::int64_t elements_before_part(const PlanWork& p, const Node& node, std::size_t k, std::int64_t* before) {
    const Shape& x = p.state.descs[node.inputs[0]].shape;
    const int axis = normalize_axis(attr_int(node, SplitAttr::kAxis), x.rank());
    if (!is_outermost(x, axis)) return -1;
    const std::int64_t elements = *before;
    if (elements >= 0) *before += p.state.descs[node.outputs[k]].shape.elements();
    return elements;
  }

  static std::int64_t elements_before_slice(const PlanWork& p, const Node& node) {
    ConstTensor inputs[5];
    for (std::size_t i = 0; i < std::min<std::size_t>(node.inputs.size(), 5); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNoValue) continue;
      inputs[i] = {p.state.descs[v], p.state.values[v]};
      if (i > 0 && inputs[i].data == nullptr) return -1;
    }
    const Shape& x = p.state.descs[node.inputs[0]].shape;
    SliceAxis axes[kMaxRank];
    const Shape y = resolve_slice(node, {inputs, node.inputs.size()}, x, axes);
    std::int64_t before = 0;
    bool is_inside = false;  // of an axis of more than one position
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (y[axis] > 1 && axes[axis].step != 1) return -1;
      if (is_inside && y[axis] != x[axis]) return -1;
      is_inside |= y[axis] > 1;
      before += axes[axis].start * x.elements(axis + 1, x.rank());
    }
    return before;
  }

  // Indices must follow each other.
  static std::int64_t elements_before_rows(const PlanWork& p, const Node& node) {
    const Shape& x = p.state.descs[node.inputs[0]].shape;
    const int axis = normalize_axis(attr_int(node, GatherAttr::kAxis), x.rank());
    const ConstTensor indices = {p.state.descs[node.inputs[1]], p.state.values[node.inputs[1]]};
    if (indices.data == nullptr || !is_outermost(x, axis)) return -1;
    const std::int64_t count = indices.desc.shape.elements();
    if (count > kMostIndices) return -1;
    std::int64_t first = int_at(indices, 0);
    for (std::int64_t i = 1; i < count; ++i) {
      if (int_at(indices, i) != first + i) return -1;
    }
    if (first < 0) first += x[axis];
    if (first < 0 || first + count > x[axis]) return -1;  // which the kernel refuses when it runs
    return first * x.elements(axis + 1, x.rank());
  }
  static constexpr std::int64_t kMostIndices = 1 << 10;  // that are looked at when a plan is made
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  const Graph& graph = c.graph();
  std::vector<Cut> cuts(graph.nodes.size(), Cut::kNone);
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const Node& node = graph.nodes[i];
    const CompiledNode& n = c.nodes[i];
    const auto is_plain = [](Layout layout) { return layout == Layout::kPlain; };
    if (n.mode != NodeMode::kKernel || !std::all_of(n.layouts.begin(), n.layouts.end(), is_plain)) continue;
    // An output of the graph is copied once either way.
    const auto is_inner = [&](ValueId v) { return v == kNoValue || c.last_user[v] != INT32_MAX; };
    if (std::all_of(node.outputs.begin(), node.outputs.end(), is_inner)) cuts[i] = cut_of(node);
    // A view would need the whole table in memory of which the kernel reads rows in the file.
    if (cuts[i] == Cut::kGather && row_source(n, desc_of(node, n, descs_of(graph, node)), 0).memory != nullptr)
      cuts[i] = Cut::kNone;
  }
  const bool any = std::any_of(cuts.begin(), cuts.end(), [](Cut cut) { return cut != Cut::kNone; });
  return any ? std::make_unique<ContiguousViews>(std::move(cuts)) : nullptr;
}

}  // namespace

extern const LoweringPassInfo contiguous_views_pass;
const LoweringPassInfo contiguous_views_pass = {"contiguous_views", "cuts the outermost axis without a copy", true, find};

}  // namespace evn
