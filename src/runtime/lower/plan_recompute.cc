#include "runtime/lower/plan_recompute.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"
#include "memory/recompute.h"
#include "runtime/lower/plan_arenas.h"
#include "runtime/lower/plan_order.h"

namespace evn {
namespace {

constexpr std::size_t kMostSteps = 1u << 14;  // of plans for which it is searched: the time grows with the square
constexpr int kMostTries = 16;                // to place what was found
constexpr std::uint64_t kTargetSteps = 100;
// Operations that take as long as a byte that is read or written: of the search, so that the ratio alone counts.
constexpr double kOperationsPerByte = 8;

// The plan as a problem, and the plan of its solution.
class StepRecompute {
 public:
  // `alignment`: of the arena of the device that computes.
  StepRecompute(PlanWork& plan, std::size_t alignment) : a_(plan), plan_(*plan.plan), s_(plan.state), alignment_(alignment) {}

  const RecomputeProblem& problem() {
    version_.assign(s_.roots.size(), -1);
    find_writers();
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) add_step(i);
    return problem_;
  }

  void apply(const Recomputation& found) {
    const std::vector<PlanStep> before = std::move(plan_.steps);
    plan_.steps.clear();
    std::vector<std::int32_t> place(before.size(), -1);
    root_of_.assign(found.instances.size(), -1);
    taken_.assign(s_.roots.size(), false);
    given_roots_ = s_.buffer_roots;
    for (const RecomputedStep& r : found.steps) {
      PlanStep step = before[static_cast<std::size_t>(r.step)];
      if (!r.again) place[static_cast<std::size_t>(r.step)] = static_cast<std::int32_t>(plan_.steps.size());
      set_buffers(&step, r);
      plan_.steps.push_back(step);
    }
    for (std::size_t node = 0; node < s_.step_of.size(); ++node) {
      std::int32_t& step = s_.step_of[node];
      if (step >= 0) step = place[static_cast<std::size_t>(step)];
    }
    for (std::int32_t& step : s_.other_steps) step = place[static_cast<std::size_t>(step)];
    set_lives();
  }

 private:
  struct Args {
    std::size_t inputs, outputs;  // and the scratch behind them
  };
  static Args args_of(const PlanStep& step) {
    const bool is_kernel = step.kind == PlanStep::Kind::kKernel;
    return {is_kernel ? step.desc.inputs.size() : 1, is_kernel ? step.desc.outputs.size() : 1};
  }

  PlanRoot& root(std::int32_t r) { return s_.roots[static_cast<std::size_t>(r)]; }
  std::int32_t owner_of(std::int32_t r) { return root(r).view.exists() ? root(r).view.parent : r; }
  // -1: the buffer is none, or lies in what no step writes.
  std::int32_t written_owner(std::size_t buffer) {
    const std::int32_t r = s_.buffer_roots[buffer];
    return r < 0 ? -1 : written(r);
  }
  std::int32_t written(std::int32_t r) {
    const std::int32_t owner = owner_of(r);
    const Source source = root(owner).source;
    return source == Source::kArena || source == Source::kOutput ? owner : -1;
  }
  std::size_t aligned(std::size_t bytes) const { return align_up(bytes, alignment_); }

  // --------------------------------------------------------------------------------------------------------- problem --

  // Which bytes of its owner a step writes: of each position, where it lies by positions.
  struct Part {
    std::size_t begin, end, pitch;
  };

  struct Writers {
    std::multimap<std::size_t, Part> parts;  // by their beginning
    bool is_viewed = false;
    bool is_fixed = false;  // more happens to it than that it is written once, or in parts that do not meet, or in place
  };

