// Concat and split elision by channel views: values that lie channels last may be some channels of a wider one. What a Concat of channels joins is
// written into its output by whoever makes it; what Split and Slice cut out stays where it lies. Found once for a graph, from the kernels and
// layouts of its nodes; a plan may always copy.
#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "ops/concat.h"
#include "ops/slice.h"
#include "runtime/lower/plan_roots.h"

namespace evn {
namespace {

// Where a value is to be written.
struct Place {
  ValueId whole = kNoValue;                // the wider value; kNoValue: by itself
  std::int64_t first = 0;                  // channel of the whole
  std::int64_t channels = 0, pitch = 0;    // the value's, and the whole's
};

// What is known of a node that a kernel of the CPU runs.
struct JointNode {
  std::span<const Layout> layouts;         // per input, ..., per output; empty: all plain, or no such node
  std::uint8_t pitched = 0;                // what Kernel::pitched said
  ValueId residual = kNoValue;             // operand of a sum that is computed with it
  std::int32_t computed_by = -1;           // this node is a sum that is computed with that one
};

// A Concat of some channels of a value, where these lie, and of a new value in the place of the others, when nobody reads these any more
// (the channels that a unit of ShuffleNet passes on, and those that it computes).
struct Over {
  ValueId value = kNoValue;
  std::int32_t last = 0;                   // the last node that reads it, or those of its channels that are written over
};

struct Joints {
  std::vector<Place> places;               // per value
  std::vector<Over> overs;                 // per whole
  std::vector<Place> cuts;                 // per value that stays where it is cut out: `whole` is the input of its Split or Slice
};

class JointFinder {
 public:
  JointFinder(const Graph& graph, std::span<const JointNode> nodes) : graph_(graph), nodes_(nodes) {
    joints_.places.resize(graph.values.size());
    joints_.cuts.resize(graph.values.size());
    joints_.overs.resize(graph.values.size());
    last_reader_.assign(graph.values.size(), -1);
    maker_.assign(graph.values.size(), -1);
    copes_.assign(graph.values.size(), true);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) add_node(i);
    for (const ValueId v : graph.outputs) last_reader_[v] = INT32_MAX;
  }

