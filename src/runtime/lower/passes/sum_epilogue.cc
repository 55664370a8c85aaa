// Sum epilogue: an Add of a bias or a residual, or a QLinearAdd of a residual, is computed where the kernel of the node before it
// writes its output (KernelFusion::epilogue).
#include "runtime/lower/passes/sum_epilogue.h"

#include <cmath>

#include "base/cancel.h"
#include "ops/gemm.h"

namespace evn {

extern const LoweringPassInfo sum_epilogue_pass;

namespace {

using Role = FusedOperand::Role;

// Inputs of QLinearAdd: each operand is followed by its scale and zero point.
enum : std::size_t { kA = 0, kB = 3, kY = 6 };
constexpr float kLargestScale = 1e6f;  // up to which no sum of bytes comes near 2^31

class Finder {
 public:
  explicit Finder(CompiledGraph& c)
      : c_(c),
        graph_(c.graph()),
        uses_(graph_.values.size(), 0),
        maker_(graph_.values.size(), -1),
        reader_(graph_.values.size(), -1) {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId v : graph_.nodes[i].inputs) {
        if (v == kNoValue) continue;
        ++uses_[v];
        reader_[v] = static_cast<std::int32_t>(i);
      }
      for (const ValueId v : graph_.nodes[i].outputs) {
        if (v != kNoValue) maker_[v] = static_cast<std::int32_t>(i);
      }
    }
    for (const ValueId v : graph_.outputs) ++uses_[v];
  }

  // Notes the sums of a node whose kernel takes some. Whether there are any.
  bool find(std::int32_t node) {
    first_ = node;
    std::vector<FusedOperand>& fused = c_.nodes[node].fused;
    const std::uint8_t fuses = c_.nodes[node].kernel->fusion.epilogue;
    std::int32_t at = node;
    if ((fuses & kFusesBias) != 0 && graph_.nodes[node].inputs.size() <= 2) {
      FusedOperand sum = next_sum(at);
      if (sum.node >= 0 && is_bias(graph_.nodes[node], sum.value)) {
        sum.role = Role::kBias;
        at = sum.node;
        fused.push_back(sum);
      }
    }
    if (const FusedOperand sum = (fuses & kFusesResidual) != 0 ? next_sum(at) : FusedOperand{}; is_there_before(sum))
      fused.push_back(sum);
    if (const FusedOperand sum = (fuses & kFusesByteResidual) != 0 ? next_byte_sum(node) : FusedOperand{}; is_there_before(sum))
      fused.push_back(sum);
    return !fused.empty();
  }

 private:
  CompiledGraph& c_;
  const Graph& graph_;
  std::vector<std::int32_t> uses_;    // per value: inputs that read it, and outputs of the graph
  std::vector<std::int32_t> maker_;   // per value
  std::vector<std::int32_t> reader_;  // per value: the last node that reads it
  std::int32_t first_ = -1;           // the node that takes the sums

  // What is added must be there when the node runs.
  bool is_there_before(const FusedOperand& sum) const {
    return sum.node >= 0 && graph_.values[sum.value].constant == nullptr && maker_[sum.value] < first_;
  }

  // The node that alone reads what node `at` makes, and runs beside the first one; -1: there is none.
  std::int32_t next_node(std::int32_t at) const {
    const Node& node = graph_.nodes[at];
    if (!node.epilogue.empty() || node.outputs.size() != 1 || uses_[node.outputs[0]] != 1) return -1;
    const std::int32_t user = reader_[node.outputs[0]];
    return user >= 0 && runs_beside(user) && graph_.nodes[user].region == graph_.nodes[first_].region ? user : -1;
  }

  FusedOperand with_operand(std::int32_t sum, ValueId operand) const {
    if (!graph_.values[operand].has_shape || !graph_.values[graph_.nodes[sum].outputs[0]].has_shape) return {};
    return {Role::kResidual, sum, operand, maker_[operand], false, {}};
  }

  FusedOperand next_sum(std::int32_t at) const {
    const std::int32_t user = next_node(at);
    if (user < 0) return {};
    const Node& add = graph_.nodes[user];
    if (add.op_type != "Add" || !add.domain.empty() || add.inputs.size() != 2) return {};
    const ValueId other = add.inputs[0] == graph_.nodes[at].outputs[0] ? add.inputs[1] : add.inputs[0];
    return graph_.values[other].dtype == DType::kFloat32 ? with_operand(user, other) : FusedOperand{};
  }