  void find_writers() {
    writers_.assign(s_.roots.size(), {});
    for (std::size_t r = 0; r < s_.roots.size(); ++r) {
      cancellation_point();
      const std::int32_t owner = owner_of(static_cast<std::int32_t>(r));
      Writers& w = writers_[static_cast<std::size_t>(owner)];
      w.is_viewed |= root(static_cast<std::int32_t>(r)).view.exists();
      w.is_fixed |= root(static_cast<std::int32_t>(r)).written_over;
    }
    std::vector<bool> seen(s_.roots.size(), false);
    std::vector<std::int32_t> read_by(s_.roots.size(), -1);  // the last step that reads it
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const auto number = static_cast<std::int32_t>(i);
      const Args args = args_of(step);
      for (std::size_t k = 0; k < args.inputs; ++k) {
        cancellation_point();
        const std::int32_t owner = written_owner(step.buffers + k);
        if (owner >= 0) read_by[static_cast<std::size_t>(owner)] = number;
      }
      for (std::size_t k = 0; k < args.outputs; ++k) {
        cancellation_point();
        const std::size_t buffer = step.buffers + args.inputs + k;
        const std::int32_t owner = written_owner(buffer);
        if (owner < 0) continue;
        Writers& w = writers_[static_cast<std::size_t>(owner)];
        const RootView& view = root(s_.buffer_roots[buffer]).view;
        const DType dtype = step.kind == PlanStep::Kind::kKernel ? step.desc.outputs[k].dtype : s_.descs[step.value].dtype;
        const std::size_t element = dtype_size(dtype);
        Part part{view.skip, view.skip + root(s_.buffer_roots[buffer]).bytes, 0};
        if (view.is_strided())
          part = {view.skip, view.skip + static_cast<std::size_t>(view.channels) * element,
                  static_cast<std::size_t>(view.pitch) * element};
        if (w.is_viewed) add_part(&w, part);
        const auto o = static_cast<std::size_t>(owner);
        if (!w.is_viewed && seen[o] && read_by[o] != number) w.is_fixed = true;
        seen[o] = true;
      }
    }
  }

  static void add_part(Writers* w, const Part& part) {
    cancellation_point(8);
    if (w->is_fixed) return;
    const auto behind = w->parts.lower_bound(part.begin);
    const auto conflicts = [&](const auto& entry) {
      const Part& other = entry.second;
      return part.pitch != other.pitch || (part.begin < other.end && other.begin < part.end);
    };
    w->is_fixed = (behind != w->parts.end() && conflicts(*behind)) || (behind != w->parts.begin() && conflicts(*std::prev(behind)));
    w->parts.emplace_hint(behind, part.begin, part);
  }

  std::int32_t add_value(std::int32_t owner) {
    const PlanRoot& r = root(owner);
    RecomputeValue value;
    value.bytes = aligned(r.bytes + r.slack);
    value.is_outside = r.source == Source::kOutput;
    value.is_kept = writers_[static_cast<std::size_t>(owner)].is_fixed;
    problem_.values.push_back(value);
    owners_.push_back(owner);
    read_by_.push_back(-1);
    written_by_.push_back(-1);
    return static_cast<std::int32_t>(problem_.values.size() - 1);
  }

