// Inputs of assumed dims, for plans that are made before a run gives any.
#pragma once

#include <optional>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "runtime/lower/plan.h"

namespace evn {

// Values for the dims that a model leaves open, tried in this order until the graph accepts one. The dim of axis 0 is 1.
inline constexpr std::int64_t kAssumedDims[] = {128, 64, 32, 48, 256, 512, 640, 16, 1};

// Inputs of the dims that are given, or else declared, or `open` where the model leaves them open. Throws EVN_ERROR_UNSUPPORTED for
// inputs that are no tensors, and where the limits do not allow their sizes.
std::vector<TensorDesc> assumed_inputs(const Runtime& runtime, const Graph& graph, std::span<const WarmRun::Input> given,
                                       std::int64_t open = kAssumedDims[0]);

// The first of these, for kAssumedDims, for which `plan` does not throw. Throws what it has thrown at first where there is none.
template <typename F>
std::vector<TensorDesc> fitting_inputs(const Runtime& runtime, const Graph& graph, std::span<const WarmRun::Input> given,
                                       F&& plan) {
  std::optional<Error> first;
  for (const std::int64_t open : kAssumedDims) {
    try {
      std::vector<TensorDesc> inputs = assumed_inputs(runtime, graph, given, open);
      plan(inputs);
      return inputs;
    } catch (const Error& e) {
      if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_OUT_OF_MEMORY) throw;
      if (!first) first = e;
    }
  }
  throw *first;
}

// Signature of a run whose inputs are zeros of these descs, in host memory that devices can use.
Signature signature_of_zeros(const CompiledGraph& graph, std::span<const TensorDesc> inputs);

}  // namespace evn
