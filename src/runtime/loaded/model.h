// A loaded model: its graph after all passes, its weights, and their packed copies. Immutable but for the copies, for the plain
// bytes of weights that have some, and for what its sessions share.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "graph/default_reads.h"
#include "model/external_files.h"
#include "runtime/loaded/compiled_graphs.h"
#include "runtime/loaded/packed.h"
#include "runtime/loaded/plain_weights.h"
#include "runtime/loaded/removed_nodes.h"
#include "runtime/objects/runtime.h"

namespace evn {

struct LoadedModel;
using ModelPtr = std::shared_ptr<const LoadedModel>;

// Models with nodes in parts that some session has now, by how they are cut.
class DerivedModels {
 public:
  ModelPtr find(const std::string& key);
  // Returns what another thread has added for the key meanwhile, else `made`.
  ModelPtr add(const std::string& key, ModelPtr made);

 private:
  std::mutex mutex_;  // held for moments
  const os::HeldOverForks held_{mutex_};
  std::unordered_map<std::string, std::weak_ptr<const LoadedModel>> all_;
  PruneSchedule schedule_;  // of all_
};

// The device of a part of a node that several devices share.
struct NodePart {
  std::string device;
  std::string reason;
  int rule_line = 0;
  std::int64_t units = 0;  // of the node (graph/cut_node.h)
  double fixed_ns = 0;     // of copies, whatever the part
  double copy_ns = 0;      // of a unit
};

struct LoadedModel {
  std::shared_ptr<Runtime> runtime;
  std::string file_name;  // base name of the file, "" for a buffer; rules match it
  Model model;
  std::vector<RemovedNode> removed;         // of the model's nodes, by its rewrites
  std::shared_ptr<ExternalFiles> external;  // files of external data; null: none is allowed
  bool is_own = false;                      // made by the library: nodes may be of its own domain (ops/merge.h)
  std::shared_ptr<const os::File> file;     // which can be read again; null for a buffer, and for bodies
  std::uint64_t bytes_hash = 0;             // of what the file had in it but its large tensors
  std::shared_ptr<const void> bytes;        // of a buffer, where the model has inputs with a default; null: it has none
  std::size_t byte_count = 0;
  std::vector<std::string> open_inputs;  // inputs with a default that are open, in the model's order
  ModelPtr closed;                       // null: all are constants; else the model in which they are
  std::shared_ptr<PlainWeights> plain = std::make_shared<PlainWeights>();  // bodies share the model's, as they share constants
  mutable PackedStore store;
  mutable CompiledGraphs compiled;
  std::map<std::string, ModelPtr> bodies;  // by the name of the node that runs them: as models of their own
  ModelPtr whole;                          // null: this is the model as it was loaded; else that, with some nodes in parts (split/)
  std::vector<NodePart> parts;             // by Node::part
  mutable DerivedModels derived;           // those of which this is `whole`

  const Graph& graph() const { return model.graph; }
  const char* shown_name() const { return file_name.empty() ? "(from a buffer)" : file_name.c_str(); }
  // Number of inputs that every run gives: the first of Graph::inputs.
  std::size_t required_inputs() const { return model.graph.inputs.size() - open_inputs.size(); }
};

// The model with the named inputs, which have a default, open: loaded again, where no session has it now. Throws
// EVN_ERROR_INVALID_ARGUMENT for a name that is no such input, EVN_ERROR_IO where the file has changed, and what loading throws.
ModelPtr with_open_inputs(const ModelPtr& model, std::span<const std::string> names);

// What the runtime's configuration allows of files of models, and beside that what a caller does.
os::FileAccess file_access(const Runtime& runtime, os::FileAccess own = {});

// Throws what evn_model_load_file documents. `own`: what the caller allows beside the configuration.
ModelPtr load_model_file(std::shared_ptr<Runtime> runtime, const std::string& path, os::FileAccess own = {});
// Loads the file at the relative `path` below `folder`, which ends in /; a component of `path` may be a symbolic link only if the
// file lies beneath an allowed root of the configuration.
ModelPtr load_model_beneath(std::shared_ptr<Runtime> runtime, const std::string& folder, const std::string& path);
// `data` is copied. external_dir "" : no external data.
ModelPtr load_model_buffer(std::shared_ptr<Runtime> runtime, const void* data, std::size_t size, const std::string& external_dir,
                           os::FileAccess own = {});

// Loads bytes that nobody else changes. `name` is for messages.
ModelPtr load_model_bytes(std::shared_ptr<Runtime> runtime, std::shared_ptr<const void> bytes, std::size_t size,
                          const std::string& name);

// Where a model comes from: a file, or `size` bytes at `data`.
struct ModelSource {
  std::string path;
  const void* data = nullptr;
  std::size_t size = 0;
  std::string external_dir;
};

// Takes a model that the library has put together, as load_onnx would give it. Constants, which it may share with other models, are
// not copied; those that are in a file are read, as nobody brings their bytes back later. `is_own`: its nodes may be of the
// library's own domain. Throws what loading throws.
ModelPtr take_model(std::shared_ptr<Runtime> runtime, Model model, bool is_own);

// A model to be changed and saved (model/save.h): checked, with types inferred, functions put in place, and otherwise as it was;
// with kFolded, constants and batch normalizations are folded. `removed` (nullable) gets what LoadedModel has. Throws what loading
// throws.
enum class PlainModel { kFolded, kUnfolded };
// `literals`: see validate_model. `reads` (nullable) gets the reads of the inputs with a default as the model has them.
Model read_plain_model(const std::shared_ptr<Runtime>& runtime, const ModelSource& source, PlainModel kind = PlainModel::kFolded,
                       std::vector<RemovedNode>* removed = nullptr, std::set<std::uint64_t>* literals = nullptr,
                       std::vector<DefaultReads>* reads = nullptr);

// What the file of a model has in it now, after all passes. Throws what loading throws.
Model read_again(const LoadedModel& model);

// What evn_model_describe writes.
std::string describe_model(const LoadedModel& model, evn_format format);

}  // namespace evn
