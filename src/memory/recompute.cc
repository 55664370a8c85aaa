#include "memory/recompute.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {
namespace {

constexpr std::int32_t kMostRuns = 4;  // of all steps, on the average
// Shares of the limit that bytes are counted from, and at which enough choices are made: what is chosen depends on both, and what
// turns out not to be needed is taken back.
constexpr double kAims[] = {1.0, 0.8, 0.6, 0.4, 0.2};
constexpr double kStops[] = {1.0, 0.8};

}  // namespace

RecomputeSearch::RecomputeSearch(const RecomputeProblem& problem)
    : p_(problem), makers_(problem.values.size()), last_(problem.values.size(), -1), pause_(problem.values.size(), -1) {
  const std::size_t values = problem.values.size();
  std::vector<std::int32_t> before(values, -1), longest(values, 1);
  std::vector<bool> may(values, true);
  const auto use = [&](std::int32_t value, std::int32_t step) {
    cancellation_point();
    const auto v = static_cast<std::size_t>(value);
    if (before[v] >= 0 && step - before[v] > longest[v]) {
      longest[v] = step - before[v];
      pause_[v] = before[v];
    }
    before[v] = last_[v] = step;
  };
  for (std::size_t i = 0; i < problem.steps.size(); ++i) {
    const RecomputeStep& step = problem.steps[i];
    for (const std::int32_t v : step.reads) use(v, static_cast<std::int32_t>(i));
    for (const std::int32_t v : step.writes) {
      use(v, static_cast<std::int32_t>(i));
      makers_[static_cast<std::size_t>(v)].push_back(static_cast<std::int32_t>(i));
      if (step.once) may[static_cast<std::size_t>(v)] = false;
    }
  }
  for (std::size_t v = 0; v < values; ++v) {
    const RecomputeValue& value = problem.values[v];
    // All of it must be there before the pause.
    const bool whole = !makers_[v].empty() && makers_[v].back() <= pause_[v];
    if (may[v] && whole && value.bytes > 0 && !value.is_outside && !value.is_kept)
      candidates_.push_back(static_cast<std::int32_t>(v));
  }
  clear();
}

void RecomputeSearch::clear() {
  dropped_.assign(p_.values.size(), false);
  transient_.assign(p_.values.size(), false);
}

// ---------------------------------------------------------------------------------------------------- the new sequence --

bool RecomputeSearch::is_in_arena(std::size_t instance) const {
  const RecomputeInstance& i = instances_[instance];
  return i.first >= 0 && !(instance < p_.values.size() && p_.values[instance].is_outside);
}

// Returns whether the step `at` of the given sequence can still read the value as its steps made it the first time.
bool RecomputeSearch::is_original(std::int32_t value, std::int32_t at) const {
  const auto v = static_cast<std::size_t>(value);
  if (p_.values[v].is_outside) return true;
  return at <= (dropped_[v] ? pause_[v] : last_[v]);
}

std::int32_t RecomputeSearch::instance_of(std::int32_t value, std::int32_t at) const {
  return is_original(value, at) ? value : copy_[static_cast<std::size_t>(value)];
}

// The instance that a step writes. Parts that several steps write come into one.
std::int32_t RecomputeSearch::written(std::int32_t value, bool again) {
  if (!again) return value;
  std::int32_t& copy = copy_[static_cast<std::size_t>(value)];
  if (copy < 0 || makers_[static_cast<std::size_t>(value)].size() == 1) {
    copy = static_cast<std::int32_t>(instances_.size());
    instances_.push_back({value, -1, -1});
  }
  return copy;
}

