#include "runtime/lower/plan_order.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"

namespace evn {
namespace {

// Use of a piece of memory by a step.
struct Use {
  std::int32_t root;  // with memory of its own
  bool writes;
};

class StepOrder {
 public:
  StepOrder(const CompiledGraph& graph, Plan* plan, PlanState* state) : c_(graph), plan_(*plan), s_(*state) {}

  std::size_t run() {
    const std::size_t n = plan_.steps.size();
    if (n < 3 || plan_.subplan != 0 || plan_.has_continuation() || !all_on_host()) return 0;
    find_uses();
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
  void find_uses() {
    uses_.resize(plan_.steps.size());
    std::vector<std::int32_t> place(s_.roots.size(), -1);  // per root: its place among the uses of a step
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const bool is_kernel = step.kind == PlanStep::Kind::kKernel;
      const std::size_t inputs = is_kernel ? step.desc.inputs.size() : 1;
      const std::size_t all = inputs + (is_kernel ? step.desc.outputs.size() : 1) + 1;
      for (std::size_t k = 0; k < all; ++k) {
        cancellation_point(4);
        const std::int32_t r = s_.buffer_roots[step.buffers + k];
        if (r < 0) continue;
        const std::int32_t owner = owner_of(r);
        const Source source = s_.roots[static_cast<std::size_t>(owner)].source;
        if (source != Source::kArena && source != Source::kOutput) continue;
        std::int32_t& at = place[static_cast<std::size_t>(owner)];
        if (at < 0) {
          at = static_cast<std::int32_t>(uses_[i].size());
          uses_[i].push_back({owner, false});
        }
        uses_[i][static_cast<std::size_t>(at)].writes |= k >= inputs;
      }
      for (const Use& use : uses_[i]) place[static_cast<std::size_t>(use.root)] = -1;
    }
  }

  void add_edge(std::int32_t from, std::int32_t to) {
    cancellation_point();
    if (from < 0 || from == to) return;
    after_[static_cast<std::size_t>(from)].push_back(to);
    ++before_[static_cast<std::size_t>(to)];
  }

  // A step comes behind who writes what it reads or writes, and behind who reads what it writes over.
  void find_edges() {
    const std::size_t n = plan_.steps.size();
    after_.resize(n);
    before_.assign(n, 0);
    root_uses_.assign(s_.roots.size(), {});
    std::vector<std::int32_t> writer(s_.roots.size(), -1);
    std::vector<std::vector<std::int32_t>> readers(s_.roots.size());
    for (std::size_t i = 0; i < n; ++i) {
      const auto step = static_cast<std::int32_t>(i);
      for (const Use& use : uses_[i]) {
        RootUses& all = root_uses_[static_cast<std::size_t>(use.root)];
        ++all.steps;
        all.sum += i;
        const auto r = static_cast<std::size_t>(use.root);
        add_edge(writer[r], step);
        if (!use.writes) {
          readers[r].push_back(step);
          continue;
        }
        for (const std::int32_t reader : readers[r]) add_edge(reader, step);
        writer[r] = step;
        readers[r].clear();
      }
    }
  }

  std::size_t bytes_of(std::int32_t root) const {
    const PlanRoot& r = s_.roots[static_cast<std::size_t>(root)];
    return r.source == Source::kArena ? align_up(r.bytes + r.slack, c_.devices[0]->traits().alignment) : 0;
  }

  // Steps that are still to use a root. The only one that is left is known by the sum.
  struct RootUses {
    std::uint32_t steps = 0;  // number of steps
    std::uint64_t sum = 0;    // of the numbers of these steps
  };

  // Memory in use, step by step.
  struct Live {
    std::vector<RootUses> left;  // per root: uses that are to come
    std::vector<bool> lives;     // per root
    std::size_t bytes = 0;

    Live(const std::vector<RootUses>& uses) : left(uses), lives(uses.size(), false) {}
  };

  struct Change {
    std::size_t begins = 0, ends = 0;
    std::int64_t net() const { return static_cast<std::int64_t>(begins) - static_cast<std::int64_t>(ends); }
  };
  // What a step would do. Roots that it uses several times count once.
  Change change_by(const Live& live, std::int32_t step) const {
    Change change;
    for (const Use& use : uses_[static_cast<std::size_t>(step)]) {
      cancellation_point();
      const auto r = static_cast<std::size_t>(use.root);
      const std::size_t bytes = bytes_of(use.root);
      if (!live.lives[r]) change.begins += bytes;
      if (live.left[r].steps == 1) change.ends += bytes;
    }
    return change;
  }

