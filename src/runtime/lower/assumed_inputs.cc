#include "runtime/lower/assumed_inputs.h"

#include <algorithm>

#include "runtime/objects/runtime.h"
#include "runtime/objects/tensor.h"

namespace evn {

Signature signature_of_zeros(const CompiledGraph& graph, std::span<const TensorDesc> inputs) {
  Signature s;
  s.inputs.assign(inputs.begin(), inputs.end());
  s.input_slots.resize(inputs.size());
  s.output_slots.resize(graph.graph().outputs.size());
  s.values.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_key(graph, i, inputs[i])) s.values[i].assign(inputs[i].size_bytes(), 0);
  }
  s.shares_inputs =
      std::any_of(graph.shared_inputs.begin(), graph.shared_inputs.end(), [](std::uint32_t slots) { return slots != 0; });
  return s;
}

std::vector<TensorDesc> assumed_inputs(const Runtime& runtime, const Graph& graph, std::span<const WarmRun::Input> given,
                                       std::int64_t open) {
  std::vector<TensorDesc> descs;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.values[id];
    if (value.wraps) fail(EVN_ERROR_UNSUPPORTED, "input \"%s\" is no tensor, so that no zeros can be given", value.name.c_str());
    const auto named = std::find_if(given.begin(), given.end(), [&](const WarmRun::Input& i) { return i.name == value.name; });
    std::vector<std::int64_t> dims;
    if (named != given.end()) {
      dims = named->dims;
    } else if (value.has_shape) {
      for (int axis = 0; axis < value.shape.rank(); ++axis)
        dims.push_back(value.shape[axis] >= 0 ? value.shape[axis] : axis == 0 ? 1 : open);
    } else {
      fail(EVN_ERROR_UNSUPPORTED, "the rank of input \"%s\" is not known before a run", value.name.c_str());
    }
    if (dims.size() > EVN_MAX_RANK) fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" has %zu dims", value.name.c_str(), dims.size());
    descs.push_back(checked_desc(runtime.settings()->config.limits, static_cast<evn_dtype>(value.dtype), dims.data(),
                                 static_cast<std::uint32_t>(dims.size())));
  }
  return descs;
}

}  // namespace evn