// A step at the end of the new sequence, for the step `at` of the given one.
void RecomputeSearch::run(std::int32_t number, bool again, std::int32_t at) {
  const RecomputeStep& step = p_.steps[static_cast<std::size_t>(number)];
  RecomputedStep* const record = record_ == nullptr ? nullptr : &record_->emplace_back();
  if (record != nullptr) *record = {number, again, {}, {}, std::vector<std::int32_t>(step.writes.size(), -1)};
  for (const std::int32_t v : step.reads) {
    cancellation_point();
    const std::int32_t i = instance_of(v, at);
    instances_[static_cast<std::size_t>(i)].last = place_;
    if (record != nullptr) record->reads.push_back(i);
  }
  for (std::size_t k = 0; k < step.writes.size(); ++k) {
    cancellation_point();
    const std::int32_t over = step.over[k] < 0 ? -1 : instance_of(step.over[k], at);
    const std::int32_t i = written(step.writes[k], again);
    RecomputeInstance& instance = instances_[static_cast<std::size_t>(i)];
    if (instance.first < 0) {
      instance.first = place_;
      if (over >= 0) writes_.push_back({place_, i, over, k});
    }
    instance.last = place_;
    if (record != nullptr) record->writes.push_back(i);
  }
  scratch_.push_back(step.scratch);
  if (again) again_at_[static_cast<std::size_t>(number)] = at;
  ++place_;
}

// A step that must run again before `reader` can read the value; -1: none.
std::int32_t RecomputeSearch::missing(std::int32_t value, std::int32_t reader, std::int32_t at) const {
  cancellation_point();
  if (is_original(value, at)) return -1;
  for (const std::int32_t maker : makers_[static_cast<std::size_t>(value)]) {
    cancellation_point();
    const std::int32_t made_at = again_at_[static_cast<std::size_t>(maker)];
    const bool is_there = transient_[static_cast<std::size_t>(value)] ? made_at == at : made_at >= 0;
    if (maker < reader && !is_there) return maker;
  }
  return -1;
}

// Makes what the step `reader` reads and is not there. False: some of it cannot be made again.
bool RecomputeSearch::make_again(std::int32_t reader, std::int32_t at, double* cost) {
  open_.assign(1, {reader, 0});
  for (;;) {
    const std::int32_t step = open_.back().step;
    const RecomputeStep& s = p_.steps[static_cast<std::size_t>(step)];
    std::int32_t wanted = -1;
    while (open_.back().next < s.reads.size()) {
      wanted = missing(s.reads[open_.back().next], step, at);
      if (wanted >= 0) break;
      ++open_.back().next;
    }
    if (wanted >= 0) {
      if (p_.steps[static_cast<std::size_t>(wanted)].once) return false;
      open_.push_back({wanted, 0});
      continue;
    }
    open_.pop_back();
    if (open_.empty()) return true;  // it was the reader itself
    run(step, true, at);
    *cost += s.cost;
  }
}

RecomputeSearch::Outcome RecomputeSearch::simulate(std::size_t limit) {
  Outcome outcome;
  const auto steps = static_cast<std::int32_t>(p_.steps.size());
  instances_.resize(p_.values.size());
  for (std::size_t v = 0; v < instances_.size(); ++v) {
    cancellation_point();
    instances_[v] = {static_cast<std::int32_t>(v), -1, -1};
  }
  again_at_.assign(p_.steps.size(), -1);
  copy_.assign(p_.values.size(), -1);
  writes_.clear();
  scratch_.clear();
  place_ = 0;
  for (std::int32_t step = 0; step < steps; ++step) {
    cancellation_point();
    if (!make_again(step, step, &outcome.cost) || place_ / kMostRuns > steps) return outcome;
    run(step, false, step);
  }
  outcome.possible = true;
  const auto places = static_cast<std::size_t>(place_);
  change_.assign(places + 1, 0);
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    cancellation_point();
    if (!is_in_arena(i)) continue;
    const auto bytes = static_cast<double>(p_.values[static_cast<std::size_t>(instances_[i].value)].bytes);
    change_[static_cast<std::size_t>(instances_[i].first)] += bytes;
    change_[static_cast<std::size_t>(instances_[i].last) + 1] -= bytes;
  }
  for (const Write& w : writes_) {  // the two have the same bytes while the step runs
    cancellation_point();
    if (instances_[static_cast<std::size_t>(w.over)].last != w.place || !is_in_arena(static_cast<std::size_t>(w.over)) ||
        !is_in_arena(static_cast<std::size_t>(w.instance)))
      continue;
    const std::int32_t value = instances_[static_cast<std::size_t>(w.instance)].value;
    const auto bytes = static_cast<double>(p_.values[static_cast<std::size_t>(value)].bytes);
    change_[static_cast<std::size_t>(w.place)] -= bytes;
    change_[static_cast<std::size_t>(w.place) + 1] += bytes;
  }
  double live = 0;
  for (std::size_t i = 0; i < places; ++i) {
    cancellation_point();
    live += change_[i];
    const double now = live + static_cast<double>(scratch_[i]);
    if (static_cast<std::size_t>(now) > outcome.peak) {
      outcome.peak = static_cast<std::size_t>(now);
      outcome.fullest = static_cast<std::int32_t>(i);
    }
    outcome.excess += std::max(0.0, now - static_cast<double>(limit));
  }
  return outcome;
}

