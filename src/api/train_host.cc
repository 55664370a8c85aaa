#include "api/train_host.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "api/barrier.h"
#include "api/objects.h"
#include "api/run_arguments.h"
#include "api/session_create.h"
#include "api/work_scope.h"
#include "base/lent_core.h"
#include "base/mutex.h"
#include "base/os/os.h"
#include "graph/free_batch.h"
#include "graph/function_calls.h"
#include "graph/inference_form.h"
#include "graph/raise_opset.h"
#include "graph/subgraphs.h"
#include "model/save.h"
#include "ops/infra/training_module.h"

namespace evn {
namespace {

// ------------------------------------------------------------------------------------- what the module is given --

// Makes float32 constants that came from Constant nodes such nodes again, so that the trainer tells them from initializers.
void restore_constant_nodes(Graph& graph, const std::set<std::uint64_t>& literals) {
  std::vector<Node> constants;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    cancellation_point(kNodeWork);
    Value& value = graph.values[v];
    if (value.constant == nullptr || value.constant->desc.dtype != DType::kFloat32 || !literals.contains(value.constant->id))
      continue;
    Node& node = constants.emplace_back();
    node.name = value.name;
    node.op_type = "Constant";
    node.outputs = {static_cast<ValueId>(v)};
    node.attributes = {{"value", std::exchange(value.constant, nullptr), {}}};
  }
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(constants.begin()), std::make_move_iterator(constants.end()));
  for (Node& node : graph.nodes) {
    for_each_body(node.attributes, [&](Graph& body) { restore_constant_nodes(body, literals); });
  }
}

evn_status plain_model(evn_runtime runtime, const char* path, const void* data, size_t size, const char* external_dir,
                       int64_t least_opset, evn_cancel cancel, evn_train_bytes* bytes, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    const std::uint64_t limit = (*r)->settings()->config.limits.load_time_ns;
    const WorkScope scope(WorkScope::token_of(cancel), limit == 0 ? 0 : deadline_clock_ns() + limit,
                          "the time to load the model is over", "the load was cancelled");
    ModelSource source;
    if (path != nullptr) source.path = path;
    source.data = data;
    source.size = size;
    if (external_dir != nullptr) source.external_dir = external_dir;
    std::set<std::uint64_t> literals;
    std::vector<DefaultReads> reads;
    Model model = read_plain_model(*r, source, PlainModel::kUnfolded, nullptr, &literals, &reads);
    flatten_bodies(model.graph);
    free_batch(model.graph, (*r)->cpu().ledger());
    take_inference_form(model.graph);
    if (opset_of(model) < least_opset) raise_opset(model, least_opset, (*r)->cpu().ledger());
    drop_changed_defaults(reads, &model);
    Graph graph = with_subgraphs(model.graph, true);
    restore_constant_nodes(graph, literals);
    const SavedModel saved = save_onnx(model, graph, "", true);
    auto owner = std::make_unique<std::shared_ptr<const void>>(model_bytes(saved, (*r)->cpu().ledger()));
    bytes->data = owner->get();
    bytes->size = static_cast<size_t>(saved.size);
    bytes->owner = owner.release();
  });
}

void release(evn_train_bytes* bytes) { delete static_cast<std::shared_ptr<const void>*>(bytes->owner); }

evn_status load_limits(evn_runtime runtime, evn_cancel cancel, uint64_t* time_ns, const void** requested, evn_error* error) {
  return guarded(error, [&] {
    *time_ns = (*Pin<RuntimePtr>(runtime))->settings()->config.limits.load_time_ns;
    *requested = cancel == nullptr ? nullptr : &(*Pin<CancelPtr>(cancel))->requested;
  });
}

evn_status load_own(evn_runtime runtime, const void* data, size_t size, evn_cancel cancel, evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    const WorkScope scope(WorkScope::token_of(cancel), 0, "the time to load the model is over", "the load was cancelled");
    *model = static_cast<evn_model>(make_handle(load_own_model(*r, data, size)));
  });
}

evn_status run_for_module(evn_session session, const evn_tensor* inputs, uint32_t input_count, evn_tensor* outputs,
                          uint32_t output_count, const evn_run_options* options, void (*ready)(void*, uint32_t), void* context,
                          evn_error* error) {
  return guarded(error, [&] { run_listened(session, {inputs, input_count}, {outputs, output_count}, options, {ready, context}); });
}