  // From the last node to the first, so that a Concat whose output is joined on finds its place.
  Joints run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) find_view(i);
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      if (is_joint(graph_.nodes[i], "Concat", kPitchedInputs | kPitchedOutputs, nodes_[i])) join(graph_.nodes[i]);
    }
    return std::move(joints_);
  }

 private:
  // Some channels of a value.
  struct Range {
    ValueId value = kNoValue;
    std::int64_t first = 0, channels = 0;
  };

  const Graph& graph_;
  std::span<const JointNode> nodes_;
  Joints joints_;
  std::vector<std::int32_t> maker_;   // per value: the node whose kernel writes it, or -1
  std::vector<std::int32_t> last_reader_;  // per value; INT32_MAX for graph outputs
  std::vector<bool> copes_;           // per value: who reads it channels last copes with a pitch

  void add_node(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const JointNode& n = nodes_[i];
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) maker_[v] = n.computed_by >= 0 ? n.computed_by : static_cast<std::int32_t>(i);
    }
    for (const ValueId v : node.inputs) {
      if (v != kNoValue) last_reader_[v] = static_cast<std::int32_t>(i);
    }
    if (n.computed_by >= 0) return;
    for (std::size_t k = 0; k < node.inputs.size() && k < n.layouts.size(); ++k) {
      const std::uint8_t wanted = k == 0 ? kPitchedInput : kPitchedInputs;
      if (node.inputs[k] != kNoValue && n.layouts[k] == Layout::kChannelsLast && (n.pitched & wanted) != wanted) copes_[node.inputs[k]] = false;
    }
    if (n.residual != kNoValue && (n.pitched & kPitchedResidual) == 0) copes_[n.residual] = false;
  }

  // -1 where it is not known.
  std::int64_t channels_of(ValueId v) const {
    const Value& value = graph_.values[v];
    return v != kNoValue && value.has_shape && value.shape.rank() >= 3 && value.shape[1] > 0 ? value.shape[1] : -1;
  }

  static bool is_joint(const Node& node, const char* op, int wanted, const JointNode& n) {
    return node.op_type == op && node.domain.empty() && node.epilogue.empty() && (n.pitched & wanted) == wanted && !n.layouts.empty() &&
           n.layouts[0] == Layout::kChannelsLast;
  }

  void find_view(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const JointNode& n = nodes_[i];
    if (is_joint(node, "Split", kPitchedInput, n)) {
      std::int64_t first = 0;
      for (const ValueId v : node.outputs) {
        if (v == kNoValue || channels_of(v) < 0 || !copes_[v]) return;
        first += channels_of(v);
      }
      if (first != channels_of(node.inputs[0])) return;
      first = 0;
      for (const ValueId v : node.outputs) {
        joints_.cuts[v] = {node.inputs[0], first, channels_of(v), channels_of(node.inputs[0])};
        first += channels_of(v);
      }
    } else if (is_joint(node, "Slice", kPitchedInput, n) && channels_of(node.outputs[0]) > 0 && copes_[node.outputs[0]]) {
      const std::int64_t first = first_channel(node);
      if (first >= 0) joints_.cuts[node.outputs[0]] = {node.inputs[0], first, channels_of(node.outputs[0]), channels_of(node.inputs[0])};
    }
  }

  // Of a Slice over channels alone; -1 where that is not known.
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
    for (const Place* cut = &joints_.cuts[v]; cut->whole != kNoValue; cut = &joints_.cuts[r.value]) {
      r.first += cut->first;
      r.value = cut->whole;
    }
    return r;
  }

  bool may_be_placed(ValueId v) const {
    const std::int32_t maker = maker_[v];
    if (maker < 0 || joints_.places[v].whole != kNoValue || !copes_[v]) return false;
    const JointNode& n = nodes_[static_cast<std::size_t>(maker)];
    return (n.pitched & kPitchedOutputs) != 0 && !n.layouts.empty() && n.layouts.back() == Layout::kChannelsLast;
  }

  void join(const Node& node) {
    const ValueId whole = node.outputs[0];
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
    if (channels_of(whole) != sum || maker_[whole] < 0) return;
    Place place = joints_.places[whole];
    if (place.whole == kNoValue && copes_[whole]) place = joints_.places[whole] = common_place(ranges, sum);
    if (place.whole == kNoValue) {
      place = {whole, 0, sum, sum};
      joints_.overs[whole] = over(ranges, sum);
    }
    std::int64_t first = place.first;
    for (const Range& r : ranges) {
      const bool is_all = r.first == 0 && r.channels == channels_of(r.value);
      if (is_all && may_be_placed(r.value)) joints_.places[r.value] = {place.whole, first, r.channels, place.pitch};
      first += r.channels;
    }
  }

  // Of two ranges, one of channels where they lie in a value as wide as both.
  Over over(std::span<const Range> ranges, std::int64_t sum) const {
    if (ranges.size() != 2) return {};
    const bool is_second = ranges[0].first == 0 && ranges[0].channels == channels_of(ranges[0].value);  // which stays
    const Range& stays = ranges[is_second ? 1 : 0];
    const std::int64_t first = is_second ? ranges[0].channels : 0;  // of what stays
    if (stays.first != first || channels_of(stays.value) != sum || maker_[stays.value] < 0) return {};
    Over o = {stays.value, last_reader_[stays.value]};
    for (std::size_t i = 0; i < joints_.cuts.size(); ++i) {
      const auto v = static_cast<ValueId>(i);
      if (joints_.cuts[i].whole == kNoValue) continue;
      const Range r = origin(v);
      const bool is_kept = r.first >= first && r.first + r.channels <= first + stays.channels;
      if (r.value == stays.value && !is_kept) o.last = std::max(o.last, last_reader_[v]);
    }
    return o;
  }

  // Where all of them have places already, side by side: those of a Concat that begins with this one.
  Place common_place(std::span<const Range> ranges, std::int64_t sum) const {
    const Place begin = joints_.places[ranges[0].value];
    if (begin.whole == kNoValue) return {};
    std::int64_t first = begin.first;
    for (const Range& r : ranges) {
      const Place& p = joints_.places[r.value];
      if (p.whole != begin.whole || p.first != first || r.first != 0 || r.channels != p.channels) return {};
      first += r.channels;
    }
    return {begin.whole, begin.first, sum, begin.pitch};
  }
};

class ChannelViews final : public LoweringPass {
 public:
  explicit ChannelViews(Joints joints) : joints_(std::move(joints)) {}

  bool elide(PlanRoots& p, std::int32_t node) const override {
    return p.c_.nodes[node].pitched != 0 && (join(p, node) || cut_out(p, node));
  }

  // Its place in the value that v is joined to, or where others have been joined.
  std::int32_t place(PlanRoots& p, ValueId v, std::int32_t node) const override {
    const Place& place = joints_.places[v];
    if (place.whole == kNoValue) {
      const std::int32_t r = p.s_.whole_of[v];
      return r >= 0 && p.s_.roots[r].bytes == p.s_.descs[v].size_bytes() ? r : -1;
    }
    const TensorDesc& d = p.s_.descs[v];
    if (d.shape.elements() == 0 || d.shape[1] != place.channels) return -1;
    const std::size_t bytes = checked_mul(d.size_bytes() / static_cast<std::size_t>(place.channels), static_cast<std::size_t>(place.pitch));
    std::int32_t whole = p.s_.whole_of[place.whole];
    if (whole < 0) {
      if (bytes > p.limits_.tensor_bytes) return -1;
      whole = root_to_write_over(p, joints_.overs[place.whole], bytes, node);
      if (whole < 0) {
        whole = p.add_arena_root(place.whole, 0, p.now());
        p.s_.roots[whole].bytes = bytes;
      }
      p.s_.whole_of[place.whole] = whole;
    }
    return p.s_.roots[whole].bytes == bytes ? add_view(p, v, whole, place) : -1;
  }

