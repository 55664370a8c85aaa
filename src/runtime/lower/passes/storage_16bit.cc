// 16-bit activation storage: values are stored as bfloat16 or float16 that products of that type alone read, as the operand that
// they would round, or, of bfloat16, to add it to what they sum.
#include "runtime/lower/plan_roots.h"

#include "base/cancel.h"

namespace evn {
namespace {

// The kernel of a node of which that is known when the session is made, on the host; else nullptr.
const Kernel* settled_kernel(const CompiledNode& n) {
  return n.mode == NodeMode::kKernel && n.slot == 0 && !n.choose_late ? n.kernel : nullptr;
}

Layout input_layout(const CompiledNode& n) { return n.layouts.empty() ? Layout::kPlain : n.layouts.front(); }
Layout output_layout(const CompiledNode& n, const Node& node) {
  return n.layouts.empty() ? Layout::kPlain : n.layouts[n.layouts.size() - node.outputs.size()];
}

// The type in which a kernel stores an output in 16 bits: that of its operands; bfloat16 where these are float32.
Precision written_as(const Kernel& kernel) {
  return kernel.operands == Precision::kFloat32 ? Precision::kBfloat16 : kernel.operands;
}

// What the node's step writes where the sums behind it are computed with it.
ValueId written(const CompiledGraph& c, std::size_t i) {
  const CompiledNode& n = c.nodes[i];
  const std::int32_t tail = n.fused.empty() ? -1 : n.fused.back().node;
  return c.graph().nodes[tail >= 0 ? static_cast<std::size_t>(tail) : i].outputs[0];
}

// Whether two values have one shape in each run.
bool same_shape(const Value& a, const Value& b) {
  if (!a.has_shape || !b.has_shape || a.shape.rank() != b.shape.rank()) return false;
  for (int i = 0; i < a.shape.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (a.shape[i] != b.shape[i]) return false;
    if (a.shape[i] >= 0) continue;
    if (at >= a.symbols.size() || at >= b.symbols.size() || a.symbols[at].empty() || a.symbols[at] != b.symbols[at]) return false;
  }
  return true;
}

class Finder {
 public:
  explicit Finder(const CompiledGraph& c) : c_(c), graph_(c.graph()), takes_(c.nodes.size(), -1) {
    for (std::size_t i = 0; i < c.nodes.size(); ++i) {
      cancellation_point(kNodeWork / 4);
      if (const FusedOperand* r = residual_of(i)) takes_[static_cast<std::size_t>(r->node)] = static_cast<std::int32_t>(i);
    }
  }

  // Whether each node that reads the value would round it to this type anyway, or adds it as a residual.
  bool is_read_as_16bit(ValueId v, Precision as, Layout layout) const {
    const std::uint32_t begin = c_.reader_begin[v], end = c_.reader_begin[static_cast<std::size_t>(v) + 1];
    for (std::uint32_t i = begin; i < end; ++i) {
      const auto reader = static_cast<std::size_t>(c_.readers[i]);
      const std::int32_t by = takes_[reader];  // a sum that is computed with another node, which is a reader as well
      const bool is_sum = by >= 0 && residual_of(static_cast<std::size_t>(by))->value == v;
      if (!is_sum && !reads_16bit(reader, v, as, layout)) return false;
    }
    return begin != end;
  }

 private:
  const FusedOperand* residual_of(std::size_t node) const { return c_.nodes[node].fused_as(FusedOperand::Role::kResidual); }

  bool reads_16bit(std::size_t reader, ValueId v, Precision as, Layout layout) const {
    const CompiledNode& n = c_.nodes[reader];
    const Node& node = graph_.nodes[reader];
    const Kernel* const kernel = settled_kernel(n);
    if (kernel == nullptr || kernel->operands != as) return false;
    int uses = 0;
    for (const ValueId input : node.inputs) uses += input == v ? 1 : 0;
    if (const FusedOperand* r = residual_of(reader); r != nullptr && r->value == v) {
      // Only where it is sure to be computed with the node.
      return uses == 0 && (kernel->fusion.storage_16bit & k16BitResidual) != 0 && output_layout(n, node) == layout &&
             same_shape(graph_.values[v], graph_.values[node.outputs[0]]);
    }
    return uses == 1 && node.inputs[0] == v && (kernel->fusion.storage_16bit & k16BitInput) != 0 && input_layout(n) == layout;
  }

  const CompiledGraph& c_;
  const Graph& graph_;
  std::vector<std::int32_t> takes_;  // per node, if it is a residual's sum: which node is computed with it; else -1
};

class Storage16Bit final : public LoweringPass {
 public:
  // Sets Fusion::stored_16bit.
  bool finish(PlanWork& p, PlanRoots&, PlanStep* step, std::span<const std::int32_t> inputs, std::int32_t placed) const override {
    // What a cascade adds to its last stage's sums is numbered among that stage's own inputs.
    const std::span<const OpDesc> stages = step->desc.nodes;
    int residual = step->desc.fusion.residual;
    if (!stages.empty() && stages.back().has_residual())
      residual = static_cast<int>(stages.back().inputs.data() - step->desc.inputs.data()) + stages.back().fusion.residual;
    for (std::size_t k = 0; k < inputs.size() && k < 31; ++k) {
      if (inputs[k] < 0 || !p.state.roots[inputs[k]].is_16bit) continue;
      step->desc.fusion.stored_16bit |= 1u << k;
      const std::uint8_t needed = static_cast<int>(k) == residual ? k16BitResidual : k == 0 ? k16BitInput : 0;
      if ((step->kernel->fusion.storage_16bit & needed) ==
          0) {  // inputs without elements have made other kernels run than those that were chosen
        fail(EVN_ERROR_UNSUPPORTED, "a value that is kept as bfloat16 is read as float32: precision fp32 can run this");
      }
    }
    const Node& last = step->desc.fusion.tail != nullptr ? *step->desc.fusion.tail : p.graph.nodes[step->node];
    const bool may =
        !last.outputs.empty() && last.outputs[0] != kNoValue && p.c.stored_16bit[static_cast<std::size_t>(last.outputs[0])];
    if (may && placed < 0 && (step->kernel->fusion.storage_16bit & k16BitOutput) != 0)
      step->desc.fusion.stored_16bit |= Fusion::kOutputStored16Bit;
    return step->desc.fusion.stored_16bit != 0;
  }
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  std::vector<bool>& stored_16bit = c.stored_16bit;
  const Finder finder(c);
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const Kernel* const kernel = settled_kernel(c.nodes[i]);
    if (kernel == nullptr || (kernel->fusion.storage_16bit & k16BitOutput) == 0) continue;
    const ValueId v = written(c, i);
    if (v == kNoValue || c.last_user[v] == INT32_MAX || c.needed[v] || (!c.viewed.empty() && c.viewed[v])) continue;
    if (!finder.is_read_as_16bit(v, written_as(*kernel), output_layout(c.nodes[i], c.graph().nodes[i]))) continue;
    stored_16bit.resize(c.graph().values.size());
    stored_16bit[v] = true;
  }
  return stored_16bit.empty() ? nullptr : std::make_unique<Storage16Bit>();
}

}  // namespace

extern const LoweringPassInfo storage_16bit_pass;
const LoweringPassInfo storage_16bit_pass = {"storage_16bit", "stores what 16-bit products alone read in 16 bits", true, find};

}  // namespace evn
