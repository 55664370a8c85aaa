#include "runtime/cost/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/cancel.h"
#include "base/error.h"
#include "runtime/cost/plan_cost.h"
#include "runtime/cost/step_features.h"
#include "runtime/run/trace.h"

namespace evn {
namespace {

constexpr int kMostRuns = 5;
constexpr std::uint64_t kLastRunAfterNs = 400'000'000;  // after which no further run is begun
constexpr std::size_t kCopySizes[] = {4096, 4u << 20};
constexpr int kCopies = 7;

// What copies use that are measured.
struct Copied {
  PooledMemory there;
  std::vector<char> here;
};

// The least time of a copy with the wait for its end.
double time_copy(Device& device, const Location& from, const Location& to, const std::shared_ptr<const Copied>& held) {
  static const Cancel kNever;
  const Cancel* const scope = CancelScope::current();
  double least = HUGE_VAL;
  for (int i = 0; i < kCopies; ++i) {
    cancellation_point(kWorkPerLook);
    const std::uint64_t begin = os::now_ns();
    device.wait_or_leave(device.copy(from, to, {}), scope != nullptr ? *scope : kNever, held);
    least = std::min(least, static_cast<double>(os::now_ns() - begin));
  }
  return least;
}

CopyCost fit(const double (&ns)[2]) {
  const double slope = std::max(0.0, (ns[1] - ns[0]) / static_cast<double>(kCopySizes[1] - kCopySizes[0]));
  return {std::max(0.0, ns[0] - slope * static_cast<double>(kCopySizes[0])), slope};
}

bool is_traced(const PlanStep& step) { return step.kind <= PlanStep::Kind::kRelayout; }

// The steps of all parts of a run.
std::vector<const PlanStep*> traced_steps(const std::vector<std::shared_ptr<const Plan>>& chain) {
  std::vector<const PlanStep*> steps;
  for (const auto& plan : chain) {
    for (const PlanStep& step : plan->steps) {
      if (is_traced(step)) steps.push_back(&step);
    }
  }
  return steps;
}

}  // namespace

std::vector<RunValue> zeros_of(const std::shared_ptr<Runtime>& runtime, std::span<const TensorDesc> descs) {
  std::vector<RunValue> values;
  for (const TensorDesc& desc : descs) values.push_back({std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false), nullptr});
  return values;
}

void measure_copies(Device& device, CostTables& tables) {
  if (device.traits().host_addressable || tables.with(device, [](const CostTable& t) { return t.has_copies; })) return;
  const std::size_t most = kCopySizes[1];
  device.require_ready(CancelScope::current() != nullptr ? *CancelScope::current() : Cancel());
  const auto used = std::make_shared<Copied>(Copied{device.allocate(most, MemoryClass::kScratch), std::vector<char>(most)});
  double up[2], down[2];
  for (int i = 0; i < 2; ++i) {
    const Location host{nullptr, {used->here.data(), 0, kCopySizes[i]}};
    const Location far{&device, {used->there.memory(), 0, kCopySizes[i]}};
    up[i] = time_copy(device, host, far, used);
    down[i] = time_copy(device, far, host, used);
  }
  tables.with(device, [&](CostTable& t) {
    t.upload = fit(up);
    t.download = fit(down);
    t.has_copies = true;
  });
}

double least_run(Session& session, std::span<const RunValue> inputs, int runs) {
  double least = HUGE_VAL;
  int done = 0;
  const std::uint64_t start = os::now_ns();
  do {
    cancellation_point(kWorkPerLook);
    std::vector<RunValue> outputs(session.graph().outputs.size());
    const std::uint64_t begin = os::now_ns();
    session.run(inputs, outputs, {});
    least = std::min(least, static_cast<double>(os::now_ns() - begin));
  } while (++done < runs && os::now_ns() - start < kLastRunAfterNs);
  return least;
}

namespace {

// The least time of each step, over some traced runs; HUGE_VAL: it was not seen.
std::vector<double> trace_steps(Session& session, std::span<const RunValue> inputs, const std::vector<const PlanStep*>& steps,
                                std::size_t parts, int runs) {
  const CompiledGraph& graph = session.compiled();
  const std::size_t threads = std::min<std::size_t>(graph.devices[0]->traits().compute_units, StepTrace::kThreads);
  const std::size_t per_run = (steps.size() + graph.graph().nodes.size()) * (1 + threads) + 8 * (parts + graph.devices.size());
  session.tracing().start(session.shared_graph(),
                          static_cast<std::uint32_t>(std::min<std::size_t>(per_run * static_cast<std::size_t>(runs), 1u << 20)),
                          true);
  try {
    for (int i = 0; i < runs; ++i) least_run(session, inputs, 1);
  } catch (...) {
    session.tracing().stop();
    throw;
  }
  session.tracing().stop();
  std::vector<double> least(steps.size(), HUGE_VAL);
  std::size_t at = 0;
  const std::shared_ptr<const Trace> trace = session.tracing().recorded();
  for (const TraceEvent* e : trace->events()) {
    if ((e->kind != TraceKind::kKernel && e->kind != TraceKind::kCopy) || steps.empty()) continue;
    const std::size_t i = at++ % steps.size();
    if (e->kernel == steps[i]->kernel && e->node == steps[i]->node)
      least[i] = std::min(least[i], static_cast<double>(e->busy_ns()));
  }
  return least;
}

}  // namespace

double measure_steps(Session& session, std::span<const RunValue> inputs, CostTables& tables, bool sets_submission) {
  const CompiledGraph& graph = session.compiled();
  least_run(session, inputs, 1);  // makes the plan; caches are cold
  const double run_ns = least_run(session, inputs, kMostRuns);
  const std::vector<std::shared_ptr<const Plan>> chain = session.plans().latest();
  const std::vector<const PlanStep*> steps = traced_steps(chain);
  const int runs = std::max(1, std::min(kMostRuns, static_cast<int>(static_cast<double>(kLastRunAfterNs) / std::max(run_ns, 1.0))));
  const std::vector<double> times = trace_steps(session, inputs, steps, chain.size(), runs);

  struct Sum {
    StepFeatures features;
    double ns = 0;
    int count = 0;
  };
  std::map<std::pair<const Device*, std::uint64_t>, Sum> by_key;
  double all_ns = 0;
  std::size_t queued_kernels = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (times[i] == HUGE_VAL) continue;
    all_ns += times[i];
    if (steps[i]->kernel == nullptr) continue;
    const Device* const device = graph.devices[steps[i]->slot];
    queued_kernels += device->traits().host_addressable ? 0u : 1u;
    const StepFeatures features = features_of(graph, *steps[i]);
    Sum& sum = by_key.try_emplace({device, features.key}, Sum{features}).first->second;
    sum.ns += times[i];
    ++sum.count;
  }
  // Steps that are waited for one by one take longer than in a queue that is never empty.
  const double scale = all_ns > run_ns ? run_ns / all_ns : 1;
  for (const auto& [key, sum] : by_key) {
    tables.with(*key.first, [&, s = sum](CostTable& t) { t.add(s.features, scale * s.ns / s.count); });
  }
  // What is not in the steps is between those of a device with a queue.
  const double gap = std::max(0.0, run_ns - scale * all_ns) / static_cast<double>(std::max<std::size_t>(queued_kernels, 1));
  for (const Device* device : graph.devices) {
    if (!device->traits().host_addressable && sets_submission) tables.with(*device, [&](CostTable& t) { t.submission_ns = gap; });
  }
  return run_ns;
}

}  // namespace evn
