#include "runtime/following.h"

#include <cmath>

#include "ops/gemm.h"

namespace evn {
namespace {

// Inputs of QLinearAdd: each operand is followed by its scale and zero point.
enum : std::size_t { kA = 0, kB = 3, kY = 6 };
constexpr float kLargestScale = 1e6f;  // up to which no sum of bytes comes near 2^31

}  // namespace

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
    if (is_there_before(sum, node)) sums.residual = sum;
  }
  if ((takes & kTakesByteResidual) != 0) {
    const FollowingSum sum = next_byte_sum(node, beside);
    if (is_there_before(sum, node)) sums.residual = sum;
  }
  return sums;
}

// What is added must be there when the node runs.
bool FollowingSumFinder::is_there_before(const FollowingSum& sum, std::int32_t node) const {
  return sum.node >= 0 && graph_.values[sum.operand].constant == nullptr && maker_[sum.operand] < node;
}

// The node that alone reads what node `at` makes, beside node `first`, and in its region; -1: there is none.
std::int32_t FollowingSumFinder::next_node(std::int32_t at, std::int32_t first, const std::function<bool(std::int32_t)>& beside) const {
  const Node& node = graph_.nodes[at];
  if (!node.epilogue.empty() || node.outputs.size() != 1 || uses_[node.outputs[0]] != 1) return -1;
  const std::int32_t user = reader_[node.outputs[0]];
  return user >= 0 && beside(user) && graph_.nodes[user].region == graph_.nodes[first].region ? user : -1;
}

FollowingSum FollowingSumFinder::with_operand(std::int32_t sum, ValueId operand) const {
  if (!graph_.values[operand].has_shape || !graph_.values[graph_.nodes[sum].outputs[0]].has_shape) return {};
  return {sum, operand, maker_[operand], false, {}};
}

FollowingSum FollowingSumFinder::next_sum(std::int32_t at, std::int32_t first, const std::function<bool(std::int32_t)>& beside) const {
  const std::int32_t user = next_node(at, first, beside);
  if (user < 0) return {};
  const Node& add = graph_.nodes[user];
  if (add.op_type != "Add" || !add.domain.empty() || add.inputs.size() != 2) return {};
  const ValueId other = add.inputs[0] == graph_.nodes[at].outputs[0] ? add.inputs[1] : add.inputs[0];
  return graph_.values[other].dtype == DType::kFloat32 ? with_operand(user, other) : FollowingSum{};
}

// A QLinearAdd of two operands and a result of one dtype, whose scales and zero points are constants.
FollowingSum FollowingSumFinder::next_byte_sum(std::int32_t at, const std::function<bool(std::int32_t)>& beside) const {
  const std::int32_t user = next_node(at, at, beside);
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
  FollowingSum sum = with_operand(user, other);
  sum.of_bytes = true;
  sum.bytes = bytes;
  return sum;
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
