// Counts of a loaded model, and the events of the log about a load.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "graph/infer.h"
#include "model/load.h"
#include "runtime/loaded/model.h"

namespace evn {

struct Summary {
  std::map<std::string, int> ops;  // "Conv" or "com.microsoft::Gelu" -> nodes
  std::uint64_t parameters = 0;
  std::uint64_t weight_bytes = 0;
  std::size_t fused = 0;
};

Summary summarize(const Graph& graph);

void log_loaded(const LoadedModel& model, std::size_t file_bytes, std::uint64_t duration_ns);
// Declarations of a model that contradict what its nodes compute.
void log_wrong_shape(const Runtime& runtime, const LoadedModel& model, const WrongShape& wrong);
void log_conflict(const Runtime& runtime, const LoadedModel& model, const TypeConflict& conflict);

}  // namespace evn