Recomputation RecomputeSearch::result() {
  Recomputation r;
  record_ = &r.steps;
  const Outcome outcome = simulate(0);
  record_ = nullptr;
  EVN_CHECK(outcome.possible);
  for (const Write& w : writes_) {
    if (instances_[static_cast<std::size_t>(w.over)].last == w.place && is_in_arena(static_cast<std::size_t>(w.over)) &&
        is_in_arena(static_cast<std::size_t>(w.instance)))
      r.steps[static_cast<std::size_t>(w.place)].in_place[w.number] = w.over;
  }
  r.instances = instances_;
  r.recomputed = static_cast<std::uint32_t>(std::count(dropped_.begin(), dropped_.end(), true));
  r.peak = outcome.peak;
  r.cost = outcome.cost;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    if (is_in_arena(i) && instances_[i].first <= outcome.fullest && outcome.fullest <= instances_[i].last) ++r.kept;
  }
  return r;
}

// ---------------------------------------------------------------------------------------------------------- the search --

// Simulates the sequence with a choice made or taken back.
RecomputeSearch::Outcome RecomputeSearch::tried(const Choice& choice, bool value, std::size_t limit) {
  const auto v = static_cast<std::size_t>(choice.value);
  chosen(choice.kind)[v] = value;
  const Outcome then = simulate(limit);
  chosen(choice.kind)[v] = !value;
  return then;
}

// Returns the choices that are open in the sequence that was simulated last.
std::vector<RecomputeSearch::Choice> RecomputeSearch::all_choices() const {
  std::vector<Choice> choices;
  for (const std::int32_t v : candidates_) {
    if (!dropped_[static_cast<std::size_t>(v)]) choices.push_back({v, Kind::kDrop, 0});
  }
  std::vector<bool> seen(p_.values.size(), false);
  for (std::size_t i = p_.values.size(); i < instances_.size(); ++i) {  // made again, and read more than once
    const auto v = static_cast<std::size_t>(instances_[i].value);
    const bool may = !transient_[v] && !seen[v] && makers_[v].size() == 1 && p_.values[v].bytes > 0;
    if (may && instances_[i].last - instances_[i].first > 1) {
      choices.push_back({instances_[i].value, Kind::kTransient, 0});
      seen[v] = true;
    }
  }
  return choices;
}

