#include "runtime/session/compile_shared.h"

#include "base/heap.h"
#include "runtime/lower/plan.h"
#include "runtime/session/memory_ladder.h"

namespace evn {
namespace {

// All that compiling looks at.
std::string key_of(const SessionRequest& request, const CacheConfig& cache, const std::string& out) {
  std::string key = std::to_string(static_cast<int>(request.precision)) + " " + std::to_string(static_cast<int>(request.numerics)) +
                    " " + std::to_string(static_cast<int>(request.products)) + (request.joins_requests() ? " joins" : "") +
                    (request.role.raw_outputs ? " raw" : "") + (cache.map ? " map" : "") + (cache.write ? " write" : "");
  const auto add = [&](const std::string& text) { key += " " + std::to_string(text.size()) + ":" + text; };
  key += " settings " + std::to_string(request.settings->generation);
  add(out);
  add(request.device);
  if (request.arena_limit != 0) key += " limit " + std::to_string(request.arena_limit);
  for (const WarmRun::Input& input : request.assumed_inputs) {
    add(input.name);
    for (const std::int64_t dim : input.dims) key += " " + std::to_string(dim);
  }
  add(cache.file);
  if (request.role.whole_nodes != nullptr) {
    for (const auto& [node, why] : *request.role.whole_nodes) add(node + " " + why);
  }
  for (const FullDevice& f : request.role.full) {
    key += " full";
    add(f.device->name());
  }
  for (const auto* list : {&request.keep_fp32, &request.disabled_passes}) {
    key += " " + std::to_string(list->size());
    for (const std::string& text : *list) add(text);
  }
  return key;
}

}  // namespace

std::shared_ptr<const CompiledGraph> compile_shared(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache,
                                                    const FindPlaces& find_places) {
  const HeapReclaim allowed(true);
  const auto make = [&](const SessionRequest& placed) {
    auto made = std::make_shared<CompiledGraph>(compile_to_fit(model, placed, cache));
    made->plans = std::make_shared<SharedPlans>();
    made->arena_limit = request.arena_limit;
    return made;
  };
  if (request.role.assigned != nullptr) return make(request);  // a placement that is tried out is nobody else's
  const bool may_write = !cache.file.empty() && cache.write;
  CompiledGraphs& all = model->compiled;
  std::string key = key_of(request, cache, model->runtime->devices_out());
  if (memory_plan_of(request) == MemoryPlan::kSmall) key += " small";
  if (!may_write) {
    if (std::shared_ptr<const CompiledGraph> found = all.find(key)) return found;
  }
  SessionRequest placed = request;
  if (find_places != nullptr) placed.role.assigned = find_places();
  return all.add(std::move(key), make(placed));
}

}  // namespace evn