  // Returns the bytes that live while the step runs.
  std::size_t take(Live* live, std::int32_t step) const {
    const Change change = change_by(*live, step);
    const std::size_t meanwhile = live->bytes + change.begins;
    for (const Use& use : uses_[static_cast<std::size_t>(step)]) {
      const auto r = static_cast<std::size_t>(use.root);
      live->lives[r] = true;
      --live->left[r].steps;
      live->left[r].sum -= static_cast<std::uint64_t>(step);
    }
    live->bytes = meanwhile - change.ends;
    return meanwhile;
  }

  std::size_t most_live(const std::vector<std::int32_t>& order) const {
    Live live(root_uses_);
    std::size_t most = 0;
    for (const std::int32_t step : order) most = std::max(most, take(&live, step));
    return most;
  }

  // Picks, among the steps that may come next, the one that leaves the least behind; `depth_first`: of those that read what was
  // made last. The score of a step that waits changes only when it becomes the last one to use a root: other steps that use a root
  // that nobody has used yet wait for the step that uses it first.
  std::vector<std::int32_t> schedule(bool depth_first) const {
    using Score = std::array<std::int64_t, 4>;
    std::vector<std::int32_t> waits = before_;
    std::vector<std::int32_t> order;
    std::vector<std::int64_t> ready_since(waits.size(), 0);
    std::vector<std::int64_t> net(waits.size(), 0);  // per step that is ready
    std::set<Score> ready;
    Live live(root_uses_);
    const auto score = [&](std::int32_t step) {
      const auto i = static_cast<std::size_t>(step);
      return Score{net[i] <= 0 ? 0 : 1, depth_first ? -ready_since[i] : 0, net[i], step};
    };
    const auto add = [&](std::int32_t step) {
      net[static_cast<std::size_t>(step)] = change_by(live, step).net();
      ready.insert(score(step));
    };
    for (std::size_t i = 0; i < waits.size(); ++i) {
      cancellation_point(kNodeWork);
      if (waits[i] == 0) add(static_cast<std::int32_t>(i));
    }
    order.reserve(waits.size());
    while (!ready.empty()) {
      cancellation_point(kNodeWork);
      const auto step = static_cast<std::int32_t>((*ready.begin())[3]);
      ready.erase(ready.begin());
      take(&live, step);
      waits[static_cast<std::size_t>(step)] = -1;
      order.push_back(step);
      for (const Use& use : uses_[static_cast<std::size_t>(step)]) {
        const RootUses& left = live.left[static_cast<std::size_t>(use.root)];
        if (left.steps != 1 || waits[left.sum] != 0) continue;
        const auto last = static_cast<std::int32_t>(left.sum);
        ready.erase(score(last));
        net[left.sum] -= static_cast<std::int64_t>(bytes_of(use.root));
        ready.insert(score(last));
      }
      for (const std::int32_t next : after_[static_cast<std::size_t>(step)]) {
        cancellation_point();
        if (--waits[static_cast<std::size_t>(next)] != 0) continue;
        ready_since[static_cast<std::size_t>(next)] = static_cast<std::int64_t>(order.size());
        add(next);
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
    for (std::size_t node = 0; node < s_.step_of.size(); ++node) {
      std::int32_t& step = s_.step_of[node];
      if (step >= 0) step = place[static_cast<std::size_t>(step)];
    }
    for (std::int32_t& step : s_.other_steps) step = place[static_cast<std::size_t>(step)];
    std::vector<bool> seen(s_.roots.size(), false);
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Use& use : uses_[static_cast<std::size_t>(order[i])]) {
        cancellation_point();
        PlanRoot& r = s_.roots[static_cast<std::size_t>(use.root)];
        if (!seen[static_cast<std::size_t>(use.root)]) r.first = static_cast<std::int32_t>(i);
        r.last = static_cast<std::int32_t>(i);
        seen[static_cast<std::size_t>(use.root)] = true;
      }
    }
  }

  const CompiledGraph& c_;
  Plan& plan_;
  PlanState& s_;
  std::vector<std::vector<std::int32_t>> after_;  // per step: those that wait for it, once for each reason
  std::vector<std::int32_t> before_;              // per step: how many reasons it waits for
  std::vector<std::vector<Use>> uses_;            // per step
  std::vector<RootUses> root_uses_;
};

}  // namespace

std::size_t order_steps(const CompiledGraph& graph, Plan* plan, PlanState* state) { return StepOrder(graph, plan, state).run(); }

}  // namespace evn
