// Outputs that a caller gives in the memory of inputs.
#pragma once

#include "runtime/lower/plan.h"
#include "runtime/run/host_run.h"

namespace evn {

// Whether output `output` of the plan may not be written where `given` is, as that is an input, and something reads it when, or
// after, the plan writes the output. `inputs`: those that the run reads, nullable each.
bool must_stage_over(const CompiledGraph& graph, const Plan& plan, std::span<const TensorPtr> inputs, std::size_t output,
                     const Tensor& given);

// Throws EVN_ERROR_INVALID_ARGUMENT where a tensor that is given for an output overlaps another one or an input. `over_inputs`: it
// may be all of an input.
void check_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs, bool over_inputs);

}  // namespace evn
