// Concat and split elision by channel views: values that lie channels last may be some channels of a wider one. The inputs of a
// Concat of channels are written into its output by the kernels that make them; outputs of Split and Slice stay where they lie in
// the input. Found once for a graph, from the kernels and layouts of its nodes; a plan may always copy.
#include <algorithm>
#include <utility>

#include "base/cancel.h"
#include "base/checked.h"
#include "ops/concat.h"
#include "ops/slice.h"
#include "runtime/lower/plan_roots.h"

namespace evn {
namespace {

// Where a value lies within a wider one.
struct View {
  ValueId parent = kNoValue;             // the wider value; kNoValue: there is none
  std::int64_t first = 0;                // channel of the parent
  std::int64_t channels = 0, pitch = 0;  // the value's, and the parent's
  std::int32_t maker = -1;               // the node that makes the parent
};

// What is known of a node that a kernel of the CPU runs.
struct ViewNode {
  std::span<const Layout> layouts;  // per input, ..., per output; empty: all plain, or no such node
  std::uint8_t views = 0;           // what KernelFusion::channel_views said
  ValueId residual = kNoValue;      // operand of a sum that is computed with it
  std::int32_t computed_by = -1;    // this node is a sum that is computed with that one
};

// A Concat of some channels of a value, where these lie, and of a new value in the place of the others, when nobody reads these any
// more (the channels that a unit of ShuffleNet passes on, and those that it computes).
struct Reuse {
  ValueId value = kNoValue;
  std::int32_t last = 0;  // the last node that reads it, or those of its channels that are written over
};

struct Views {
  std::vector<View> concat_views;  // per value that is written into the output of a Concat
  std::vector<Reuse> reuses;       // per parent
  std::vector<View> split_views;   // per value that stays in the input of its Split or Slice
};

class ViewFinder {
 public:
  ViewFinder(const Graph& graph, std::span<const ViewNode> nodes) : graph_(graph), nodes_(nodes) {
    views_.concat_views.resize(graph.values.size());
    views_.split_views.resize(graph.values.size());
    views_.reuses.resize(graph.values.size());
    last_reader_.assign(graph.values.size(), -1);
    maker_.assign(graph.values.size(), -1);
    copes_.assign(graph.values.size(), true);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork / 4);
      add_node(i);
    }
    for (const ValueId v : graph.outputs) last_reader_[v] = INT32_MAX;
  }

