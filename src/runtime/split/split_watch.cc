#include "runtime/split/split_watch.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "runtime/split/operator_split.h"

namespace evn {
namespace {

constexpr std::uint64_t kEvery = 64;  // runs, of which one is measured
constexpr double kWorthMoving = 0.9;  // of the time that the shares of now take
constexpr std::uint32_t kMostEvents = 1u << 16;

// The first run makes the plan, and finds caches cold. Then at every power of two, and at last every 64th.
bool is_looked_at(std::uint64_t run) { return run >= 1 && (run < kEvery ? std::has_single_bit(run) : run % kEvery == 0); }

}  // namespace

std::unique_ptr<SplitWatch> SplitWatch::make(const CompiledGraph& graph, SessionIdentity& identity) {
  if (graph.model == nullptr || graph.model->parts.empty()) return nullptr;
  std::unique_ptr<SplitWatch> watch(new SplitWatch(graph, identity));
  watch->find_parts();
  return watch;
}

void SplitWatch::find_parts() {
  const Graph& graph = graph_.graph();
  std::vector<std::int32_t> node_of(graph_.model->parts.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].part >= 0) node_of[static_cast<std::size_t>(graph.nodes[i].part)] = static_cast<std::int32_t>(i);
  }
  for (std::size_t p = 0; p < node_of.size(); ++p) {
    EVN_CHECK(node_of[p] >= 0);
    const Node& node = graph.nodes[static_cast<std::size_t>(node_of[p])];
    if (splits_.empty() || splits_.back() != node.part_of) splits_.push_back(node.part_of);
    const NodePart& part = graph_.model->parts[p];
    parts_.push_back({node_of[p], splits_.size() - 1, part.device, part.units, 0});
  }
}

std::shared_ptr<Trace> SplitWatch::begin_run() noexcept {
  if (!graph_.settings->config.measure_costs) return nullptr;
  const std::uint64_t run = runs_.fetch_add(1, std::memory_order_relaxed);
  if (!is_looked_at(run) && !again_.exchange(false, std::memory_order_relaxed)) return nullptr;
  const std::size_t steps = 3 * graph_.graph().nodes.size() + 64;
  const std::size_t threads = std::min<std::size_t>(graph_.devices[0]->traits().compute_units, StepTrace::kThreads);
  const std::size_t events = std::min<std::size_t>(steps * (1 + threads), kMostEvents);
  try {
    return std::make_shared<Trace>(graph_, static_cast<std::uint32_t>(events));
  } catch (...) {  // no memory for it
    return nullptr;
  }
}

void SplitWatch::run(Session& session, StagedRun& run, const RunRest& rest) {
  const std::shared_ptr<Trace> trace = run.request.is_warm ? nullptr : begin_run();
  run.trace = trace;
  rest(run);
  if (trace != nullptr) note_run(session, *trace);
}

void SplitWatch::note_run(const Session& session, const Trace& trace) noexcept {
  try {
    if (!note(trace)) return;
    if (const std::shared_ptr<PlacementOwner> owner = identity_.owner.lock()) owner->share_anew(session);
  } catch (...) {  // no memory to think about it: the shares stay
  }
}

bool SplitWatch::note(const Trace& trace) {
  std::vector<double> ns(graph_.graph().nodes.size(), 0);
  for (const TraceEvent* e : trace.events()) {
    if (e->kind == TraceKind::kKernel && e->node >= 0) ns[static_cast<std::size_t>(e->node)] += static_cast<double>(e->busy_ns());
  }
  double now = 0, then = 0;
  const std::lock_guard<Mutex> lock(mutex_);
  for (std::size_t begin = 0, end; begin < parts_.size(); begin = end) {
    std::vector<double> unit_ns;
    std::vector<std::int64_t> units;
    std::int64_t all = 0;
    bool is_known = true;
    for (end = begin; end < parts_.size() && parts_[end].split == parts_[begin].split; ++end) {
      Part& p = parts_[end];
      p.latest_ns = ns[static_cast<std::size_t>(p.node)];
      is_known &= p.latest_ns > 0;
      units.push_back(p.units);
      all += p.units;
    }
    if (!is_known) continue;  // it was in a branch that was not taken
    std::vector<double> fixed_ns;
    for (std::size_t i = begin; i < end; ++i) {
      const Part& p = parts_[i];
      const double unit = identity_.speeds.add(splits_[p.split], p.device, p.latest_ns / static_cast<double>(p.units));
      const NodePart& costs = graph_.model->parts[i];
      unit_ns.push_back(unit + costs.copy_ns);
      fixed_ns.push_back(costs.fixed_ns);
    }
    now += end_of(units, unit_ns, fixed_ns);
    then += end_of(share_units(all, unit_ns, fixed_ns), unit_ns, fixed_ns);
  }
  const bool is_better = then < kWorthMoving * now;
  if (!is_better) {
    seen_ = false;
    return false;
  }
  if (!seen_) again_.store(true, std::memory_order_relaxed);
  return std::exchange(seen_, !seen_);
}

void SplitWatch::explain(DividedWork* work) const {
  const std::lock_guard<Mutex> lock(mutex_);
  std::vector<std::int64_t> all(splits_.size(), 0);
  for (const Part& p : parts_) all[p.split] += p.units;
  for (const Part& p : parts_) work->units.push_back({splits_[p.split], p.device, p.units, all[p.split], p.latest_ns});
}

}  // namespace evn