// Makes choices, those that spare the most bytes above `aim`, until nothing is above the limit. A gain that was found before
// another choice was made is looked at again when its turn comes: most gains only fall.
bool RecomputeSearch::reduce(std::size_t aim, std::size_t limit) {
  Outcome now = simulate(aim);
  EVN_CHECK(now.possible);
  const auto gain_of = [&](const Choice& choice) {
    const Outcome then = tried(choice, true, aim);
    if (!then.possible || then.excess >= now.excess) return 0.0;
    return (now.excess - then.excess) / std::max(then.cost - now.cost, 1.0);
  };
  const auto less = [](const Choice& a, const Choice& b) {
    if (a.gain != b.gain) return a.gain < b.gain;
    return a.value != b.value ? a.value > b.value : a.kind > b.kind;
  };
  std::vector<Choice> open;
  bool is_new = false;  // all gains are of now
  while (now.peak > limit) {
    if (open.empty()) {
      if (is_new) return false;
      now = simulate(aim);  // for what it made again
      for (Choice choice : all_choices()) {
        choice.gain = gain_of(choice);
        if (choice.gain > 0) open.push_back(choice);
      }
      std::make_heap(open.begin(), open.end(), less);
      is_new = true;
      continue;
    }
    std::pop_heap(open.begin(), open.end(), less);
    Choice best = open.back();
    open.pop_back();
    if (!is_new) {
      best.gain = gain_of(best);
      if (best.gain <= 0) continue;
      if (!open.empty() && less(best, open.front())) {
        open.push_back(best);
        std::push_heap(open.begin(), open.end(), less);
        continue;
      }
    }
    chosen(best.kind)[static_cast<std::size_t>(best.value)] = true;
    now = simulate(aim);
    is_new = false;
  }
  return true;
}

// Takes choices back that are not needed, those first that spare the most time.
void RecomputeSearch::take_back(std::size_t limit) {
  Outcome now = simulate(limit);
  std::vector<Choice> made;
  for (const Kind kind : {Kind::kTransient, Kind::kDrop}) {
    for (std::size_t v = 0; v < p_.values.size(); ++v) {
      if (!chosen(kind)[v]) continue;
      Choice choice{static_cast<std::int32_t>(v), kind, 0};
      const Outcome then = tried(choice, false, limit);
      choice.gain = now.cost - then.cost;
      if (then.possible && then.excess <= 0 && choice.gain >= 0) made.push_back(choice);
    }
  }
  for (std::size_t i = 0; i < made.size(); ++i) made[i].order = static_cast<std::int32_t>(i);
  std::ranges::sort(made, [](const Choice& a, const Choice& b) { return a.gain != b.gain ? a.gain > b.gain : a.order < b.order; });
  for (const Choice& choice : made) {
    const Outcome then = tried(choice, false, limit);
    if (!then.possible || then.excess > 0 || then.cost > now.cost) continue;
    chosen(choice.kind)[static_cast<std::size_t>(choice.value)] = false;
    now = then;
  }
}

Recomputation RecomputeSearch::keep_all() {
  clear();
  return result();
}

std::vector<Recomputation> RecomputeSearch::fit(std::size_t limit) {
  std::vector<Recomputation> all;
  const auto share_of = [&](double share) { return static_cast<std::size_t>(share * static_cast<double>(limit)); };
  for (const double stop : kStops) {
    for (const double aim : kAims) {
      clear();
      if (!reduce(share_of(stop * aim), share_of(stop))) continue;
      take_back(limit);
      Recomputation found = result();
      const auto same = [&](const Recomputation& r) { return r.peak == found.peak && r.cost == found.cost; };
      if (std::any_of(all.begin(), all.end(), same)) continue;
      const auto is_less = [](double cost, const Recomputation& r) { return cost < r.cost; };
      const auto place = std::upper_bound(all.begin(), all.end(), found.cost, is_less);
      all.insert(place, std::move(found));
    }
  }
  return all;
}

Recomputation RecomputeSearch::smallest() {
  Recomputation best = keep_all();
  std::size_t low = 0;
  while (best.peak > low + best.peak / 100 + 1) {  // what was found may be smaller than what was not found before
    const std::size_t middle = low + (best.peak - low) / 2;
    std::vector<Recomputation> found = fit(middle);
    if (found.empty()) {
      low = middle;
    } else {
      best = std::move(found.front());
    }
  }
  return best;
}

}  // namespace evn
