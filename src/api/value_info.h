// Inputs and outputs of a graph by their index, as models and sessions tell of them.
#pragma once

#include "api/barrier.h"
#include "runtime/loaded/model.h"

namespace evn {

// The ids of the graph's inputs or outputs.
inline const std::vector<ValueId>& ids_of(const Graph& graph, bool inputs) { return inputs ? graph.inputs : graph.outputs; }

// Sets *count. Throws EVN_ERROR_INVALID_ARGUMENT.
void count_values(const Graph& graph, bool inputs, uint32_t* count);

// Throws EVN_ERROR_INVALID_ARGUMENT when there is none of that index.
const Value& value_at(const Graph& graph, bool inputs, uint32_t index);

// Value of a model at an index; inputs with a default follow the others.
const Value& value_at(const LoadedModel& model, bool inputs, uint32_t index);

// Fills *info as far as its size goes. `flags`: EVN_VALUE_...
void describe_value(const Value& value, evn_value_info* info, uint32_t flags = 0);
void describe_value(const LoadedModel& model, bool inputs, uint32_t index, evn_value_info* info);

// Set *count. Throw EVN_ERROR_INVALID_ARGUMENT.
void count_values(const LoadedModel& model, bool inputs, uint32_t* count);
void count_defaults(const LoadedModel& model, uint32_t* count);

}  // namespace evn