  // From the last node to the first, so that a Concat whose output goes into another one's finds its view.
  Views run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      cancellation_point(kNodeWork / 4);
      find_view(i);
    }
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      if (is_candidate(graph_.nodes[i], "Concat", kViewInputs | kViewOutputs, nodes_[i])) elide_concat(graph_.nodes[i]);
    }
    for (View& view : views_.concat_views) {
      if (view.parent != kNoValue) view.maker = maker_[view.parent];
    }
    extend_reuses();
    return std::move(views_);
  }

 private:
  // Some channels of a value.
  struct Range {
    ValueId value = kNoValue;
    std::int64_t first = 0, channels = 0;
  };

  const Graph& graph_;
  std::span<const ViewNode> nodes_;
  Views views_;
  std::vector<std::int32_t> maker_;        // per value: the node whose kernel writes it, or -1
  std::vector<std::int32_t> last_reader_;  // per value; INT32_MAX for graph outputs
  std::vector<bool> copes_;                // per value: who reads it channels last copes with a pitch

  void add_node(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const ViewNode& n = nodes_[i];
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) maker_[v] = n.computed_by >= 0 ? n.computed_by : static_cast<std::int32_t>(i);
    }
    for (const ValueId v : node.inputs) {
      if (v != kNoValue) last_reader_[v] = static_cast<std::int32_t>(i);
    }
    if (n.computed_by >= 0) return;
    for (std::size_t k = 0; k < node.inputs.size() && k < n.layouts.size(); ++k) {
      const std::uint8_t wanted = k == 0 ? kViewInput : kViewInputs;
      if (node.inputs[k] != kNoValue && n.layouts[k] == Layout::kChannelsLast && (n.views & wanted) != wanted)
        copes_[node.inputs[k]] = false;
    }
    if (n.residual != kNoValue && (n.views & kViewResidual) == 0) copes_[n.residual] = false;
  }

  // -1 where it is not known.
  std::int64_t channels_of(ValueId v) const {
    const Value& value = graph_.values[v];
    return v != kNoValue && value.has_shape && value.shape.rank() >= 3 && value.shape[1] > 0 ? value.shape[1] : -1;
  }

  static bool is_candidate(const Node& node, const char* op, int wanted, const ViewNode& n) {
    return node.op_type == op && node.domain.empty() && node.epilogue.empty() && (n.views & wanted) == wanted &&
           !n.layouts.empty() && n.layouts[0] == Layout::kChannelsLast;
  }

  void find_view(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const ViewNode& n = nodes_[i];
    if (is_candidate(node, "Split", kViewInput, n)) {
      std::int64_t first = 0;
      for (const ValueId v : node.outputs) {
        if (v == kNoValue || channels_of(v) < 0 || !copes_[v]) return;
        first += channels_of(v);
      }
      if (first != channels_of(node.inputs[0])) return;
      first = 0;
      for (const ValueId v : node.outputs) {
        views_.split_views[v] = {node.inputs[0], first, channels_of(v), channels_of(node.inputs[0])};
        first += channels_of(v);
      }
    } else if (is_candidate(node, "Slice", kViewInput, n) && channels_of(node.outputs[0]) > 0 && copes_[node.outputs[0]]) {
      const std::int64_t first = first_channel(node);
      if (first >= 0)
        views_.split_views[node.outputs[0]] = {node.inputs[0], first, channels_of(node.outputs[0]), channels_of(node.inputs[0])};
    }
  }

  // The first channel of a Slice over channels alone; -1 where that is not known.
  std::int64_t first_channel(const Node& node) const {
    std::vector<ConstTensor> inputs;
    for (const ValueId v : node.inputs) {
      if (v == kNoValue || inputs.empty()) {
        inputs.emplace_back();
        continue;
      }
      const Weight* constant = graph_.values[v].constant.get();
      if (constant == nullptr) return -1;
      inputs.push_back({constant->desc, constant->bytes()});
    }
    Shape x = graph_.values[node.inputs[0]].shape;
    if (!graph_.values[node.inputs[0]].has_shape || x.rank() < 3 || x[1] <= 0) return -1;
    // Two lengths of the other axes, so that those that are cut are seen.
    for (int axis = 0; axis < x.rank(); ++axis) x[axis] = axis == 1 ? x[1] : kLength;
    SliceAxis axes[kMaxRank];
    const Shape y = resolve_slice(node, inputs, x, axes);
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (axis != 1 && (y[axis] != x[axis] || axes[axis].step != 1)) return -1;
    }
    return axes[1].step == 1 ? axes[1].start : -1;
  }
  static constexpr std::int64_t kLength = std::int64_t{1} << 40;  // of an axis that no Slice means to cut

  // Whose channels the value is, in the end.
  Range origin(ValueId v) const {
    Range r = {v, 0, channels_of(v)};
    for (const View* view = &views_.split_views[v]; view->parent != kNoValue; view = &views_.split_views[r.value]) {
      r.first += view->first;
      r.value = view->parent;
    }
    return r;
  }

  bool may_be_view(ValueId v) const {
    const std::int32_t maker = maker_[v];
    if (maker < 0 || views_.concat_views[v].parent != kNoValue || !copes_[v]) return false;
    const ViewNode& n = nodes_[static_cast<std::size_t>(maker)];
    return (n.views & kViewOutputs) != 0 && !n.layouts.empty() && n.layouts.back() == Layout::kChannelsLast;
  }

  void elide_concat(const Node& node) {
    const ValueId parent = node.outputs[0];
    std::vector<Range> ranges;  // inputs one after the other, those that were cut from one value together
    std::int64_t sum = 0;
    for (const ValueId v : node.inputs) {
      if (v == kNoValue || channels_of(v) < 0) return;
      const Range r = origin(v);
      sum += r.channels;
      if (!ranges.empty() && ranges.back().value == r.value && ranges.back().first + ranges.back().channels == r.first) {
        ranges.back().channels += r.channels;
      } else {
        ranges.push_back(r);
      }
    }
    if (channels_of(parent) != sum || maker_[parent] < 0) return;
    View view = views_.concat_views[parent];
    if (view.parent == kNoValue && copes_[parent]) view = views_.concat_views[parent] = common_view(ranges, sum);
    if (view.parent == kNoValue) {
      view = {parent, 0, sum, sum};
      views_.reuses[parent] = reuse_of(ranges, sum);
    }
    std::int64_t first = view.first;
    for (const Range& r : ranges) {
      const bool is_all = r.first == 0 && r.channels == channels_of(r.value);
      if (is_all && may_be_view(r.value)) views_.concat_views[r.value] = {view.parent, first, r.channels, view.pitch};
      first += r.channels;
    }
  }

  // Which of two ranges is used: one of channels where they lie in a value as wide as both.
  Reuse reuse_of(std::span<const Range> ranges, std::int64_t sum) const {
    if (ranges.size() != 2) return {};
    const bool is_second = ranges[0].first == 0 && ranges[0].channels == channels_of(ranges[0].value);  // which stays
    const Range& stays = ranges[is_second ? 1 : 0];
    const std::int64_t first = is_second ? ranges[0].channels : 0;  // of what stays
    if (stays.first != first || channels_of(stays.value) != sum || maker_[stays.value] < 0) return {};
    Reuse o = {stays.value, last_reader_[stays.value]};
    for (std::size_t i = 0; i < views_.split_views.size(); ++i) {
      const auto v = static_cast<ValueId>(i);
      if (views_.split_views[i].parent == kNoValue) continue;
      const Range r = origin(v);
      const bool is_kept = r.first >= first && r.first + r.channels <= first + stays.channels;
      if (r.value == stays.value && !is_kept) o.last = std::max(o.last, last_reader_[v]);
    }
    return o;
  }

  // Delays each reuse of memory until the last reader of the values, and of their channels, that a Concat wrote into it.
  void extend_reuses() {
    std::vector<std::int32_t> last(graph_.values.size(), -1);  // per parent
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      cancellation_point(kNodeWork / 4);
      const auto v = static_cast<ValueId>(i);
      const ValueId parent = views_.concat_views[origin(v).value].parent;
      if (parent != kNoValue) last[parent] = std::max(last[parent], last_reader_[v]);
    }
    for (Reuse& r : views_.reuses) {
      if (r.value != kNoValue) r.last = std::max(r.last, last[r.value]);
    }
  }

  // The view of all of them, which lie side by side already: in the output of a Concat that begins with this one.
  View common_view(std::span<const Range> ranges, std::int64_t sum) const {
    const View begin = views_.concat_views[ranges[0].value];
    if (begin.parent == kNoValue) return {};
    std::int64_t first = begin.first;
    for (const Range& r : ranges) {
      const View& p = views_.concat_views[r.value];
      if (p.parent != begin.parent || p.first != first || r.first != 0 || r.channels != p.channels) return {};
      first += r.channels;
    }
    return {begin.parent, begin.first, sum, begin.pitch};
  }
};

