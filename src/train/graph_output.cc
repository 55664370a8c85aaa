// The output that the loss is of, and the activation at its end that the loss contains.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "train/graphs.h"
#include "train/library.h"

namespace evn_train {
namespace {

constexpr std::size_t kClassAxis = 1;  // of the loss

bool is_one_of(const Node& node, std::initializer_list<std::string_view> ops) {
  return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
}

bool keeps_dims(const Node& node) { return is_one_of(node, {"Identity", "Dropout", "Cast"}); }

// The elements keep their order, but not their dims.
bool reshapes(const Node& node) { return is_one_of(node, {"Squeeze", "Unsqueeze", "Reshape", "Flatten"}); }

[[noreturn]] void refuse(const Node& softmax, const std::string& why) {
  throw evn::make_error(EVN_ERROR_UNSUPPORTED,
                        "the loss softmax_cross_entropy is along axis 1 of the output, but %.64s \"%.128s\" %.200s",
                        softmax.op_type.c_str(), softmax.name.c_str(), why.c_str())
      .with_node(softmax.name.c_str());
}

}  // namespace

void TrainingGraphs::find_output() {
  const std::string& wanted = settings_.output;
  std::string names;
  std::optional<std::size_t> rank;
  for (const ValueId v : graph().outputs) {
    const Value& output = value(v);
    if (output_ == kNoValue && (wanted.empty() || output.name == wanted)) {
      output_ = v;
      if (output.has_shape) rank = static_cast<std::size_t>(output.shape.rank());
      if (output.wraps || output.dtype != DType::kFloat32)
        fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" is no float32 tensor", output.name.c_str());
    }
    names += (names.empty() ? "" : ", ") + output.name;
  }
  if (output_ == kNoValue)
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is no output \"%.128s\"; there are: %.256s", wanted.c_str(), names.c_str());
  logits_ = output_;
  if (rank) check_rank(static_cast<int>(*rank));
  leave_activation_out(rank);
}

// Goes back from the output through nodes that keep the elements. The node behind the activation then reads what the activation
// reads. The exported model is read anew, and keeps it.
void TrainingGraphs::leave_activation_out(std::optional<std::size_t> rank) {
  const evn_loss loss = settings_.given.loss;
  const bool is_of_classes = loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY;
  if (!is_of_classes && loss != EVN_LOSS_BCE_WITH_LOGITS) return;
  std::vector<Node*> producers(graph().values.size(), nullptr);
  for (Node& node : model_.graph.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    if (node.domain.empty() && !node.outputs.empty() && node.outputs[0] != kNoValue && !node.inputs.empty())
      producers[at(node.outputs[0])] = &node;
  }
  ValueId here = output_;
  Node* behind = nullptr;           // the node whose first input is `here`
  const Node* reshaping = nullptr;  // node before which the axis of classes is not known
  std::size_t axis = kClassAxis;    // of classes, in `here`
  while (here != kNoValue && producers[at(here)] != nullptr) {
    evn::cancellation_point(evn::kNodeWork);
    Node& node = *producers[at(here)];
    if (is_of_classes ? is_one_of(node, {"Softmax", "LogSoftmax"}) : node.op_type == "Sigmoid") {
      if (is_of_classes) check_softmax(node, axis, rank, reshaping);
      if (behind == nullptr) logits_ = node.inputs[0];
      else behind->inputs[0] = node.inputs[0];
      notes_.push_back("the loss is of " + name_of(graph(), node.inputs[0]) + ", which " + node.op_type + " " + node.name +
                       " reads");
      return;
    }
    if (node.op_type == "Transpose") {
      std::vector<std::int64_t> perm = evn::ints_attribute_of(node, "perm");
      for (std::size_t i = rank.value_or(0); perm.empty() && i-- > 0;) perm.push_back(static_cast<std::int64_t>(i));
      if (axis < perm.size()) axis = static_cast<std::size_t>(perm[axis]);
      else reshaping = &node;
      if (!perm.empty()) rank = perm.size();
    } else if (reshapes(node)) {
      reshaping = &node;
    } else if (!keeps_dims(node) || (node.inputs[0] != kNoValue && is_no_float(value(node.inputs[0])))) {
      return;
    }
    behind = &node;
    here = node.inputs[0];
  }
}

// Throws if the Softmax is known to work along another axis than the loss. An axis that counts from the end of an output whose rank
// is not known is checked when a run has made it.
void TrainingGraphs::check_softmax(const Node& softmax, std::size_t axis, std::optional<std::size_t> rank, const Node* reshaping) {
  if (reshaping != nullptr)
    refuse(softmax, "stands before " + reshaping->op_type + " \"" + reshaping->name + "\", which may move that axis");
  const std::string how = "at the end works along axis ";
  const auto given = evn::int_attribute_of(softmax, "axis", -1), wanted = static_cast<std::int64_t>(axis);
  if (given == wanted) return;
  if (given >= 0) refuse(softmax, how + std::to_string(given) + " of its input");
  if (!rank) {
    softmax_ = softmax.name;
    softmax_rank_ = static_cast<int>(wanted - given);
  } else if (given + static_cast<std::int64_t>(*rank) != wanted) {
    refuse(softmax, how + std::to_string(given) + " of its input, which has " + std::to_string(*rank) + " dims");
  }
}

void TrainingGraphs::check_rank(int rank) const {
  if (settings_.given.loss != EVN_LOSS_SOFTMAX_CROSS_ENTROPY) return;
  if (rank < 2) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the loss softmax_cross_entropy is of classes along axis 1, but \"%.128s\" has %d dims",
         logits().c_str(), rank);
  }
  if (softmax_.empty() || rank == softmax_rank_) return;
  throw evn::make_error(EVN_ERROR_UNSUPPORTED,
                        "the loss softmax_cross_entropy is along axis 1 of the output, but the Softmax \"%.128s\" at the end works "
                        "along another axis of its %d dims",
                        softmax_.c_str(), rank)
      .with_node(softmax_.c_str());
}

}  // namespace evn_train
