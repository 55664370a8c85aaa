// ONNX bytes to IR. Hostile bytes are its normal input.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/ledger.h"
#include "base/limits.h"
#include "core/graph.h"
#include "core/type_conflict.h"
#include "model/image.h"

namespace evn {

class ExternalFiles;

struct LoadOptions {
  LedgerPtr ledger;  // weights and file bytes are charged here
  Limits limits;
  ExternalFiles* external = nullptr;  // null: external data is refused
  std::string source;                 // file name for messages
  std::uint64_t deadline_ns = UINT64_MAX;
  const FileImage* image = nullptr;    // of whose gaps tensors are read; its bytes are the model's
  TypeConflicts* conflicts = nullptr;  // receives the entries of value_info that contradict an output or an initializer; nullable
  std::span<const std::string> open_inputs = {};  // inputs with a default that are no constants of the graph
};

// Reads a model; weights in raw_data stay in `bytes`, which they keep alive. Not validated yet (graph/validate.h).
// Throws EVN_ERROR_INVALID_MODEL naming the field and byte offset, EVN_ERROR_LIMIT, EVN_ERROR_UNSUPPORTED, EVN_ERROR_IO.
Model load_onnx(std::shared_ptr<const void> bytes, std::size_t size, const LoadOptions& options);

}  // namespace evn
