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

void describe_value(const Value& v, evn_value_info* info) {
  evn_value_info full = EVN_VALUE_INFO_INIT;
  full.dtype = static_cast<evn_dtype>(v.dtype);
  full.rank = v.has_shape ? static_cast<uint32_t>(v.shape.rank()) : UINT32_MAX;
  for (int i = 0; v.has_shape && i < v.shape.rank(); ++i) {
    full.dims[i] = v.shape[i];
    if (v.shape[i] < 0 && static_cast<std::size_t>(i) < v.symbols.size())
      copy_text(full.symbols[i], v.symbols[static_cast<std::size_t>(i)]);
  }
  copy_text(full.name, v.name);
  copy_text(full.type, TensorDesc{v.dtype, {}, v.wraps}.type_string());
  write_info(info, full);
}

}  // namespace evn
