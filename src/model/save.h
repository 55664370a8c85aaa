// IR to ONNX bytes: the other way of model/load.h. What load_onnx reads and the IR keeps comes back; texts for people (doc
// strings), training information and annotations do not.
#pragma once

#include <string>
#include <vector>

#include "core/graph.h"

namespace evn {

// A ModelProto in pieces, so that large tensors are not copied: the bytes of the model are those of all pieces, one after
// the other.
struct SavedPiece {
  std::string bytes;
  WeightPtr data;  // not null: its bytes, in place of `bytes`
};

struct SavedModel {
  std::vector<SavedPiece> pieces;
  std::uint64_t size = 0;
  std::vector<SavedPiece> external;  // of the file beside the model's, where there is one
};

inline constexpr std::uint64_t kMostModelBytes = INT32_MAX;  // of a protobuf message in a file

// A model, with this graph for its own, whose graphs have operators of ONNX's domains only: as load_onnx gives it, or later where
// no rewrite put in what ONNX lacks (Node::epilogue, inlined If, bodies). Throws EVN_ERROR_UNSUPPORTED naming the node where one
// did. Inputs with a default are written behind the others, unless the graph has no constant of their name. `external`: not empty:
// the name of a file beside the model's for all larger constants of graphs. `value_types`: the element types of what nodes make are
// written (value_info).
SavedModel save_onnx(const Model& model, const Graph& graph, const std::string& external = "", bool value_types = false);
inline SavedModel save_onnx(const Model& model) { return save_onnx(model, model.graph); }

// The name of the file beside a model's.
std::string external_name(const std::string& path);

// Writes the file, and that of external data under its name, so that a reader sees the old one or the whole new one; both are on
// the disk before either takes an old one's place. Throws EVN_ERROR_IO, EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_LIMIT where the file
// would have 2 GiB or more.
void write_model_file(const std::string& path, const SavedModel& model);

// All bytes of a model without external data, charged to `ledger` (nullable). Throws EVN_ERROR_OUT_OF_MEMORY.
std::shared_ptr<const void> model_bytes(const SavedModel& model, const LedgerPtr& ledger);

}  // namespace evn
