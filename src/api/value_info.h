// Inputs and outputs of a graph by their index, as models and sessions tell of them.
#pragma once

#include "api/barrier.h"
#include "core/graph.h"

namespace evn {

// The ids of the graph's inputs or outputs.
inline const std::vector<ValueId>& ids_of(const Graph& graph, bool inputs) { return inputs ? graph.inputs : graph.outputs; }

// Sets *count. Throws EVN_ERROR_INVALID_ARGUMENT.
void count_values(const Graph& graph, bool inputs, uint32_t* count);

// Throws EVN_ERROR_INVALID_ARGUMENT when there is none of that index.
const Value& value_at(const Graph& graph, bool inputs, uint32_t index);

// Fills *info as far as its size goes.
void describe_value(const Value& value, evn_value_info* info);

}  // namespace evn