 private:
  const Joints joints_;

  static std::int32_t add_view(PlanRoots& p, ValueId v, std::int32_t of, const Place& place) {
    return p.add_view_root(v, of, place.first, place.channels, place.pitch);
  }

  // The root of a value that may be written over, as nobody reads its other channels from the node on; -1: there is none.
  static std::int32_t root_to_write_over(PlanRoots& p, const Over& over, std::size_t bytes, std::int32_t node) {
    if (over.value == kNoValue || over.last >= node || PlanRoots::same_in_all_layouts(p.s_.descs[over.value].shape)) return -1;
    const std::int32_t r = p.root(over.value, 0, Layout::kChannelsLast);
    if (r < 0 || p.s_.roots[r].source != Source::kArena || p.s_.roots[r].whole >= 0 || p.s_.roots[r].bytes != bytes) return -1;
    return std::exchange(p.s_.roots[r].written_over, true) ? -1 : r;
  }

  // Whether all that the node, a Concat, joins is in its place already.
  bool join(PlanRoots& p, std::int32_t index) const {
    const Node& node = p.graph_.nodes[index];
    const ValueId out = node.outputs[0];
    if (node.op_type != "Concat") return false;
    const std::int32_t to = place(p, out, index);
    if (to < 0) return false;
    const std::int32_t whole = p.s_.roots[to].whole >= 0 ? p.s_.roots[to].whole : to;
    std::size_t at = p.s_.roots[to].skip;
    for (const ValueId v : node.inputs) {
      const std::int32_t r = p.root(v, 0, Layout::kChannelsLast);
      if (r < 0 || p.s_.roots[r].whole != whole || p.s_.roots[r].skip != at) return false;
      at += static_cast<std::size_t>(p.s_.descs[v].shape[1]) * dtype_size(p.s_.descs[v].dtype);
    }
    p.root(out, 0, Layout::kChannelsLast) = to;
    p.s_.roots[whole].last_user = std::max(p.s_.roots[whole].last_user, p.c_.last_user[out]);
    return true;
  }

  // Whether what the node, a Split or Slice, cuts out stays where it lies.
  bool cut_out(PlanRoots& p, std::int32_t index) const {
    const Node& node = p.graph_.nodes[index];
    for (const ValueId v : node.outputs) {
      const Place& cut = v == kNoValue ? Place{} : joints_.cuts[v];
      if (cut.whole == kNoValue || p.s_.descs[v].shape.elements() == 0) return false;
      if (p.s_.descs[v].shape[1] != cut.channels || p.s_.descs[cut.whole].shape[1] != cut.pitch) return false;
    }
    const std::int32_t from = p.need(node.inputs[0], 0, Layout::kChannelsLast, true);
    if (p.s_.roots[from].source != Source::kArena) return false;
    for (const ValueId v : node.outputs) p.root(v, 0, Layout::kChannelsLast) = add_view(p, v, from, joints_.cuts[v]);
    return true;
  }
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  std::vector<JointNode> nodes(c.nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const CompiledNode& n = c.nodes[i];
    nodes[i].layouts = n.layouts;
    nodes[i].pitched = n.pitched;
    if (const FusedOperand* r = n.fused_as(FusedOperand::Role::kResidual)) nodes[i].residual = r->value;
    for (const FusedOperand& f : n.fused) nodes[static_cast<std::size_t>(f.node)].computed_by = static_cast<std::int32_t>(i);
  }
  Joints joints = JointFinder(c.graph(), nodes).run();
  bool any = false;
  c.viewed.resize(c.graph().values.size());
  for (std::size_t v = 0; v < joints.places.size(); ++v) {
    c.viewed[v] = joints.places[v].whole != kNoValue;
    any |= c.viewed[v] || joints.cuts[v].whole != kNoValue || joints.overs[v].value != kNoValue;
  }
  return any ? std::make_unique<ChannelViews>(std::move(joints)) : nullptr;
}

}  // namespace

extern const LoweringPassInfo channel_views_pass;
const LoweringPassInfo channel_views_pass = {"channel_views", "joins and splits channels without a copy", true, find};

}  // namespace evn
