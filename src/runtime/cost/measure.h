// Measuring what devices cost: copies, and the steps of a session's plan as they run in it.
#pragma once

#include <optional>
#include <vector>

#include "config/config.h"
#include "runtime/lower/assumed_inputs.h"
#include "runtime/objects/cost_table.h"
#include "runtime/session/session.h"

namespace evn {

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
