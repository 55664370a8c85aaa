#include "runtime/lower/plan_order.h"

#include <algorithm>
#include <array>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"

namespace evn {
namespace {

constexpr std::size_t kMostSteps = 1u << 14;  // of plans whose order is looked for: the time grows with the square of their width

// What a step does with a piece of memory that steps write.
struct Access {
  std::int32_t root;  // with memory of its own
  bool writes;
};

class StepOrder {
 public:
  StepOrder(const CompiledGraph& graph, Plan* plan, PlanState* state) : c_(graph), plan_(*plan), s_(*state) {}

  std::size_t run() {
    const std::size_t n = plan_.steps.size();
    if (n < 3 || n > kMostSteps || plan_.subplan != 0 || plan_.has_continuation() || !all_on_host()) return 0;
    find_accesses();
    find_edges();
    std::vector<std::int32_t> best(n);
    for (std::size_t i = 0; i < n; ++i) best[i] = static_cast<std::int32_t>(i);
    const std::size_t before = most_live(best);
    std::size_t least = before;
    for (const bool depth_first : {false, true}) {
      std::vector<std::int32_t> order = schedule(depth_first);
      const std::size_t live = most_live(order);
      if (live >= least) continue;
      least = live;
      best = std::move(order);
    }
    if (least == before) return 0;
    apply(best);
    return before - least;
  }

 private:
  // Steps of other devices, and those on pages of states, are not moved: what waits for what is decided by their order. Operators
  // of the host may do more than what they write.
  bool all_on_host() const {
    return std::all_of(plan_.steps.begin(), plan_.steps.end(), [&](const PlanStep& step) {
      if (step.kind == PlanStep::Kind::kKernel && c_.graph().nodes[static_cast<std::size_t>(step.node)].op->custom != nullptr)
        return false;
      return step.slot == 0 && (step.kind == PlanStep::Kind::kKernel || step.kind == PlanStep::Kind::kRelayout);
    });
  }

  std::int32_t owner_of(std::int32_t r) const {
    while (s_.roots[static_cast<std::size_t>(r)].view.exists()) r = s_.roots[static_cast<std::size_t>(r)].view.parent;
    return r;
  }

  // Parts of one piece of memory count as that piece.
  void find_accesses() {
    accesses_.resize(plan_.steps.size());
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const bool is_kernel = step.kind == PlanStep::Kind::kKernel;
      const std::size_t inputs = is_kernel ? step.desc.inputs.size() : 1;
      const std::size_t all = inputs + (is_kernel ? step.desc.outputs.size() : 1) + 1;
      for (std::size_t k = 0; k < all; ++k) {
        const std::int32_t r = s_.buffer_roots[step.buffers + k];
        if (r < 0) continue;
        const std::int32_t owner = owner_of(r);
        const Source source = s_.roots[static_cast<std::size_t>(owner)].source;
        if (source == Source::kArena || source == Source::kOutput) accesses_[i].push_back({owner, k >= inputs});
      }
    }
  }

  void add_edge(std::int32_t from, std::int32_t to) {
    if (from < 0 || from == to) return;
    after_[static_cast<std::size_t>(from)].push_back(to);
    ++before_[static_cast<std::size_t>(to)];
  }

  // A step comes behind who writes what it reads or writes, and behind who reads what it writes over.
  void find_edges() {
    const std::size_t n = plan_.steps.size();
    after_.resize(n);
    before_.assign(n, 0);
    uses_.assign(s_.roots.size(), 0);
    std::vector<std::int32_t> writer(s_.roots.size(), -1);
    std::vector<std::vector<std::int32_t>> readers(s_.roots.size());
    for (std::size_t i = 0; i < n; ++i) {
      const auto step = static_cast<std::int32_t>(i);
      for (const Access& a : accesses_[i]) {
        const auto r = static_cast<std::size_t>(a.root);
        ++uses_[r];
        add_edge(writer[r], step);
        if (a.writes) {
          for (const std::int32_t reader : readers[r]) add_edge(reader, step);
        }
      }
      for (const Access& a : accesses_[i]) {
        const auto r = static_cast<std::size_t>(a.root);
        if (a.writes) {
          writer[r] = step;
          readers[r].clear();
        } else {
          readers[r].push_back(step);
        }
      }
    }
  }

  std::size_t bytes_of(std::int32_t root) const {
    const PlanRoot& r = s_.roots[static_cast<std::size_t>(root)];
    return r.source == Source::kArena ? align_up(r.bytes + r.slack, c_.devices[0]->traits().alignment) : 0;
  }

  // What lives, step by step.
  struct Live {
    std::vector<std::uint32_t> left;  // uses of each root that are to come
    std::vector<bool> lives;
    std::size_t bytes = 0;