class ChannelViews final : public LoweringPass {
 public:
  explicit ChannelViews(Views views) : views_(std::move(views)) {}

  bool elide(PlanWork& p, PlanRoots& roots, std::int32_t node) const override {
    return p.c.nodes[node].views != 0 && (elide_concat(p, roots, node) || elide_split(p, roots, node));
  }

  // The root of its view in its parent, or its own, where others have been written into it.
  std::int32_t output_root(PlanWork& p, PlanRoots& roots, ValueId v, std::int32_t node) const override {
    const View& view = views_.concat_views[v];
    if (view.maker >= 0 && p.is_dead(static_cast<std::size_t>(view.maker))) return -1;
    if (view.parent == kNoValue) {
      const std::int32_t r = p.state.parent_of[v];
      return r >= 0 && p.state.roots[r].bytes == p.state.descs[v].size_bytes() ? r : -1;
    }
    const TensorDesc& d = p.state.descs[v];
    if (d.shape.elements() == 0 || d.shape[1] != view.channels) return -1;
    const std::size_t bytes =
        checked_mul(d.size_bytes() / static_cast<std::size_t>(view.channels), static_cast<std::size_t>(view.pitch));
    std::int32_t parent = p.state.parent_of[view.parent];
    if (parent < 0) {
      if (bytes > p.limits.tensor_bytes) return -1;
      parent = root_to_write_over(p, views_.reuses[view.parent], bytes, node);
      if (parent < 0) {
        parent = roots.add_arena_root(view.parent, 0, p.now());
        p.state.roots[parent].bytes = bytes;
      }
      p.state.parent_of[view.parent] = parent;
    }
    return p.state.roots[parent].bytes == bytes ? add_view(roots, v, parent, view) : -1;
  }

