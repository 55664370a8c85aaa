// ONNX bytes to IR. Hostile bytes are its normal input.
#pragma once

#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/limits.h"
#include "core/graph.h"
#include "core/type_conflict.h"
#include "model/image.h"

namespace evn {

struct LoadOptions {
  LedgerPtr ledger;  // weights and file bytes are charged here
  Limits limits;
  std::string external_dir;  // "": external data is refused
  std::string source;        // file name for messages
  std::uint64_t deadline_ns = UINT64_MAX;
  const FileImage* image = nullptr;    // of whose gaps tensors are read; its bytes are the model's
  TypeConflicts* conflicts = nullptr;  // receives the entries of value_info that contradict an output or an initializer; nullable
};

// Reads a model; weights in raw_data stay in `bytes`, which they keep alive. Not validated yet (graph/validate.h).
// Throws EVN_ERROR_INVALID_MODEL naming the field and byte offset, EVN_ERROR_LIMIT, EVN_ERROR_UNSUPPORTED, EVN_ERROR_IO.
Model load_onnx(std::shared_ptr<const void> bytes, std::size_t size, const LoadOptions& options);

}  // namespace evn