  void add_step(std::size_t i) {
    const PlanStep& step = plan_.steps[i];
    const Args args = args_of(step);
    RecomputeStep& s = problem_.steps.emplace_back();
    // A custom operator may do more than what it writes; what a copy reads may have been written over.
    s.once = step.kind == PlanStep::Kind::kCopy || (step.kind == PlanStep::Kind::kKernel && is_custom(step));
    // Kernels say what they compute and move; a re-layout reads and writes its value.
    s.cost = 1 + step.plan.flops / kOperationsPerByte + step.plan.bytes;
    const auto number = static_cast<std::int32_t>(i);
    for (std::size_t k = 0; k < args.inputs; ++k) {
      cancellation_point();
      const std::int32_t owner = written_owner(step.buffers + k);
      if (const std::int32_t r = s_.buffer_roots[step.buffers + k]; r >= 0 && step.plan.bytes == 0)
        s.cost += static_cast<double>(root(r).bytes);
      if (owner < 0) continue;
      const std::int32_t value = version_[static_cast<std::size_t>(owner)];
      EVN_CHECK(value >= 0);
      s.once |= problem_.values[static_cast<std::size_t>(value)].is_kept;
      if (std::exchange(read_by_[static_cast<std::size_t>(value)], number) != number) s.reads.push_back(value);
    }
    for (std::size_t k = 0; k < args.outputs; ++k) {
      cancellation_point();
      const std::int32_t owner = written_owner(step.buffers + args.inputs + k);
      if (owner < 0) continue;
      if (step.kind == PlanStep::Kind::kKernel) s.once |= step.desc.outputs[k].dtype == DType::kString;
      write(&s, number, owner);
    }
    if (step.kind != PlanStep::Kind::kKernel) return;
    if (const std::int32_t r = s_.buffer_roots[step.buffers + args.inputs + args.outputs]; r >= 0)
      s.scratch = aligned(root(r).bytes + root(r).slack);
  }

  bool is_custom(const PlanStep& step) const {
    const auto custom = [&](std::int32_t node) { return a_.graph.nodes[static_cast<std::size_t>(node)].op->custom != nullptr; };
    return custom(step.node) || std::any_of(step.absorbed.begin(), step.absorbed.end(), custom);
  }

  void write(RecomputeStep* s, std::int32_t number, std::int32_t owner) {
    const Writers& w = writers_[static_cast<std::size_t>(owner)];
    std::int32_t& now = version_[static_cast<std::size_t>(owner)];
    s->once |= w.is_fixed;
    if (now >= 0 && written_by_[static_cast<std::size_t>(now)] == number) return;
    const std::int32_t before = now;
    if (now < 0 || !(w.is_viewed || w.is_fixed)) now = add_value(owner);
    written_by_[static_cast<std::size_t>(now)] = number;
    s->writes.push_back(now);
    s->over.push_back(before == now ? -1 : before);
  }

  // -------------------------------------------------------------------------------------------------------- solution --

  std::int32_t add_root(PlanRoot r) {
    s_.roots.push_back(r);
    return static_cast<std::int32_t>(s_.roots.size() - 1);
  }

  // Where a step writes: over what nobody reads later; for the first time where the plan had it; else in memory of its own.
  std::int32_t choose_root(std::int32_t instance, std::int32_t value, std::int32_t over) {
    std::int32_t& chosen = root_of_[static_cast<std::size_t>(instance)];
    if (chosen >= 0) return chosen;
    if (over >= 0) return chosen = root_of_[static_cast<std::size_t>(over)];
    const std::int32_t owner = owners_[static_cast<std::size_t>(value)];
    if (instance == value && !taken_[static_cast<std::size_t>(owner)]) {
      taken_[static_cast<std::size_t>(owner)] = true;
      return chosen = owner;
    }
    PlanRoot r = root(owner);
    if (instance != value) {
      r.source = Source::kArena;
      r.index = -1;
    }
    return chosen = add_root(r);
  }

  // The buffer's root where its owner's memory is that of another root.
  std::int32_t moved(std::int32_t r, std::int32_t owner) {
    if (owner_of(r) == owner) return r;
    if (!root(r).view.exists()) return owner;
    const auto [it, is_new] = parts_.try_emplace({r, owner}, -1);
    if (is_new) {
      PlanRoot part = root(r);
      part.view.parent = owner;
      part.source = root(owner).source;
      part.index = root(owner).index;
      it->second = add_root(part);
    }
    return it->second;
  }

