#include "runtime/memory_ladder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "runtime/cost/measure.h"

namespace evn {
namespace {

// What the CPU would hold for a session and a run with the dims that the model declares, or that a search would assume.
std::uint64_t bytes_needed(const ModelPtr& model, const SessionRequest& request) {
  const CompiledGraph c = compile_unpacked(model, request);
  std::uint64_t bytes = 0;
  std::set<std::tuple<const Weight*, const Kernel*, std::size_t>> seen;
  for (const CompiledNode& n : c.nodes) {
    for (std::size_t k = 0; n.slot == 0 && k < n.packed.size(); ++k) {
      if (n.packed[k].memory == nullptr || !seen.insert({n.constants[k].get(), n.kernel, k}).second) continue;
      bytes = checked_add<std::uint64_t>(bytes, n.packed[k].size);
    }
  }
  try {
    std::shared_ptr<Plan> plan;
    fitting_inputs(*model->runtime, c.graph(), request.assumed_inputs,
                   [&](const std::vector<TensorDesc>& inputs) { plan = make_plan(c, signature_of_zeros(c, inputs)); });
    bytes = checked_add<std::uint64_t>(bytes, plan->arena_bytes[0]);
    for (const TensorDesc& output : plan->outputs) {
      if (output.dtype != DType::kUndefined && !output.wraps) bytes = checked_add<std::uint64_t>(bytes, output.size_bytes());
    }
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_OUT_OF_MEMORY) throw;
  }  // dims that nobody knows before a run: what is packed alone counts
  return bytes;
}

const Device* device_of(const Runtime& runtime, const char* name) {
  for (std::size_t i = 0; const Device* const device = runtime.device_at(i); ++i) {
    if (device->name() == name) return device;
  }
  return nullptr;
}

// The request with small kernels where only these fit, or fit better.
SessionRequest settle_plan(const ModelPtr& model, SessionRequest request, std::string* spared) {
  Runtime& runtime = *model->runtime;
  request.memory = memory_plan_of(runtime, request);
  Pool& pool = runtime.cpu().pool();
  if (request.memory == MemoryPlan::kSmall || !pool.is_limited()) return request;
  const std::uint64_t left = pool.left();
  const std::uint64_t fast = bytes_needed(model, request);
  if (fast <= left) return request;
  SessionRequest small = request;
  small.memory = MemoryPlan::kSmall;
  const std::uint64_t least = bytes_needed(model, small);
  if (least >= fast) return request;
  *spared = "kernels of small packed weights: " + std::to_string(fast - least) + " bytes less";
  LogEvent(runtime.log(), EVN_LOG_INFO, "memory.spared")
      .device(runtime.cpu().name().c_str())
      .field("step", "kernels")
      .field("file", model->file_name.c_str())
      .field("bytes", fast - least)
      .field("bytes_needed", fast)
      .field("bytes_available", left)
      .write("%s needs %llu bytes and %llu are left: other kernels, %llu bytes less", model->file_name.c_str(),
             static_cast<unsigned long long>(fast), static_cast<unsigned long long>(left),
             static_cast<unsigned long long>(fast - least));
  return small;
}

}  // namespace

MemoryPlan memory_plan_of(const Runtime& runtime, const SessionRequest& request) {
  if (request.memory != MemoryPlan::kDefault) return request.memory;
  const MemoryPlan configured = runtime.config().session.memory;
  return configured != MemoryPlan::kDefault ? configured : MemoryPlan::kFast;
}

CompiledGraph compile_to_fit(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache) {
  std::string spared;
  SessionRequest tried = settle_plan(model, request, &spared);
  std::optional<Error> refused;
  for (;;) {
    try {
      CompiledGraph c = compile(model, tried, cache);
      c.spared = std::move(spared);
      return c;
    } catch (const Error& e) {
      if (refused && e.status == EVN_ERROR_UNSUPPORTED) throw *refused;  // nodes that may go nowhere else
      if (e.status != EVN_ERROR_OUT_OF_MEMORY) throw;
      const Device* const full = device_of(*model->runtime, e.device);
      const bool is_new = full != nullptr && std::find(tried.full.begin(), tried.full.end(), full) == tried.full.end();
      if (!refused) refused = e;
      if (!is_new || full == &model->runtime->cpu()) throw *refused;
      tried.full.push_back(full);
      LogEvent(model->runtime->log(), EVN_LOG_WARNING, "memory.moved")
          .device(e.device)
          .field("file", model->file_name.c_str())
          .field("bytes_requested", e.bytes_requested)
          .field("bytes_available", e.bytes_available)
          .write("device %s has no memory for %s: its nodes go elsewhere where that is allowed: %s", e.device,
                 model->file_name.c_str(), e.message);
      spared += (spared.empty() ? "" : "; ") + std::string("device ") + e.device + " was full: " + e.message;
    }
  }
}

}  // namespace evn