  // A QLinearAdd of two operands and a result of one dtype, whose scales and zero points are constants.
  FusedOperand next_byte_sum(std::int32_t at) const {
    const std::int32_t user = next_node(at);
    if (user < 0) return {};
    const Node& add = graph_.nodes[user];
    if (add.op_type != "QLinearAdd" || add.domain != "com.microsoft" || add.inputs.size() <= kY) return {};
    const ValueId y = graph_.nodes[at].outputs[0];
    if (add.inputs[kA] != y && add.inputs[kB] != y) return {};
    const std::size_t x = add.inputs[kA] == y ? kA : kB, r = x == kA ? kB : kA;
    const ValueId other = add.inputs[r];
    const DType dtype = graph_.values[y].dtype;
    if (other == kNoValue || graph_.values[other].dtype != dtype || graph_.values[add.outputs[0]].dtype != dtype) return {};
    bool known = true;
    const auto constant = [&](std::size_t input) {
      const Weight* w = add.inputs[input] == kNoValue ? nullptr : graph_.values[add.inputs[input]].constant.get();
      return w != nullptr && w->desc.shape.elements() == 1 ? w : nullptr;
    };
    const auto scale_of = [&](std::size_t operand) {
      const std::size_t at_scale = operand == kY ? kY : operand + 1;
      const Weight* w = constant(at_scale);
      known &= w != nullptr && w->desc.dtype == DType::kFloat32;
      return known ? *w->as<float>() : 0.0f;
    };
    const auto zero_of = [&](std::size_t operand) {
      const std::size_t at_zero = operand == kY ? kY + 1 : operand + 2;
      if (at_zero >= add.inputs.size() || add.inputs[at_zero] == kNoValue) return 0;
      const Weight* w = constant(at_zero);
      known &= w != nullptr && w->desc.dtype == dtype;
      if (!known) return 0;
      return dtype == DType::kInt8 ? int{*w->as<std::int8_t>()} : int{*w->as<std::uint8_t>()};
    };
    const float y_scale = scale_of(kY);
    const ByteSum bytes{scale_of(x) / y_scale, scale_of(r) / y_scale, static_cast<float>(zero_of(kY)), zero_of(x), zero_of(r)};
    const auto is_usual = [](float scale) { return std::abs(scale) <= kLargestScale; };  // not of NaN
    if (!known || !is_usual(bytes.x_scale) || !is_usual(bytes.r_scale)) return {};
    FusedOperand sum = with_operand(user, other);
    sum.of_bytes = true;
    sum.bytes = bytes;
    return sum;
  }

  // Whether a constant has one element for each channel of a Conv, each column of a product.
  bool is_bias(const Node& node, ValueId v) const {
    const Weight* bias = graph_.values[v].constant.get();
    const Weight* weight =
        node.inputs.size() < 2 || node.inputs[1] == kNoValue ? nullptr : graph_.values[node.inputs[1]].constant.get();
    if (bias == nullptr || weight == nullptr || weight->desc.shape.rank() < 2) return false;
    const bool conv = node.op_type == "Conv";
    const Shape& w = weight->desc.shape;
    const Shape& b = bias->desc.shape;
    const int rank = graph_.values[node.outputs[0]].shape.rank();
    if (b.rank() > rank) return false;
    const bool transposed = node.op_type == "Gemm" && attr_int(node, GemmAttr::kTransB) != 0;
    const std::int64_t wanted = conv || transposed ? w[0] : w[w.rank() - 1];
    const int axis = b.rank() - (conv ? rank - 1 : 1);  // of b
    return axis >= 0 && b[axis] == wanted && b.elements() == wanted;
  }

  // Whether a kernel of the same device runs the node, and nothing strict is made fast.
  bool runs_beside(std::int32_t other) const {
    const CompiledNode& n = c_.nodes[other];
    const CompiledNode& first = c_.nodes[first_];
    return n.mode == NodeMode::kKernel && n.slot == first.slot && (first.strict || !n.strict);
  }
};

class SumEpilogue final : public LoweringPass {
 public:
  bool extend(PlanWork& p, StepFormer& f) const override {
    StepDraft& d = f.draft();
    return add_fused_operands(p, f, d.node, &d.desc, d.desc.node->inputs.size(), d.views);
  }
};

std::unique_ptr<LoweringPass> find(CompiledGraph& c) {
  Finder finder(c);
  bool any = false;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork / 4);
    const CompiledNode& n = c.nodes[i];
    if (n.mode == NodeMode::kKernel && n.kernel->fusion.epilogue != 0) any |= finder.find(static_cast<std::int32_t>(i));
  }
  return any ? std::make_unique<SumEpilogue>() : nullptr;
}

}  // namespace

bool add_fused_operands(PlanWork& p, StepFormer& f, std::int32_t node, OpDesc* desc, std::size_t at, std::uint8_t views) {
  StepDraft& d = f.draft();
  const std::size_t first = static_cast<std::size_t>(desc->inputs.data() - d.descs.data());  // of the desc's inputs, among all
  bool taken = false;
  for (const FusedOperand& sum : p.c.nodes[node].fused) {
    const TensorDesc& operand = p.state.descs[sum.value];
    const bool is_residual = sum.role == Role::kResidual;
    if (is_residual && (sum.maker >= d.node || operand.shape != desc->outputs[0].shape)) break;
    (is_residual ? desc->fusion.residual : desc->fusion.bias) = static_cast<int>(at);
    desc->fusion.tail = &p.graph.nodes[sum.node];
    desc->fusion.byte_sum = sum.byte_sum();
    d.descs[first + at] = operand;
    d.operands[first + at] = {sum.value, is_residual && (views & kViewResidual) != 0};
    f.absorb(sum.node, desc->outputs[0]);
    ++at;
    taken = true;
  }
  if (taken) d.passes |= lowering_pass_bit(sum_epilogue_pass);
  return taken;
}

const LoweringPassInfo sum_epilogue_pass = {
    "sum_epilogue", "adds a bias and a residual where the kernel before them writes its output", false, find};

}  // namespace evn