    Live(const std::vector<std::uint32_t>& uses) : left(uses), lives(uses.size(), false) {}
  };

  struct Change {
    std::size_t begins = 0, ends = 0;
  };
  // What a step would do. Roots that it uses twice count once.
  Change change_by(const Live& live, std::int32_t step) {
    Change change;
    const std::vector<Access>& all = accesses_[static_cast<std::size_t>(step)];
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto same = [&](const Access& a) { return a.root == all[i].root; };
      const auto upto = all.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::any_of(all.begin(), upto, same)) continue;
      const auto r = static_cast<std::size_t>(all[i].root);
      const std::size_t bytes = bytes_of(all[i].root);
      if (!live.lives[r]) change.begins += bytes;
      if (live.left[r] == static_cast<std::uint32_t>(std::count_if(all.begin(), all.end(), same))) change.ends += bytes;
    }
    return change;
  }

  // Returns the bytes that live while the step runs.
  std::size_t take(Live* live, std::int32_t step) {
    const Change change = change_by(*live, step);
    const std::size_t meanwhile = live->bytes + change.begins;
    for (const Access& a : accesses_[static_cast<std::size_t>(step)]) {
      const auto r = static_cast<std::size_t>(a.root);
      live->lives[r] = true;
      --live->left[r];
    }
    live->bytes = meanwhile - change.ends;
    return meanwhile;
  }

  std::size_t most_live(const std::vector<std::int32_t>& order) {
    Live live(uses_);
    std::size_t most = 0;
    for (const std::int32_t step : order) most = std::max(most, take(&live, step));
    return most;
  }

  // Picks, among the steps that may come next, the one that leaves the least behind; `depth_first`: of those that read what was
  // made last.
  std::vector<std::int32_t> schedule(bool depth_first) {
    std::vector<std::int32_t> waits = before_;
    std::vector<std::int32_t> ready, order;
    std::vector<std::int32_t> ready_since(waits.size(), 0);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i] == 0) ready.push_back(static_cast<std::int32_t>(i));
    }
    Live live(uses_);
    order.reserve(waits.size());
    while (!ready.empty()) {
      cancellation_point(kNodeWork);
      std::size_t best = 0;
      std::array<std::int64_t, 4> least{};
      for (std::size_t i = 0; i < ready.size(); ++i) {
        const Change change = change_by(live, ready[i]);
        const auto net = static_cast<std::int64_t>(change.begins) - static_cast<std::int64_t>(change.ends);
        const std::int64_t recency = depth_first ? -ready_since[static_cast<std::size_t>(ready[i])] : 0;
        const std::array<std::int64_t, 4> score{net <= 0 ? 0 : 1, recency, net, ready[i]};
        if (i == 0 || score < least) {
          least = score;
          best = i;
        }
      }
      const std::int32_t step = ready[best];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(best));
      take(&live, step);
      order.push_back(step);
      for (const std::int32_t next : after_[static_cast<std::size_t>(step)]) {
        if (--waits[static_cast<std::size_t>(next)] != 0) continue;
        ready_since[static_cast<std::size_t>(next)] = static_cast<std::int32_t>(order.size());
        ready.push_back(next);
      }
    }
    EVN_CHECK(order.size() == waits.size());
    return order;
  }

  void apply(const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> place(order.size());
    std::vector<PlanStep> steps;
    steps.reserve(order.size());
    for (const std::int32_t from : order) {
      place[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(steps.size());
      steps.push_back(plan_.steps[static_cast<std::size_t>(from)]);
    }
    plan_.steps = std::move(steps);
    for (std::int32_t& step : s_.step_of) {
      if (step >= 0) step = place[static_cast<std::size_t>(step)];
    }
    for (std::int32_t& step : s_.other_steps) step = place[static_cast<std::size_t>(step)];
    std::vector<bool> seen(s_.roots.size(), false);
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Access& a : accesses_[static_cast<std::size_t>(order[i])]) {
        PlanRoot& r = s_.roots[static_cast<std::size_t>(a.root)];
        if (!seen[static_cast<std::size_t>(a.root)]) r.first = static_cast<std::int32_t>(i);
        r.last = static_cast<std::int32_t>(i);
        seen[static_cast<std::size_t>(a.root)] = true;
      }
    }
  }

  const CompiledGraph& c_;
  Plan& plan_;
  PlanState& s_;
  std::vector<std::vector<Access>> accesses_;     // per step
  std::vector<std::vector<std::int32_t>> after_;  // per step: those that wait for it, once for each reason
  std::vector<std::int32_t> before_;              // per step: how many reasons it waits for
  std::vector<std::uint32_t> uses_;               // per root
};

}  // namespace

std::size_t order_steps(const CompiledGraph& graph, Plan* plan, PlanState* state) { return StepOrder(graph, plan, state).run(); }

}  // namespace evn
