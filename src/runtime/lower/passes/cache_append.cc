// Key and value caches are appended to in place: where a run's state (runtime/state) holds an input in pages, the Concat that puts
// new rows behind it writes these rows into the pages, and copies nothing else; and GroupQueryAttention, which appends by itself,
// does so there. Casts between float32 and the 16 bits of such an input are left out: who reads or writes pages converts.
#include "runtime/lower/passes/cache_append.h"

#include <algorithm>

#include "base/cancel.h"
#include "ops/concat.h"
#include "ops/infra/index.h"
#include "runtime/lower/plan_roots.h"

namespace evn {

extern const LoweringPassInfo cache_append_pass;

namespace {

// The axis of a Concat that appends to an input of the graph, where its output is one of the graph; -1: it is none such.
int axis_of(const CompiledGraph& c, std::size_t index) {
  const Graph& graph = c.graph();
  const Node& node = graph.nodes[index];
  const CompiledNode& n = c.nodes[index];
  if (node.op_type != "Concat" || !node.domain.empty() || node.inputs.size() != 2 || !node.epilogue.empty()) return -1;
  if (n.mode != NodeMode::kKernel || n.slot != 0 || node.region >= 0) return -1;
  const Value& out = graph.values[node.outputs[0]];
  if (!out.has_shape || out.dtype == DType::kString || is_sub_byte(out.dtype)) return -1;
  const ValueId past = node.inputs[0];
  if (past == kNoValue || c.input_of[past] < 0 || c.last_user[node.outputs[0]] != INT32_MAX || node.inputs[1] == past) return -1;
  if (std::any_of(n.layouts.begin(), n.layouts.end(), [](Layout layout) { return layout != Layout::kPlain; })) return -1;
  return normalize_axis(attr_int(node, ConcatAttr::kAxis), out.shape.rank());
}

// Which of GroupQueryAttention's inputs is the past of output 1 or 2.
constexpr std::size_t kPastOfOutput = 2;
constexpr int kRowAxis = 2;

bool is_group_query(const Node& node) { return node.op_type == "GroupQueryAttention" && node.domain == "com.microsoft"; }

// Whether the node appends to pages of its past caches by itself.
bool appends_by_itself(const CompiledGraph& c, std::size_t index) {
  const Node& node = c.graph().nodes[index];
  const CompiledNode& n = c.nodes[index];
  return is_group_query(node) && n.mode == NodeMode::kKernel && n.slot == 0 && node.region < 0 && n.kernel != nullptr &&
         n.kernel->fusion.paged_inputs != nullptr;
}

// Whether the node, of the CPU, casts from 16 bits to float32 or back.
bool is_cast(const CompiledGraph& c, std::size_t index) {
  const Node& node = c.graph().nodes[index];
  const CompiledNode& n = c.nodes[index];
  if (node.op_type != "Cast" || !node.domain.empty() || n.mode != NodeMode::kKernel || n.slot != 0 || node.region >= 0)
    return false;
  if (!node.epilogue.empty()) return false;
  const DType from = c.graph().values[node.inputs[0]].dtype, to = c.graph().values[node.outputs[0]].dtype;
  return (is_16bit_float(from) && to == DType::kFloat32) || (from == DType::kFloat32 && is_16bit_float(to));
}

// What v, of `dtype`, is cast from; v itself where it is not cast.
ValueId before_cast(const CompiledGraph& c, std::span<const std::int32_t> makers, ValueId v, DType dtype) {
  const std::int32_t maker = v != kNoValue ? makers[static_cast<std::size_t>(v)] : -1;
  if (maker < 0 || !is_cast(c, static_cast<std::size_t>(maker)) || c.graph().values[v].dtype != dtype) return v;
  return c.graph().nodes[maker].inputs[0];
}

class CacheAppend final : public LoweringPass {
 public:
  bool elide(PlanWork& p, PlanRoots& roots, std::int32_t index) const override {
    const Node& node = p.graph.nodes[index];
    if (is_cast(p.c, static_cast<std::size_t>(index))) return elide_cast(p, node.inputs[0], node.outputs[0]);
    const ValueId past = node.inputs[0], made = node.outputs[0];
    if (node.op_type != "Concat") return false;
    const std::int32_t paged = p.state.storage.root(past, Representation::paged());
    const std::int32_t j = p.state.output_of[made];
    if (paged < 0 || j < 0 || !is_paged_slot(p.plan->signature->output_slots[j])) return false;
    const int axis = p.state.roots[paged].paged_axis;
    EVN_CHECK(axis_of(p.c, static_cast<std::size_t>(index)) == axis);
    const std::int64_t rows = p.state.descs[past].shape[axis];
    if (p.state.descs[node.inputs[1]].shape.elements() > 0) {
      roots.add_append(node.inputs[1], paged, rows);
      p.state.storage.root(made, Representation::paged()) = paged;
    } else {
      roots.add_extend(made, paged, rows);  // rows without elements count, too
    }
    return true;
  }

