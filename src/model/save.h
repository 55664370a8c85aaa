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
};

// A model, with this graph for its own, whose graphs have operators of ONNX's domains only: as load_onnx gives it, or later where no rewrite put in what
// ONNX lacks (Node::epilogue, inlined If, bodies). Throws EVN_ERROR_UNSUPPORTED naming the node where one did, and
// EVN_ERROR_LIMIT where the model would have 2 GiB or more, which no protobuf message may.
SavedModel save_onnx(const Model& model, const Graph& graph);
inline SavedModel save_onnx(const Model& model) { return save_onnx(model, model.graph); }

// Writes the file so that a reader sees the old one or the whole new one. Throws EVN_ERROR_IO, EVN_ERROR_OUT_OF_MEMORY.
void write_model_file(const std::string& path, const SavedModel& model);

// All bytes, charged to `ledger` (nullable). Throws EVN_ERROR_OUT_OF_MEMORY.
std::shared_ptr<const void> model_bytes(const SavedModel& model, const LedgerPtr& ledger);

}  // namespace evn