  void set_buffers(PlanStep* step, const RecomputedStep& r) {
    const Args args = args_of(*step);
    const RecomputeStep& s = problem_.steps[static_cast<std::size_t>(r.step)];
    const std::size_t count = args.inputs + args.outputs + 1;
    const std::size_t from = step->buffers;
    if (r.again) {
      step->buffers = static_cast<std::uint32_t>(plan_.buffers.size());
      plan_.buffers.resize(plan_.buffers.size() + count);
      for (std::size_t k = 0; k < count; ++k) s_.buffer_roots.push_back(given_roots_[from + k]);
    }
    std::map<std::int32_t, std::int32_t> reads_now, writes_now;  // the root of a value now, by its root in the plan as it was
    for (std::size_t k = 0; k < s.reads.size(); ++k)
      reads_now.emplace(owners_[static_cast<std::size_t>(s.reads[k])], root_of_[static_cast<std::size_t>(r.reads[k])]);
    for (std::size_t k = 0; k < s.writes.size(); ++k)
      writes_now.emplace(owners_[static_cast<std::size_t>(s.writes[k])], choose_root(r.writes[k], s.writes[k], r.in_place[k]));
    for (std::size_t k = 0; k + 1 < count; ++k) {
      cancellation_point(8);
      const std::int32_t given = given_roots_[from + k];
      const std::int32_t owner = given < 0 ? -1 : written(given);
      if (owner < 0) continue;
      const auto& now = k < args.inputs ? reads_now : writes_now;
      const auto it = now.find(owner);
      EVN_CHECK(it != now.end() && it->second >= 0);
      s_.buffer_roots[step->buffers + k] = moved(given, it->second);
    }
    if (!r.again || step->kind != PlanStep::Kind::kKernel) return;
    std::int32_t& scratch = s_.buffer_roots[step->buffers + count - 1];
    if (scratch >= 0) scratch = add_root(PlanRoot(root(scratch)));
  }

  void set_lives() {
    std::vector<bool> seen(s_.roots.size(), false);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const Args args = args_of(step);
      const std::size_t count = args.inputs + args.outputs + (step.kind == PlanStep::Kind::kKernel ? 1 : 0);
      for (std::size_t k = 0; k < count; ++k) {
        cancellation_point();
        const std::int32_t owner = written_owner(step.buffers + k);
        if (owner < 0) continue;
        PlanRoot& r = root(owner);
        if (!seen[static_cast<std::size_t>(owner)]) r.first = static_cast<std::int32_t>(i);
        r.last = static_cast<std::int32_t>(i);
        seen[static_cast<std::size_t>(owner)] = true;
      }
    }
  }

  PlanWork& a_;
  Plan& plan_;
  PlanState& s_;
  const std::size_t alignment_;
  RecomputeProblem problem_;
  std::vector<Writers> writers_;                                         // per root
  std::vector<std::int32_t> version_;                                    // per root: the value that it has now
  std::vector<std::int32_t> owners_;                                     // per value: its root in the plan as it was
  std::vector<std::int32_t> read_by_, written_by_;                       // per value: the last step that reads it, or writes it
  std::vector<std::int32_t> root_of_;                                    // per instance: its root now
  std::vector<bool> taken_;                                              // per root of the plan as it was
  std::vector<std::int32_t> given_roots_;                                // PlanState::buffer_roots of the plan as it was
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> parts_;  // by the part, and the root that it is a part of now
};

// What `apply` changes.
class Snapshot {
 public:
  explicit Snapshot(const PlanWork& a)
      : steps_(a.plan->steps),
        buffers_(a.plan->buffers),
        roots_(a.state.roots),
        step_of_(a.state.step_of),
        buffer_roots_(a.state.buffer_roots),
        other_steps_(a.state.other_steps) {}

  std::size_t steps() const { return steps_.size(); }
  void restore(PlanWork& a) const {
    a.plan->steps = steps_;
    a.plan->buffers = buffers_;
    a.state.roots = roots_;
    a.state.buffer_roots = buffer_roots_;
    a.state.step_of = step_of_;
    a.state.other_steps = other_steps_;
  }

