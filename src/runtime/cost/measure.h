// Measuring what devices cost: copies, and the steps of a session's plan as they run in it.
#pragma once

#include <vector>

#include "config/config.h"
#include "runtime/cost/cost_table.h"
#include "runtime/session.h"

namespace evn {

// Inputs of the dims that are given, or else declared; where the model leaves a dim open, it is 1 on axis 0 and kAssumedDim on
// others. Throws EVN_ERROR_UNSUPPORTED for inputs that are no tensors, and where the limits do not allow their sizes.
inline constexpr std::int64_t kAssumedDim = 128;
std::vector<TensorDesc> assumed_inputs(const Runtime& runtime, const Graph& graph, std::span<const WarmRun::Input> given);

// Zeros of these.
std::vector<RunValue> zeros_of(const std::shared_ptr<Runtime>& runtime, std::span<const TensorDesc> descs);

// Times copies from and to a device with memory of its own, some milliseconds, unless its table has them.
void measure_copies(Device& device, CostTables& tables);

// The least time of a run with the inputs, of `runs`.
double least_run(Session& session, std::span<const RunValue> inputs, int runs);

// Runs the session some times, and writes the least time that each of its steps took into the tables; returns the least time of a
// run. Throws what runs throw. `sets_submission`: what a run takes beside its steps is the cost of submitting these.
double measure_steps(Session& session, std::span<const RunValue> inputs, CostTables& tables, bool sets_submission = true);

}  // namespace evn
