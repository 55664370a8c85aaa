#include "runtime/following.h"

namespace evn {
namespace {

class Finder {
 public:
  explicit Finder(CompiledGraph& c) : c_(c), graph_(c.graph()), uses_(graph_.values.size(), 0), maker_(graph_.values.size(), -1) {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId v : graph_.nodes[i].inputs) {
        if (v != kNoValue) ++uses_[v];
      }
      for (const ValueId v : graph_.nodes[i].outputs) {
        if (v != kNoValue) maker_[v] = static_cast<std::int32_t>(i);
      }
    }
    for (const ValueId v : graph_.outputs) ++uses_[v];
  }

  void find(std::size_t index) const {
    const NodePlacement& placed = c_.placement.nodes[index];
    if (placed.mode != NodeMode::kKernel || placed.kernel == nullptr || placed.kernel->takes == 0) return;
    CompiledNode& n = c_.nodes[index];
    auto at = static_cast<std::int32_t>(index);
    if ((placed.kernel->takes & kTakesBias) != 0 && graph_.nodes[index].inputs.size() <= 2) {
      const FollowingSum sum = next_sum(at, index);
      if (sum.node >= 0 && is_bias(graph_.nodes[index], sum.operand)) {
        n.bias = sum;
        at = sum.node;
      }
    }
    if ((placed.kernel->takes & kTakesResidual) != 0) {
      const FollowingSum sum = next_sum(at, index);
      // What is added must be there when the node runs.
      if (sum.node >= 0 && graph_.values[sum.operand].constant == nullptr && maker_[sum.operand] < static_cast<std::int32_t>(index)) n.residual = sum;
    }
  }

 private:
  CompiledGraph& c_;
  const Graph& graph_;
  std::vector<std::int32_t> uses_;
  std::vector<std::int32_t> maker_;

  // The Add that alone reads what node `at` makes, on the device of node `first`.
  FollowingSum next_sum(std::int32_t at, std::size_t first) const {
    const Node& node = graph_.nodes[at];
    if (!node.epilogue.empty() || node.outputs.size() != 1 || uses_[node.outputs[0]] != 1) return {};
    const ValueId y = node.outputs[0];
    const std::int32_t user = c_.last_user[y];
    if (user < 0 || user == INT32_MAX) return {};
    const Node& add = graph_.nodes[user];
    const NodePlacement& placed = c_.placement.nodes[user];
    const bool here = placed.mode == NodeMode::kKernel && placed.device == c_.placement.nodes[first].device && add.region == graph_.nodes[first].region;
    if (!here || add.op_type != "Add" || !add.domain.empty() || add.inputs.size() != 2) return {};
    const ValueId other = add.inputs[0] == y ? add.inputs[1] : add.inputs[0];
    if (graph_.values[other].dtype != DType::kFloat32 || !graph_.values[other].has_shape || !graph_.values[add.outputs[0]].has_shape) return {};
    return {user, other};
  }

  // Whether a constant has one element for each channel of a Conv, each column of a product.
  bool is_bias(const Node& node, ValueId v) const {
    const Weight* bias = graph_.values[v].constant.get();
    const Weight* weight = node.inputs.size() < 2 || node.inputs[1] == kNoValue ? nullptr : graph_.values[node.inputs[1]].constant.get();
    if (bias == nullptr || weight == nullptr || weight->desc.shape.rank() < 2) return false;
    const bool conv = node.op_type == "Conv";
    const Shape& w = weight->desc.shape;
    const Shape& b = bias->desc.shape;
    const int rank = graph_.values[node.outputs[0]].shape.rank();
    if (b.rank() > rank) return false;
    const std::int64_t wanted = conv ? w[0] : w[w.rank() - 1];
    const int axis = b.rank() - (conv ? rank - 1 : 1);  // of b
    return axis >= 0 && b[axis] == wanted && b.elements() == wanted;
  }
};

}  // namespace

void find_following_sums(CompiledGraph& c) {
  const Finder finder(c);
  for (std::size_t i = 0; i < c.nodes.size(); ++i) finder.find(i);
}

}  // namespace evn