evn_status submit_for_module(evn_session session, const evn_tensor* inputs, uint32_t input_count, const evn_tensor* outputs,
                             uint32_t output_count, const evn_run_options* options, const evn_submit_options* submit,
                             void (*ready)(void*, uint32_t), void* context, evn_request* request, evn_error* error) {
  return guarded(error, [&] {
    submit_listened(session, {inputs, input_count}, {outputs, output_count}, options, submit, {ready, context}, request);
  });
}

evn_status runtime_identity(evn_runtime runtime, void** identity, evn_error* error) {
  return guarded(error, [&] { *identity = (*Pin<RuntimePtr>(runtime)).get(); });
}

void wait_without_core(void (*wait)(void*), void* context) {
  const LentCore lent;
  wait(context);
}

evn_status open_for_module(const char* file, const char* symbol, void** function, evn_error* error) {
  return guarded(error, [&] {
    const std::string folder = os::own_folder();
    std::string why = "the folder of this library is not known";
    void* const library = folder.empty() ? nullptr : os::open_library((folder + file).c_str(), &why);
    if (library == nullptr) fail(EVN_ERROR_UNSUPPORTED, "%s is needed beside the library: %s", file, why.c_str());
    *function = os::find_symbol(library, symbol);
    if (*function == nullptr) fail(EVN_ERROR_UNSUPPORTED, "%s is no module of this library: it has no %s", file, symbol);
  });
}

int is_requested(evn_cancel cancel) {
  int requested = 0;
  guarded(nullptr, [&] { requested = (*Pin<CancelPtr>(cancel))->requested.load(std::memory_order_relaxed) ? 1 : 0; });
  return requested;
}

evn_status create_limited(evn_runtime runtime, evn_model model, const evn_session_options* options, uint64_t arena_limit,
                          evn_session* session, evn_error* error) {
  return guarded(error, [&] { create_session(runtime, model, options, arena_limit, session); });
}

evn_status memory_of(evn_session session, evn_train_memory* memory, evn_error* error) {
  return guarded(error, [&] {
    *memory = {};
    for (const std::shared_ptr<const Plan>& plan : SessionPin(session)->plans().latest()) {
      const RecomputedSteps& r = plan->recomputed;
      for (const std::size_t bytes : plan->arena_bytes) memory->arena_bytes += bytes;
      memory->unlimited_bytes = std::max(memory->unlimited_bytes, r.unlimited_bytes);
      memory->steps += static_cast<uint32_t>(plan->steps.size()) - r.steps;
      memory->recomputed_steps += r.steps;
      memory->kept_values += r.kept_values;
      memory->recomputed_values += r.values;
    }
  });
}

// -------------------------------------------------------------------------------------------------------- module --

struct TrainState {
  Mutex mutex;
  std::atomic<const evn_train_module_table*> table{nullptr};
  evn_train_host host{nullptr,        plain_model,       release,          load_limits,       load_own,
                      run_for_module, submit_for_module, runtime_identity, wait_without_core, open_for_module,
                      is_requested,   create_limited,    memory_of};
};
constinit TrainState g_train;

const evn_train_module_table* open_module() {
  const auto open = reinterpret_cast<evn_train_module_function>(training_module_symbol(EVN_TRAIN_MODULE_SYMBOL));
  const evn_train_module_table* const table = open == nullptr ? nullptr : open(&g_train.host);
  if (table != nullptr && table->abi == EVN_TRAIN_MODULE_ABI && table->version == EVN_VERSION_NUMBER) return table;
  const char* const why = why_no_training_module();
  fail(EVN_ERROR_UNSUPPORTED, "training needs a module beside the library: %s",
       why != nullptr     ? why
       : table == nullptr ? "libevener_train.so is no module of this library"
                          : "libevener_train.so is of another version");
}

}  // namespace

const evn_train_module_table& train_module() {
  if (const auto* table = g_train.table.load(std::memory_order_acquire)) return *table;
  const std::lock_guard<Mutex> lock(g_train.mutex);
  if (const auto* table = g_train.table.load(std::memory_order_relaxed)) return *table;
  evn_get_api(EVN_VERSION_NUMBER, &g_train.host.api);
  const evn_train_module_table* const table = open_module();
  g_train.table.store(table, std::memory_order_release);
  return *table;
}

}  // namespace evn