  bool finish(PlanWork& p, PlanRoots& roots, PlanStep* step, std::span<const std::int32_t> inputs, std::int32_t) const override {
    if (step->node < 0 || step->desc.fusion.paged == 0) return false;
    const Node& node = p.graph.nodes[step->node];
    if (!is_group_query(node)) return false;
    for (std::size_t k = 1; k < 3 && k < node.outputs.size(); ++k) {
      if ((step->desc.fusion.paged >> (kPastOfOutput + k) & 1) == 0) continue;
      roots.add_extend(node.outputs[k], inputs[kPastOfOutput + k], step->desc.inputs[kPastOfOutput + k].shape[kRowAxis]);
    }
    return true;
  }

 private:
  static bool elide_cast(PlanWork& p, ValueId from, ValueId to) {
    const std::int32_t paged = p.state.storage.root(from, Representation::paged());
    if (paged < 0) return false;
    const DType stored = p.state.descs[p.graph.inputs[static_cast<std::size_t>(p.state.roots[paged].index)]].dtype;
    if (p.state.descs[from].dtype != stored && p.state.descs[to].dtype != stored) return false;
    p.state.storage.root(to, Representation::paged()) = paged;
    return true;
  }
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    if (axis_of(c, i) >= 0 || appends_by_itself(c, i)) return std::make_unique<CacheAppend>();
  }
  return nullptr;
}

}  // namespace

std::vector<std::int32_t> makers_of(const Graph& graph) {
  std::vector<std::int32_t> makers(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    for (const ValueId v : graph.nodes[i].outputs) {
      cancellation_point();
      if (v != kNoValue) makers[static_cast<std::size_t>(v)] = static_cast<std::int32_t>(i);
    }
  }
  return makers;
}

int append_axis(const CompiledGraph& c, std::span<const std::int32_t> makers, ValueId output, ValueId input, const char** why) {
  const Graph& graph = c.graph();
  const auto is_active = [](const ActivePass& p) { return lowering_passes()[p.number] == &cache_append_pass; };
  const auto fail_with = [&](const char* reason) { return *why = reason, -1; };
  // In 16 bits, casts may stand on both sides of what appends in float32.
  const DType dtype = graph.values[input].dtype;
  ValueId made = output;
  if (is_16bit_float(dtype)) made = before_cast(c, makers, output, dtype);
  const bool is_cast_back = made != output;
  if (makers[static_cast<std::size_t>(made)] < 0) return fail_with("no node makes the output");
  const auto maker = static_cast<std::size_t>(makers[static_cast<std::size_t>(made)]);
  const Node& node = graph.nodes[maker];
  const auto position = static_cast<std::size_t>(std::find(node.outputs.begin(), node.outputs.end(), made) - node.outputs.begin());
  const auto appends_to = [&](std::size_t i) {
    const ValueId past = node.inputs[i];
    return (is_cast_back ? before_cast(c, makers, past, DType::kFloat32) : past) == input;
  };
  int axis = -1;
  if (is_group_query(node) && position > 0 && kPastOfOutput + position < node.inputs.size() &&
      appends_to(kPastOfOutput + position)) {
    if (!appends_by_itself(c, maker)) return fail_with("the GroupQueryAttention has no kernel that appends to pages");
    axis = kRowAxis;
  } else if (node.op_type == "Concat" && made == output && node.inputs[0] == input) {
    if (c.nodes[maker].slot != 0) return fail_with("the Concat does not run on the CPU");
    axis = axis_of(c, maker);
    if (axis < 0) return fail_with("the Concat has more operands than two, a branch, or another layout");
  } else {
    return fail_with("the output is not made by a Concat of the input and what is new");
  }
  if (std::none_of(c.passes.begin(), c.passes.end(), is_active)) return fail_with("the pass cache_append is switched off");
  if (c.needed[input]) return fail_with("shapes depend on the elements of the input");
  return axis;
}

const LoweringPassInfo cache_append_pass = {"cache_append", "appends to the pages of a state in place of copying a cache", true,
                                            find};

}  // namespace evn
