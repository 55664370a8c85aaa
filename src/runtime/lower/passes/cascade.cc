// Cascade: convolutions that follow each other run as one step, some lines of an image at a time (device/cascade.h).
#include "runtime/lower/passes/sum_epilogue.h"

#include "base/cancel.h"

namespace evn {
namespace {

class CascadePass final : public LoweringPass {
 public:
  CascadePass(const Cascades& cascades, std::vector<std::int32_t> next) : cascades_(cascades), next_(std::move(next)) {}

  bool extend(PlanWork& p, StepFormer& f) const override {
    StepDraft& d = f.draft();
    if (next_[static_cast<std::size_t>(d.node)] < 0) return false;
    std::int32_t last = d.node;
    d.nodes.push_back(stage_desc(p, d, last, 0));
    for (std::int32_t next = next_of(last); d.nodes.size() < kMaxStages && f.is_passed(next) && cascades_.joins(d.nodes);
         next = next_of(last)) {
      const FusedOperand* const residual = p.c.nodes[next].fused_as(FusedOperand::Role::kResidual);
      if (residual != nullptr && residual->maker >= d.node) break;  // it is made between the stages
      last = next;
      const std::size_t first = d.descs.size() - 1;
      d.operands.emplace_back();  // what lies between two stages
      f.add_descs(last, 1);
      f.add_operands(last, 1, 0, p.c.nodes[last].packed, p.c.nodes[last].views);
      d.nodes.push_back(stage_desc(p, d, last, first));
      f.absorb(last, d.descs.back());
    }
    if (d.nodes.size() == 1) {
      d.nodes.clear();
      return false;
    }
    OpDesc& back = d.nodes.back();
    add_fused_operands(p, f, last, &back, back.node->inputs.size(), p.c.nodes[last].views);
    finish_desc(p, d);
    return true;
  }

 private:
  const Cascades& cascades_;
  const std::vector<std::int32_t> next_;  // per node: the one with which it may run; -1: none

  std::int32_t next_of(std::int32_t node) const { return next_[static_cast<std::size_t>(node)]; }

  // The desc of a stage: its inputs begin at `first` of the draft's descs.
  static OpDesc stage_desc(const PlanWork& p, const StepDraft& draft, std::int32_t index, std::size_t first) {
    const CompiledNode& n = p.c.nodes[index];
    const std::span<const TensorDesc> all = std::span<const TensorDesc>(draft.descs).subspan(first);
    OpDesc d{&p.graph.nodes[index], all.first(all.size() - 1), all.last(1), n.constants};
    d.layouts = n.layouts.data();
    d.threads = p.threads_of(0);
    n.set_choices(&d);
    d.precision = n.kernel->operands;  // a stage has one kernel
    return d;
  }

  void finish_desc(const PlanWork& p, StepDraft& d) const {
    const OpDesc& front = d.nodes.front();
    const OpDesc& back = d.nodes.back();
    d.kernel = &cascades_.kernel;
    d.views = kViewOutputs;
    d.desc = {};
    d.desc.node = front.node;
    d.desc.fusion.tail = back.fusion.tail != nullptr ? back.fusion.tail : back.node;
    d.desc.inputs = {front.inputs.data(), back.outputs.data()};
    d.desc.outputs = back.outputs;
    d.desc.nodes = d.nodes;
    d.desc.strict = front.strict;  // all stages are, or none
    d.desc.small = front.small;    // all stages are, or none
    d.desc.threads = p.threads_of(0);
  }
};

// Layout in which a node with one output makes it, and in which a node reads its input 0.
Layout made_layout(const CompiledNode& n) { return n.layouts.empty() ? Layout::kPlain : n.layouts.back(); }
Layout read_layout(const CompiledNode& n) { return n.layouts.empty() ? Layout::kPlain : n.layouts.front(); }

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  const Cascades* const cascades = c.devices[0]->cascades();
  if (cascades == nullptr) return nullptr;
  std::vector<bool> may_be_stage(c.nodes.size());
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const CompiledNode& n = c.nodes[i];
    if (n.mode != NodeMode::kKernel || n.slot != 0 || n.choose_late || n.has_planned_input) continue;
    if (n.fused_as(FusedOperand::Role::kBias) != nullptr) continue;
    const std::vector<TensorDesc> descs = descs_of(c.graph(), c.graph().nodes[i]);
    may_be_stage[i] = cascades->takes(*n.kernel, desc_of(c.graph().nodes[i], n, descs));
  }
  std::vector<std::int32_t> next(c.nodes.size(), -1);
  std::size_t most_args = 0;  // of a stage
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const std::int32_t reader = may_be_stage[i] ? only_reader(c, static_cast<std::int32_t>(i)) : -1;
    const auto r = static_cast<std::size_t>(reader);
    if (reader < 0 || !may_be_stage[r] || c.nodes[r].strict != c.nodes[i].strict) continue;
    // Lines between two stages keep their layout. A stage that is a first layer alone reads a whole image in plain order.
    if (read_layout(c.nodes[r]) != made_layout(c.nodes[i]) || c.nodes[r].kernel->fusion.stages == kFirstLayerStage) continue;
    next[i] = reader;
    for (const std::size_t stage : {i, r})
      most_args = std::max(most_args, c.graph().nodes[stage].inputs.size() + c.nodes[stage].fused.size() + 1);
  }
  if (most_args == 0) return nullptr;
  c.most_step_args = std::max(c.most_step_args, kMaxStages * most_args);
  return std::make_unique<CascadePass>(*cascades, std::move(next));
}

}  // namespace

extern const LoweringPassInfo cascade_pass;
const LoweringPassInfo cascade_pass = {
    "cascade", "runs convolutions that follow each other as one step, some lines of the image at a time", false, find};

}  // namespace evn
