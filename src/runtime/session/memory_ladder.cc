#include "runtime/session/memory_ladder.h"

#include <set>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "base/guarded.h"
#include "runtime/lower/assumed_inputs.h"
#include "runtime/placement/placement_settings.h"

namespace evn {
namespace {

struct Need {
  std::uint64_t packed = 0;  // bytes of packed weights on the CPU
  std::uint64_t run = 0;     // of a run's intermediate values, in the order of steps that takes the least, and outputs
  std::uint64_t total() const { return checked_add(packed, run); }
};

// What the CPU would hold for a session and a run with the dims that the model declares, or that a search would assume.
Need need_of(const ModelPtr& model, const SessionRequest& request) {
  const CompiledGraph c = compile_unpacked(model, request);
  Need need;
  std::set<std::tuple<const Weight*, const Kernel*, std::size_t>> seen;
  for (const CompiledNode& n : c.nodes) {
    for (std::size_t k = 0; n.slot == 0 && k < n.packed.size(); ++k) {
      if (n.packed[k].memory == nullptr || !seen.insert({n.constants[k].get(), n.kernel, k}).second) continue;
      need.packed = checked_add<std::uint64_t>(need.packed, n.packed[k].size);
    }
  }
  try {
    std::shared_ptr<Plan> plan;
    fitting_inputs(*model->runtime, c.graph(), request.assumed_inputs,
                   [&](const std::vector<TensorDesc>& inputs) { plan = make_plan(c, signature_of_zeros(c, inputs), true); });
    need.run = plan->arena_bytes[0];
    for (std::size_t j = 0; j < plan->outputs.size(); ++j) {
      const TensorDesc& output = plan->outputs[j];
      if (output.dtype != DType::kUndefined && !output.wraps) need.run = checked_add<std::uint64_t>(need.run, output.size_bytes());
    }
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_OUT_OF_MEMORY) throw;
  }  // dims that nobody knows before a run: what is packed alone counts
  return need;
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
  request.memory = memory_plan_of(request);
  Pool& pool = runtime.cpu().pool();
  if (request.memory == MemoryPlan::kSmall || !pool.is_limited()) return request;
  const std::uint64_t left = pool.left();
  const Need fast = need_of(model, request);
  if (fast.total() <= left) return request;
  SessionRequest small = request;
  small.memory = MemoryPlan::kSmall;
  const Need least = need_of(model, small);
  if (least.packed >= fast.packed || least.total() >= fast.total()) return request;
  const std::uint64_t bytes = fast.total() - least.total();
  *spared = "kernels of small packed weights: " + std::to_string(bytes) + " bytes less";
  LogEvent(runtime.log(), EVN_LOG_INFO, "memory.spared")
      .device(runtime.cpu().name().c_str())
      .field("step", "kernels")
      .field("file", model->file_name.c_str())
      .field("bytes", bytes)
      .field("bytes_needed", fast.total())
      .field("bytes_available", left)
      .write("%s needs %llu bytes and %llu are left: other kernels, %llu bytes less", model->file_name.c_str(),
             static_cast<unsigned long long>(fast.total()), static_cast<unsigned long long>(left),
             static_cast<unsigned long long>(bytes));
  return small;
}

}  // namespace

MemoryPlan memory_plan_of(const SessionRequest& request) {
  if (request.memory != MemoryPlan::kDefault) return request.memory;
  const MemoryPlan configured = request.settings->config.session.memory;
  return configured != MemoryPlan::kDefault ? configured : MemoryPlan::kFast;
}

void leave_out_full(const Runtime& runtime, const Error& failure, std::optional<Error>* first, SessionRequest* request) {
  if (*first && failure.status == EVN_ERROR_UNSUPPORTED) throw **first;  // nodes that may go nowhere else
  if (failure.status != EVN_ERROR_OUT_OF_MEMORY) throw failure;
  if (!*first) *first = failure;
  const Device* const full = device_of(runtime, failure.device);
  if (full == nullptr || full == &runtime.cpu() || is_full(*request, *full)) throw **first;
  request->role.full.push_back({full, failure.message});
}

CompiledGraph compile_to_fit(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache) {
  std::string spared;
  SessionRequest tried = settle_plan(model, request, &spared);
  std::optional<Error> first;
  for (;;) {
    std::optional<CompiledGraph> c;
    const std::optional<Error> failure = error_of([&] { c.emplace(compile(model, tried, cache)); });
    if (!failure) {
      for (const FullDevice& f : tried.role.full)
        spared += (spared.empty() ? "" : "; ") + ("device " + f.device->name() + " was full: " + f.why);
      c->spared = std::move(spared);
      return std::move(*c);
    }
    const Error& e = *failure;
    leave_out_full(*model->runtime, e, &first, &tried);
    LogEvent(model->runtime->log(), EVN_LOG_WARNING, "memory.moved")
        .device(e.device)
        .field("file", model->file_name.c_str())
        .field("bytes_requested", e.bytes_requested)
        .field("bytes_available", e.bytes_available)
        .write("device %s has no memory for %s: its nodes go elsewhere where that is allowed: %s", e.device,
               model->file_name.c_str(), e.message);
  }
}

}  // namespace evn
