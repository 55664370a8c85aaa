#include "api/value_info.h"

namespace evn {

void count_values(const Graph& graph, bool inputs, uint32_t* count) {
  require(count != nullptr, "count");
  *count = static_cast<uint32_t>(ids_of(graph, inputs).size());
}

const Value& value_at(const Graph& graph, bool inputs, uint32_t index) {
  const auto& list = ids_of(graph, inputs);
  if (index >= list.size()) fail(EVN_ERROR_INVALID_ARGUMENT, "index is %u, there are %zu", index, list.size());
  return graph.values[static_cast<std::size_t>(list[index])];
}

void count_values(const LoadedModel& model, bool inputs, uint32_t* count) {
  require(count != nullptr, "count");
  *count = static_cast<uint32_t>(inputs ? model.required_inputs() : model.graph().outputs.size());
}

void count_defaults(const LoadedModel& model, uint32_t* count) {
  require(count != nullptr, "count");
  *count = static_cast<uint32_t>(model.model.defaults.size());
}

const Value& value_at(const LoadedModel& model, bool inputs, uint32_t index) {
  const std::size_t required = model.required_inputs();
  if (!inputs || index < required) return value_at(model.graph(), inputs, index);
  const std::vector<InputDefault>& defaults = model.model.defaults;
  if (index - required >= defaults.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "index is %u, there are %zu", index, required + defaults.size());
  return defaults[index - required].declared;
}

void describe_value(const LoadedModel& model, bool inputs, uint32_t index, evn_value_info* info) {
  const bool has_default = inputs && index >= model.required_inputs();
  describe_value(value_at(model, inputs, index), info, has_default ? static_cast<uint32_t>(EVN_VALUE_HAS_DEFAULT) : 0u);
}

void describe_value(const Value& v, evn_value_info* info, uint32_t flags) {
  evn_value_info full = EVN_VALUE_INFO_INIT;
  full.dtype = static_cast<evn_dtype>(v.dtype);
  full.rank = v.has_shape ? static_cast<uint32_t>(v.shape.rank()) : UINT32_MAX;
  for (int i = 0; v.has_shape && i < v.shape.rank(); ++i) {
    full.dims[i] = v.shape[i];
    if (v.shape[i] < 0 && static_cast<std::size_t>(i) < v.symbols.size())
      copy_text(full.symbols[i], v.symbols[static_cast<std::size_t>(i)]);
  }
  copy_text(full.name, v.name);
  full.flags = flags;
  copy_text(full.type, TensorDesc{v.dtype, {}, v.wraps}.type_string());
  write_info(info, full);
}

}  // namespace evn
