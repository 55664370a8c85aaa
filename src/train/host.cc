#include "train/host.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "api/objects.h"
#include "api/run_arguments.h"
#include "api/work_scope.h"
#include "base/lent_core.h"
#include "base/os/os.h"
#include "graph/free_batch.h"
#include "graph/inference_form.h"
#include "graph/raise_opset.h"
#include "graph/subgraphs.h"

namespace evn_train {

using namespace evn;

namespace {

// A constant that has its bytes, and hangs on no file: models that are taken (take_model) cannot read it again. Small ones are
// copied: a model from a buffer lies in one block, which can go then as soon as the large ones have gone, those that learn.
WeightPtr own_constant(const WeightPtr& given, SourceModel* source) {
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  if (given->desc.dtype == DType::kString) return given;
  std::shared_ptr<Weight> own;
  if (given->size_bytes <= kSmall) {
    void* bytes = nullptr;
    own = make_unfilled_weight(given->desc, source->ledger, &bytes);
    if (own->size_bytes > 0) std::memcpy(bytes, given->bytes(), own->size_bytes);
  } else if (given->source == nullptr) {
    return given;
  } else {
    given->bytes();
    own = make_weight_over(given->desc, given->data);
  }
  if (source->literals.contains(given->id)) source->literals.insert(own->id);
  return own;
}

void own_constants(Graph& graph, SourceModel* source) {
  for (Value& v : graph.values) {
    cancellation_point(kNodeWork);
    if (v.constant != nullptr) v.constant = own_constant(v.constant, source);
  }
  for (Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    for (Attribute& a : node.attributes) {
      if (auto* const weight = std::get_if<WeightPtr>(&a.value); weight != nullptr) *weight = own_constant(*weight, source);
    }
    for_each_body(node.attributes, [&](Graph& body) { own_constants(body, source); });
  }
}

}  // namespace

SourceModel read_source(evn_runtime runtime, const char* path, const evn_trainer_options& options, std::int64_t least_opset) {
  const Pin<RuntimePtr> r(runtime);
  const std::uint64_t limit = (*r)->settings()->config.limits.load_time_ns;
  const WorkScope scope(WorkScope::token_of(options.cancel), limit == 0 ? 0 : deadline_clock_ns() + limit,
                        "the time to load the model is over", "the load was cancelled");
  ModelSource where;
  if (path != nullptr) where.path = path;
  where.data = options.data;
  where.size = options.size;
  if (options.external_dir != nullptr) where.external_dir = options.external_dir;
  SourceModel source;
  source.ledger = (*r)->cpu().ledger();
  std::vector<DefaultReads> reads;
  evn::Model& model = source.model;
  model = read_plain_model(*r, where, evn::PlainModel::kUnfolded, nullptr, &source.literals, &reads);
  flatten_bodies(model.graph);
  free_batch(model.graph, source.ledger);
  take_inference_form(model.graph);
  raise_opset(model, opset_of(model) < least_opset ? least_opset : 0, source.ledger);  // of functions, too
  drop_changed_defaults(reads, &model);
  model.graph = with_subgraphs(model.graph, true);
  own_constants(model.graph, &source);
  std::set<std::string_view> constants;
  for (const Value& v : model.graph.values) {
    cancellation_point(kNodeWork);
    if (v.constant != nullptr) constants.insert(v.name);
  }
  std::erase_if(model.defaults, [&](const InputDefault& d) { return !constants.contains(d.declared.name); });
  return source;
}

LoadLimits load_limits(evn_runtime runtime, evn_cancel cancel) {
  return {(*Pin<RuntimePtr>(runtime))->settings()->config.limits.load_time_ns,
          cancel == nullptr ? nullptr : &(*Pin<CancelPtr>(cancel))->requested};
}

evn_model take_model(evn_runtime runtime, evn::Model model, bool is_own, evn_cancel cancel) {
  const Pin<RuntimePtr> r(runtime);
  const WorkScope scope(WorkScope::token_of(cancel), 0, "the time to load the model is over", "the load was cancelled");
  return static_cast<evn_model>(make_handle(evn::take_model(*r, std::move(model), is_own)));
}

evn_model load_saved(evn_runtime runtime, const SavedModel& saved) {
  const Pin<RuntimePtr> r(runtime);
  const std::shared_ptr<const void> bytes = model_bytes(saved, (*r)->cpu().ledger());
  return static_cast<evn_model>(make_handle(load_model_bytes(*r, bytes, static_cast<std::size_t>(saved.size), "")));
}

void run_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<evn_tensor> outputs,
                  const evn_run_options& options, OutputListener listener) {
  evn::run_listened(session, inputs, outputs, &options, listener);
}

void submit_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<const evn_tensor> outputs,
                     const evn_run_options& options, const evn_submit_options& submit, OutputListener listener,
                     evn_request* request) {
  evn::submit_listened(session, inputs, outputs, &options, &submit, listener, request);
}

RunMemory memory_of(evn_session session) {
  RunMemory memory;
  for (const std::shared_ptr<const Plan>& plan : SessionPin(session)->plans().latest()) {
    const RecomputedSteps& r = plan->recomputed;
    for (const std::size_t bytes : plan->arena_bytes) memory.arena_bytes += bytes;
    memory.unlimited_bytes = std::max(memory.unlimited_bytes, r.unlimited_bytes);
    memory.steps += static_cast<std::uint32_t>(plan->steps.size()) - r.steps;
    memory.recomputed_steps += r.steps;
    memory.kept_values += r.kept_values;
    memory.recomputed_values += r.values;
  }
  return memory;
}

void* identity_of(evn_runtime runtime) { return (*Pin<RuntimePtr>(runtime)).get(); }

bool is_requested(evn_cancel cancel) { return (*Pin<CancelPtr>(cancel))->requested.load(std::memory_order_relaxed); }

void wait_without_core(const std::function<void()>& wait) {
  const LentCore lent;
  wait();
}

void* function_of_module(const char* file, const char* symbol) {
  const std::string folder = os::own_folder();
  std::string why = "the folder of this library is not known";
  void* const library = folder.empty() ? nullptr : os::open_library((folder + file).c_str(), &why);
  if (library == nullptr) fail(EVN_ERROR_UNSUPPORTED, "%s is needed beside the library: %s", file, why.c_str());
  void* const function = os::find_symbol(library, symbol);
  if (function == nullptr) fail(EVN_ERROR_UNSUPPORTED, "%s is no module of this library: it has no %s", file, symbol);
  return function;
}

}  // namespace evn_train
