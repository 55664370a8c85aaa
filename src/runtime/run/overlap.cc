#include "runtime/run/overlap.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {
namespace {

// Up to so many pairs of tensors are compared one by one.
constexpr std::size_t kFewPairs = 256;

// Throws where output j overlaps an input, or an output before it.
void check_output(std::span<const RunValue> inputs, std::span<const RunValue> outputs, std::size_t j, bool over_inputs) {
  if (outputs[j].tensor == nullptr) return;
  const TensorRange range = range_of(*outputs[j].tensor);
  const auto overlap_with = [&](const RunValue& other) {
    cancellation_point();
    return other.tensor != nullptr ? overlap_of(range_of(*other.tensor), range) : Overlap::kNone;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Overlap overlap = overlap_with(inputs[i]);
    if (overlap == Overlap::kSome || (overlap == Overlap::kAll && !over_inputs))
      fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps %sinput %zu", j, over_inputs ? "a part of " : "", i);
  }
  for (std::size_t k = 0; k < j; ++k) {
    if (overlap_with(outputs[k]) != Overlap::kNone) fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps output %zu", j, k);
  }
}

bool any_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs, bool over_inputs, SpareBlocks* spare) {
  const OutputRanges ranges(outputs, spare);
  if (ranges.is_empty()) return false;
  if (ranges.overlap_each_other()) return true;
  for (const RunValue& input : inputs) {
    if (input.tensor == nullptr) continue;
    std::uint32_t output;
    const Overlap overlap = ranges.find(range_of(*input.tensor), &output);
    if (overlap == Overlap::kSome || (overlap == Overlap::kAll && !over_inputs)) return true;
  }
  return false;
}

}  // namespace

OutputRanges::OutputRanges(std::span<const RunValue> outputs, SpareBlocks* spare) : sorted_(outputs.size(), spare) {
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    cancellation_point();
    if (outputs[j].tensor == nullptr) continue;
    const TensorRange range = range_of(*outputs[j].tensor);
    if (!range.is_empty()) sorted_[count_++] = {range, static_cast<std::uint32_t>(j)};
  }
  const std::span<OutputRange> ranges = sorted_.span().first(count_);
  std::sort(ranges.begin(), ranges.end(), [](const OutputRange& a, const OutputRange& b) {
    cancellation_point();
    return a.range < b.range;
  });
}

bool OutputRanges::overlap_each_other() const {
  for (std::size_t k = 1; k < count_; ++k) {
    cancellation_point();
    if (overlap_of(sorted_[k - 1].range, sorted_[k].range) != Overlap::kNone) return true;
  }
  return false;
}

Overlap OutputRanges::find(const TensorRange& range, std::uint32_t* output) const {
  TensorRange least = range;
  least.end = least.begin;
  const std::span<const OutputRange> ranges = all();
  const auto next = std::lower_bound(ranges.begin(), ranges.end(), least, [](const OutputRange& a, const TensorRange& b) {
    cancellation_point();
    return a.range < b;
  });
  if (next != ranges.begin() && overlap_of((next - 1)->range, range) != Overlap::kNone) return Overlap::kSome;
  if (next == ranges.end()) return Overlap::kNone;
  *output = next->output;
  return overlap_of(next->range, range);
}

OverwriteCheck::OverwriteCheck(const CompiledGraph& graph, const Plan& plan, std::span<const TensorPtr> inputs,
                               std::span<const RunValue> outputs, SpareBlocks* spare)
    : graph_(graph), plan_(plan), outputs_over_(inputs.size(), spare), uses_(outputs.size(), spare) {
  if (!find_outputs_over(inputs, outputs, spare)) return;
  if (plan.has_continuation()) {  // plans that follow may read all inputs
    for (OverwriteUse& use : uses_.span()) use.must_stage = use.is_over_input;
    return;
  }
  for (const PlanStep& step : plan.steps) follow(step);
}

bool OverwriteCheck::find_outputs_over(std::span<const TensorPtr> inputs, std::span<const RunValue> outputs, SpareBlocks* spare) {
  const OutputRanges ranges(outputs, spare);
  bool any = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    outputs_over_[i] = kNoOutput;
    std::uint32_t output;
    if (inputs[i] == nullptr || ranges.find(range_of(*inputs[i]), &output) != Overlap::kAll) continue;
    outputs_over_[i] = output;
    uses_[output].is_over_input = any = true;
  }
  return any;
}

// The output that a buffer of the plan is, or whose memory it has as an input. nullptr: it is no such output.
OverwriteUse* OverwriteCheck::use_of(std::size_t buffer, Source source) {
  cancellation_point();
  const BufferSource& from = plan_.buffers[buffer];
  if (from.source != source) return nullptr;
  const auto index = static_cast<std::size_t>(from.index);
  const std::size_t output = source == Source::kInput ? outputs_over_[index] : index;
  return output != kNoOutput && uses_[output].is_over_input ? &uses_[output] : nullptr;
}

// A step may read an input that it overwrites if its kernel allows that. It must not write what another device may still read.
void OverwriteCheck::follow(const PlanStep& step) {
  const bool is_kernel = step.kind == PlanStep::Kind::kKernel;
  const std::size_t inputs = is_kernel ? step.desc.inputs.size() : 1;
  const std::size_t outputs = is_kernel ? step.desc.outputs.size() : 1;
  const std::uint32_t slot = std::uint32_t{1} << step.slot;
  for (std::size_t k = 0; k < outputs; ++k) {
    OverwriteUse* const use = use_of(step.buffers + inputs + k, Source::kOutput);
    if (use == nullptr) continue;
    use->writer = &step;
    use->allowed = is_kernel ? step.kernel->in_place(step.desc, step.plan, k) : InPlace{0, -1};
    use->must_stage |= (use->readers & ~slot) != 0;
  }
  for (std::size_t k = 0; k < inputs; ++k) {
    OverwriteUse* const use = use_of(step.buffers + k, Source::kInput);
    if (use == nullptr) continue;
    use->must_stage |= use->is_written || (use->writer == &step && !use->allowed.allows(k));
    if (!graph_.devices[step.slot]->traits().host_addressable) use->readers |= slot;
  }
  for (std::size_t k = 0; k < outputs; ++k) {
    if (OverwriteUse* const use = use_of(step.buffers + inputs + k, Source::kOutput)) use->is_written = true;
  }
}

bool any_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs) {
  return any_overlap(inputs, outputs, false, nullptr);
}

void check_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs, bool over_inputs, SpareBlocks* spare) {
  if (outputs.size() <= kFewPairs && (inputs.size() + outputs.size()) * outputs.size() <= kFewPairs) {
    for (std::size_t j = 0; j < outputs.size(); ++j) check_output(inputs, outputs, j, over_inputs);
    return;
  }
  if (!any_overlap(inputs, outputs, over_inputs, spare)) return;
  std::size_t fine = 0, refused = outputs.size();  // numbers of outputs, from the first on
  while (refused - fine > 1) {
    const std::size_t middle = fine + (refused - fine) / 2;
    (any_overlap(inputs, outputs.first(middle), over_inputs, spare) ? refused : fine) = middle;
  }
  check_output(inputs, outputs, refused - 1, over_inputs);
}

}  // namespace evn
