// Calls in an order that makes sense, so that random calls find objects to work with.
#pragma once

#include "tests/api_fuzz/options.h"

namespace evn::fuzz {

// Counts a call by its status.
void note(const char* function, evn_status status);

// A runtime with a custom operator, and of each model a session, with states where it has any.
void make_objects(Random& random);
// A run of a session with a state of its own.
void run_with_state(Random& random);
// A training step with inputs and labels that fit.
void train_step(Random& random);

// Functions whose arguments need more than random numbers; calls.inc names them beside its own.
void call_evn_tensor_wrap(Random& random);
void call_evn_tensor_to_dlpack(Random& random);
void call_evn_tensor_from_dlpack(Random& random);
void call_evn_opencl_wrap_buffer(Random& random);
void call_evn_opencl_import_event(Random& random);
void call_evn_opencl_export_event(Random& random);

}  // namespace evn::fuzz