 private:
  const std::vector<PlanStep> steps_;
  const std::vector<BufferSource> buffers_;
  const SharedVector<PlanRoot> roots_;
  const SharedVector<std::int32_t> step_of_;
  const std::vector<std::int32_t> buffer_roots_, other_steps_;
};

// With those of the plans that it goes on from.
std::uint64_t arenas_of(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const Plan* p = &plan; p != nullptr; p = p->before.get())
    bytes = std::accumulate(p->arena_bytes.begin(), p->arena_bytes.end(), bytes);
  return bytes;
}

[[noreturn]] void refuse(std::uint64_t bytes, std::uint64_t limit, const char* how) {
  throw make_error(EVN_ERROR_LIMIT, "the intermediate values of a run need %llu bytes%s, above the limit of %llu",
                   static_cast<unsigned long long>(bytes), how, static_cast<unsigned long long>(limit))
      .with_bytes(bytes, limit);
}

// The slot where all is computed; -1: on several. Inputs and outputs may be copied from and to the host.
int slot_of_all(const Plan& plan) {
  int slot = -1;
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::kCopy) continue;
    const bool computes = step.kind == PlanStep::Kind::kKernel || step.kind == PlanStep::Kind::kRelayout;
    if (!computes || (slot >= 0 && step.slot != slot)) return -1;
    slot = step.slot;
  }
  const bool is_alone = std::all_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) {
    if (step.kind != PlanStep::Kind::kCopy) return true;
    return slot != 0 && ((step.from_slot == 0 && step.to_slot == slot) || (step.from_slot == slot && step.to_slot == 0));
  });
  return is_alone ? slot : -1;
}

}  // namespace

void fit_under_limit(PlanWork& a, std::uint64_t limit) {
  Plan& plan = *a.plan;
  const std::uint64_t unlimited = arenas_of(plan);
  plan.recomputed.unlimited_bytes = unlimited;
  if (unlimited <= limit) return;
  if (plan.before != nullptr || plan.has_continuation())
    refuse(unlimited, limit, " (shapes depend on values, so that nothing is computed again)");
  const int slot = slot_of_all(plan);
  if (slot < 0) refuse(unlimited, limit, " (on several devices, where nothing is computed again)");
  if (plan.steps.size() > kMostSteps) refuse(unlimited, limit, " (in too many steps to compute some again)");
  if (!plan.is_small) {
    plan.is_small = true;
    plan.spared_bytes = order_steps(a.c, &plan, &a.state);
    PlanArenas(a).assign_offsets();
    if (arenas_of(plan) <= limit) return;
  }
  const Snapshot before(a);
  const std::size_t alignment = a.c.devices[static_cast<std::size_t>(slot)]->traits().alignment;
  StepRecompute steps(a, alignment);
  RecomputeSearch search(steps.problem());
  const auto fits = [&](const Recomputation& found) {
    before.restore(a);
    StepRecompute made(a, alignment);
    made.problem();
    made.apply(found);
    PlanArenas(a).assign_offsets();
    plan.recomputed.steps = static_cast<std::uint32_t>(found.steps.size() - before.steps());
    plan.recomputed.values = found.recomputed;
    plan.recomputed.kept_values = found.kept;
    return arenas_of(plan) <= limit;
  };
  // What lives at the fullest moment fits, but placing it may leave gaps: then less is to live.
  std::uint64_t target = limit;
  for (int i = 0; i < kMostTries; ++i) {
    const std::vector<Recomputation> all = search.fit(target);
    std::uint64_t gaps = limit;
    for (const Recomputation& found : all) {
      if (fits(found)) return;
      gaps = std::min(gaps, arenas_of(plan) - found.peak);
    }
    if (all.empty() || gaps >= limit) break;
    target = std::min(limit - gaps, target - target / kTargetSteps);
  }
  if (!fits(search.smallest())) refuse(arenas_of(plan), limit, ", with all computed again that can be");
}

}  // namespace evn
