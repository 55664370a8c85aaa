// Shapes of all values for one signature, and the bytes of those that shape arithmetic computes: a walk over the nodes that ends
// where a shape, or the branch of an If, depends on what a run computes.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

class ShapeWalk {
 public:
  explicit ShapeWalk(PlanWork& work) : w_(work) {
    node_values_.reserve(work.c.most_step_args);
    node_descs_.reserve(work.c.most_step_args);
  }

  enum class End {
    kGraph,    // behind the last node
    kMissing,  // missing() says which values must be known to go on
    kHost,     // the next node runs on the host (ops/host.h)
  };

  // Goes on from PlanState::next_node. Afterwards that is the node before which the walk ended; of those that it passed,
  // without_step has those in a branch that is not taken, and those that are dead. Throws what shape rules throw, with the node.
  End walk();

  // The descs of the node's outputs, by its shape rule; they stay until the next call.
  std::span<const TensorDesc> infer(const Node& node);

  // Runs shape arithmetic now, with the reference kernel, for outputs whose descs are set. Behind infer().
  void evaluate(const Node& node);

  // The branch's value that a merge hands on.
  ValueId chosen_by(const Node& merge) const { return merge.inputs[is_true(merge.inputs[0]) ? 1 : 2]; }

  // Values that must be known to go on, after End::kMissing.
  std::span<const ValueId> missing() const { return missing_; }

 private:
  bool is_true(ValueId condition) const;
  bool is_active(std::int32_t index) const;
  void require(ValueId v);
  bool is_ready(std::int32_t index);
  void pass(std::int32_t index);
  void pass_merge(const Node& node);
  void check_output(const Node& node, std::size_t k, const TensorDesc& d) const;
  void check_agreement(const Node& node, std::size_t k, const TensorDesc& now) const;

  PlanWork& w_;
  std::vector<ValueId> missing_;

  // Work space of one node.
  std::vector<std::int32_t> conditions_around_;
  std::vector<ConstTensor> node_values_;
  std::vector<TensorDesc> node_descs_;  // of inputs, then of outputs
};

}  // namespace evn