 private:
  const Views views_;

  static std::int32_t add_view(PlanRoots& roots, ValueId v, std::int32_t of, const View& view) {
    return roots.add_view_root(v, of, view.first, view.channels, view.pitch);
  }

  // The root of a value that may be written over, as nobody reads its other channels from the node on; -1: there is none.
  static std::int32_t root_to_write_over(PlanWork& p, const Reuse& reuse, std::size_t bytes, std::int32_t node) {
    if (reuse.value == kNoValue || reuse.last >= node || PlanWork::same_in_all_layouts(p.state.descs[reuse.value].shape)) return -1;
    const std::int32_t r = p.root(reuse.value, 0, Layout::kChannelsLast);
    if (r < 0 || p.state.roots[r].source != Source::kArena || p.state.roots[r].view.exists() || p.state.roots[r].bytes != bytes)
      return -1;
    return std::exchange(p.state.roots[r].written_over, true) ? -1 : r;
  }

  // Whether all inputs of the node, a Concat, lie in its output already.
  bool elide_concat(PlanWork& p, PlanRoots& roots, std::int32_t index) const {
    const Node& node = p.graph.nodes[index];
    const ValueId out = node.outputs[0];
    if (node.op_type != "Concat") return false;
    const std::int32_t to = output_root(p, roots, out, index);
    if (to < 0) return false;
    const RootView& joined = p.state.roots[to].view;
    const std::int32_t parent = joined.exists() ? joined.parent : to;
    std::size_t at = joined.skip;
    for (const ValueId v : node.inputs) {
      const std::int32_t r = p.root(v, 0, Layout::kChannelsLast);
      if (r < 0 || !p.state.roots[r].view.is_strided() || p.state.roots[r].view.parent != parent ||
          p.state.roots[r].view.skip != at)
        return false;
      at += static_cast<std::size_t>(p.state.descs[v].shape[1]) * dtype_size(p.state.descs[v].dtype);
    }
    p.root(out, 0, Layout::kChannelsLast) = to;
    roots.keep_for(parent, out);
    return true;
  }

  // Whether the outputs of the node, a Split or Slice, stay where they lie.
  bool elide_split(PlanWork& p, PlanRoots& roots, std::int32_t index) const {
    const Node& node = p.graph.nodes[index];
    for (const ValueId v : node.outputs) {
      const View& view = v == kNoValue ? View{} : views_.split_views[v];
      if (view.parent == kNoValue || p.state.descs[v].shape.elements() == 0) return false;
      if (p.state.descs[v].shape[1] != view.channels || p.state.descs[view.parent].shape[1] != view.pitch) return false;
    }
    const std::int32_t from = roots.need(node.inputs[0], 0, Layout::kChannelsLast, true);
    const RootView& wider = p.state.roots[from].view;
    if (p.state.roots[from].source != Source::kArena || (wider.exists() && !wider.is_strided())) return false;
    for (const ValueId v : node.outputs) p.root(v, 0, Layout::kChannelsLast) = add_view(roots, v, from, views_.split_views[v]);
    return true;
  }
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  std::vector<ViewNode> nodes(c.nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const CompiledNode& n = c.nodes[i];
    nodes[i].layouts = n.layouts;
    nodes[i].views = n.views;
    if (const FusedOperand* r = n.fused_as(FusedOperand::Role::kResidual)) nodes[i].residual = r->value;
    for (const FusedOperand& f : n.fused) nodes[static_cast<std::size_t>(f.node)].computed_by = static_cast<std::int32_t>(i);
  }
  Views views = ViewFinder(c.graph(), nodes).run();
  bool any = false;
  c.viewed.resize(c.graph().values.size());
  for (std::size_t v = 0; v < views.concat_views.size(); ++v) {
    c.viewed[v] = views.concat_views[v].parent != kNoValue;
    any |= c.viewed[v] || views.split_views[v].parent != kNoValue || views.reuses[v].value != kNoValue;
  }
  return any ? std::make_unique<ChannelViews>(std::move(views)) : nullptr;
}

}  // namespace

extern const LoweringPassInfo channel_views_pass;
const LoweringPassInfo channel_views_pass = {"channel_views", "joins and splits channels without a copy", true, find};

}  // namespace evn
