// What a session does when it does not fit under a device's memory limit: the steps before EVN_ERROR_OUT_OF_MEMORY that are taken
// while it is made. The steps of plans are in plan_cache.cc, those of packed weights in loaded/weight_pager.h.
// docs/decisions/0073-memory-ladder.md
#pragma once

#include <optional>

#include "base/error.h"
#include "runtime/lower/compile.h"

namespace evn {

// What the request or the configuration asks for; never kDefault.
MemoryPlan memory_plan_of(const SessionRequest& request);

// Adds the device that was full when compiling failed to the request, so that the next try does without it. `*first` is the failure
// of the first try that met a full device; none before. Throws it if no device can be left out, or if no other device may take the
// nodes (`failure` is EVN_ERROR_UNSUPPORTED). Throws `failure` if it has another reason than a full device.
void leave_out_full(const Runtime& runtime, const Error& failure, std::optional<Error>* first, SessionRequest* request);

// Compiles as compile() does. Where the model would not fit beside what the CPU holds, kernels whose packed weights are small;
// where a device has no memory for its nodes, with these on the next one that rules allow. Throws EVN_ERROR_OUT_OF_MEMORY of the
// device that was full first where there is none.
CompiledGraph compile_to_fit(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache);

}  // namespace evn
