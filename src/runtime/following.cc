#include "runtime/following.h"

#include "device/kernel.h"
#include "ops/gemm.h"

namespace evn {

FollowingSumFinder::FollowingSumFinder(const Graph& graph)
    : graph_(graph), uses_(graph.values.size(), 0), maker_(graph.values.size(), -1), reader_(graph.values.size(), -1) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].inputs) {
      if (v == kNoValue) continue;
      ++uses_[v];
      reader_[v] = static_cast<std::int32_t>(i);
    }
    for (const ValueId v : graph.nodes[i].outputs) {
      if (v != kNoValue) maker_[v] = static_cast<std::int32_t>(i);
    }
  }
  for (const ValueId v : graph.outputs) ++uses_[v];
}

FollowingSums FollowingSumFinder::find(std::int32_t node, std::uint8_t takes, const std::function<bool(std::int32_t)>& beside) const {
  FollowingSums sums;
  std::int32_t at = node;
  if ((takes & kTakesBias) != 0 && graph_.nodes[node].inputs.size() <= 2) {
    const FollowingSum sum = next_sum(at, node, beside);
    if (sum.node >= 0 && is_bias(graph_.nodes[node], sum.operand)) {
      sums.bias = sum;
      at = sum.node;
    }
  }
  if ((takes & kTakesResidual) != 0) {
    const FollowingSum sum = next_sum(at, node, beside);
    // What is added must be there when the node runs.
    if (sum.node >= 0 && graph_.values[sum.operand].constant == nullptr && maker_[sum.operand] < node) sums.residual = sum;
  }
  return sums;
}

// The Add that alone reads what node `at` makes, beside node `first`.
FollowingSum FollowingSumFinder::next_sum(std::int32_t at, std::int32_t first, const std::function<bool(std::int32_t)>& beside) const {
  const Node& node = graph_.nodes[at];
  if (!node.epilogue.empty() || node.outputs.size() != 1 || uses_[node.outputs[0]] != 1) return {};
  const ValueId y = node.outputs[0];
  const std::int32_t user = reader_[y];
  if (user < 0 || !beside(user)) return {};
  const Node& add = graph_.nodes[user];
  if (add.region != graph_.nodes[first].region || add.op_type != "Add" || !add.domain.empty() || add.inputs.size() != 2) return {};
  const ValueId other = add.inputs[0] == y ? add.inputs[1] : add.inputs[0];
  if (graph_.values[other].dtype != DType::kFloat32 || !graph_.values[other].has_shape || !graph_.values[add.outputs[0]].has_shape) return {};
  return {user, other, maker_[other]};
}

std::int32_t FollowingSumFinder::only_reader(std::int32_t node) const {
  const Node& maker = graph_.nodes[node];
  if (maker.outputs.size() != 1 || uses_[maker.outputs[0]] != 1) return -1;
  const std::int32_t user = reader_[maker.outputs[0]];
  if (user < 0 || graph_.nodes[user].region != maker.region || graph_.nodes[user].inputs[0] != maker.outputs[0]) return -1;
  return user;
}

// Whether a constant has one element for each channel of a Conv, each column of a product.
bool FollowingSumFinder::is_bias(const Node& node, ValueId v) const {
  const Weight* bias = graph_.values[v].constant.get();
  const Weight* weight = node.inputs.size() < 2 || node.inputs[1] == kNoValue ? nullptr : graph_.values[node.inputs[1]].constant.get();
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

}  // namespace evn
