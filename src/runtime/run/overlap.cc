#include "runtime/run/overlap.h"

#include "base/error.h"

namespace evn {
namespace {

// What a plan does with the memory of one input, as which it also has one of its outputs.
class OverwriteCheck {
 public:
  OverwriteCheck(const CompiledGraph& graph, const Plan& plan, std::size_t input, std::size_t output)
      : graph_(graph), plan_(plan), input_(static_cast<std::int32_t>(input)), output_(static_cast<std::int32_t>(output)) {}

  // Whether the plan writes the output when nobody reads the input any more, or in the step that reads it last, whose kernel allows
  // it. Plans that follow may read all inputs.
  bool is_safe() {
    if (plan_.has_continuation()) return false;
    for (const PlanStep& step : plan_.steps) {
      if (!passes(step)) return false;
    }
    return true;
  }

 private:
  const CompiledGraph& graph_;
  const Plan& plan_;
  const std::int32_t input_, output_;
  bool written_ = false;
  std::uint32_t readers_ = 0;  // slots of devices that may still read the input when other devices are given work

  bool is_input(std::size_t buffer) const {
    return plan_.buffers[buffer].source == Source::kInput && plan_.buffers[buffer].index == input_;
  }
  bool is_output(std::size_t buffer) const {
    return plan_.buffers[buffer].source == Source::kOutput && plan_.buffers[buffer].index == output_;
  }

  bool passes(const PlanStep& step) {
    const bool is_kernel = step.kind == PlanStep::Kind::kKernel;
    const std::size_t inputs = is_kernel ? step.desc.inputs.size() : 1;
    const std::size_t outputs = is_kernel ? step.desc.outputs.size() : 1;
    bool reads = false, in_place = is_kernel, writes = false;
    InPlace allowed{UINT32_MAX, -1};
    for (std::size_t k = 0; k < outputs; ++k) {
      if (!is_output(step.buffers + inputs + k)) continue;
      writes = true;
      if (is_kernel) allowed = step.kernel->in_place(step.desc, step.plan, k);
    }
    for (std::size_t k = 0; k < inputs; ++k) {
      if (!is_input(step.buffers + k)) continue;
      reads = true;
      in_place &= allowed.allows(k);
    }
    if (reads && (written_ || (writes && !in_place))) return false;
    const std::uint32_t slot = std::uint32_t{1} << step.slot;
    if (writes && (readers_ & ~slot) != 0) return false;
    if (reads && !graph_.devices[step.slot]->traits().host_addressable) readers_ |= slot;
    written_ |= writes;
    return true;
  }
};

}  // namespace

bool must_stage_over(const CompiledGraph& graph, const Plan& plan, std::span<const TensorPtr> inputs, std::size_t output,
                     const Tensor& given) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || overlap_of(*inputs[i], given) != Overlap::kAll) continue;
    if (!OverwriteCheck(graph, plan, i, output).is_safe()) return true;
  }
  return false;
}

void check_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs, bool over_inputs) {
  const auto overlap_of_both = [](const RunValue& a, const RunValue& b) {
    return a.tensor != nullptr && b.tensor != nullptr ? overlap_of(*a.tensor, *b.tensor) : Overlap::kNone;
  };
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j].tensor == nullptr) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Overlap overlap = overlap_of_both(inputs[i], outputs[j]);
      if (overlap == Overlap::kSome || (overlap == Overlap::kAll && !over_inputs))
        fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps %sinput %zu", j, over_inputs ? "a part of " : "", i);
    }
    for (std::size_t k = 0; k < j; ++k) {
      if (overlap_of_both(outputs[k], outputs[j]) != Overlap::kNone)
        fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps output %zu", j, k);
    }
  }
}

}  // namespace evn
