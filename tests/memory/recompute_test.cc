// What runs again under a limit, by itself and by a machine that runs the new sequence with texts for values: every step reads what
// it has read in the given sequence, and what lives is what was counted.
#include "memory/recompute.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/cancel.h"
#include "base/error.h"

namespace evn::test::recompute_test {
namespace {

struct Problem : RecomputeProblem {
  std::int32_t value(std::size_t bytes) {
    values.push_back({bytes, false, false});
    return static_cast<std::int32_t>(values.size() - 1);
  }
  RecomputeStep& step(std::vector<std::int32_t> reads, std::vector<std::int32_t> writes, double cost = 100) {
    RecomputeStep s;
    s.reads = std::move(reads);
    s.over.assign(writes.size(), -1);
    s.writes = std::move(writes);
    s.cost = cost;
    return steps.emplace_back(std::move(s));
  }
};

// n layers: each makes a value, whose derivative reads it and that of the next layer.
Problem layers(int n, std::size_t bytes) {
  Problem p;
  std::vector<std::int32_t> made;
  for (int i = 0; i < n; ++i) {
    made.push_back(p.value(bytes));
    p.step(i == 0 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{made[static_cast<std::size_t>(i) - 1]}, {made.back()});
  }
  std::int32_t dy = p.value(bytes);
  p.step({made.back()}, {dy});
  for (int i = n - 1; i >= 0; --i) {
    const std::int32_t dx = p.value(bytes);
    p.step({made[static_cast<std::size_t>(i)], dy}, {dx});
    dy = dx;
  }
  return p;
}

// Runs the given sequence, and then the new one; a value is a text of the steps that have made it.
class Machine {
 public:
  explicit Machine(const RecomputeProblem& p) : p_(p), want_(p.steps.size()), texts_(p.values.size()) {
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      for (const std::int32_t v : p.steps[i].reads) want_[i].push_back(texts_[static_cast<std::size_t>(v)]);
      for (const std::int32_t v : p.steps[i].writes) write(&texts_[static_cast<std::size_t>(v)], i, want_[i]);
    }
  }

  void expect(const Recomputation& r) const {
    std::vector<std::string> texts(r.instances.size());
    std::vector<bool> gone(r.instances.size(), false);
    std::vector<bool> seen(p_.steps.size(), false);
    std::int32_t next = 0;  // of the given sequence, which is still in order
    double cost = 0;
    for (std::size_t place = 0; place < r.steps.size(); ++place) {
      const RecomputedStep& s = r.steps[place];
      const auto number = static_cast<std::size_t>(s.step);
      const RecomputeStep& step = p_.steps[number];
      if (s.again) {
        EXPECT_TRUE(seen[number]);
        EXPECT_FALSE(step.once);
        cost += step.cost;
      } else {
        EXPECT_EQ(s.step, next++);
        seen[number] = true;
      }
      ASSERT_EQ(s.reads.size(), step.reads.size());
      std::vector<std::string> read;
      for (std::size_t k = 0; k < s.reads.size(); ++k) {
        const auto i = static_cast<std::size_t>(s.reads[k]);
        EXPECT_EQ(r.instances[i].value, step.reads[k]);
        EXPECT_FALSE(gone[i]) << "instance " << i << " was written over before place " << place;
        EXPECT_TRUE(r.instances[i].first <= static_cast<std::int32_t>(place) &&
                    static_cast<std::int32_t>(place) <= r.instances[i].last);
        read.push_back(texts[i]);
      }
      EXPECT_EQ(read, want_[number]) << "step " << number << " at place " << place;
      for (std::size_t k = 0; k < s.writes.size(); ++k) {
        const auto i = static_cast<std::size_t>(s.writes[k]);
        EXPECT_EQ(r.instances[i].value, step.writes[k]);
        EXPECT_EQ(i == static_cast<std::size_t>(step.writes[k]), !s.again);
        if (s.in_place[k] >= 0) {
          EXPECT_EQ(r.instances[static_cast<std::size_t>(s.in_place[k])].value, step.over[k]);
          gone[static_cast<std::size_t>(s.in_place[k])] = true;
        }
        write(&texts[i], number, read);
      }
    }
    EXPECT_EQ(next, static_cast<std::int32_t>(p_.steps.size()));
    EXPECT_EQ(cost, r.cost);
    EXPECT_EQ(peak_of(r), r.peak);
    for (std::size_t v = 0; v < texts_.size(); ++v) EXPECT_EQ(texts[v], texts_[v]);
  }

 private:
  // Parts come one after the other.
  static void write(std::string* text, std::size_t step, const std::vector<std::string>& read) {
    std::string made = "(" + std::to_string(step);
    for (const std::string& r : read) made += " " + std::to_string(std::hash<std::string>{}(r));
    made += ")";
    if (text->find(made) == std::string::npos) *text += made;
  }

  // By memory that instances share where one is written over another.
  std::size_t peak_of(const Recomputation& r) const {
    std::vector<std::size_t> memory(r.instances.size());
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = i;
    for (const RecomputedStep& s : r.steps) {
      for (std::size_t k = 0; k < s.writes.size(); ++k) {
        if (s.in_place[k] >= 0) memory[static_cast<std::size_t>(s.writes[k])] = memory[static_cast<std::size_t>(s.in_place[k])];
      }
    }
    std::size_t peak = 0;
    for (std::int32_t place = 0; place < static_cast<std::int32_t>(r.steps.size()); ++place) {
      std::map<std::size_t, std::size_t> live;
      for (std::size_t i = 0; i < r.instances.size(); ++i) {
        const RecomputeInstance& instance = r.instances[i];
        const RecomputeValue& value = p_.values[static_cast<std::size_t>(instance.value)];
        if (instance.first < 0 || place < instance.first || place > instance.last) continue;
        if (i < p_.values.size() && value.is_outside) continue;
        live[memory[i]] = value.bytes;
      }
      std::size_t bytes = p_.steps[static_cast<std::size_t>(r.steps[static_cast<std::size_t>(place)].step)].scratch;
      for (const auto& [at, size] : live) bytes += size;
      peak = std::max(peak, bytes);
    }
    return peak;
  }

  const RecomputeProblem& p_;
  std::vector<std::vector<std::string>> want_;  // per step: what it reads
  std::vector<std::string> texts_;              // per value, at the end
};

TEST(Recompute, WithRoomForAllNothingRunsAgain) {
  const Problem p = layers(10, 64);
  RecomputeSearch search(p);
  const Recomputation all = search.keep_all();
  Machine(p).expect(all);
  EXPECT_EQ(all.cost, 0);
  EXPECT_EQ(all.recomputed, 0u);
  const std::vector<Recomputation> found = search.fit(all.peak);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].steps.size(), p.steps.size());
}

TEST(Recompute, LayersFitIntoAboutTheRootOfTheirNumber) {
  const Problem p = layers(100, 64);
  RecomputeSearch search(p);
  EXPECT_EQ(search.keep_all().peak, 102u * 64);
  const std::vector<Recomputation> found = search.fit(25 * 64);
  ASSERT_FALSE(found.empty());
  for (const Recomputation& r : found) {
    Machine(p).expect(r);
    EXPECT_LE(r.peak, 25u * 64);
  }
  EXPECT_LE(found[0].cost, 100 * 100) << "each layer runs again at most once";
  const Recomputation least = search.smallest();
  Machine(p).expect(least);
  EXPECT_LE(least.peak, 25u * 64);
}

TEST(Recompute, TheCheaperOfTwoRunsAgain) {
  Problem p;
  const std::int32_t cheap = p.value(1000), dear = p.value(1000), between = p.value(1000);
  p.step({}, {dear}, 5000);
  p.step({dear}, {cheap}, 10);
  p.step({cheap}, {between});
  for (int i = 0; i < 3; ++i) p.step({between}, {p.value(1000)});
  p.step({cheap}, {p.value(100)});
  p.step({dear}, {p.value(100)});
  RecomputeSearch search(p);
  ASSERT_EQ(search.keep_all().peak, 4000u);
  const std::vector<Recomputation> found = search.fit(3000);
  ASSERT_FALSE(found.empty());
  Machine(p).expect(found[0]);
  EXPECT_EQ(found[0].cost, 10);
}

TEST(Recompute, WhatMayNotRunAgainDoesNot) {
  Problem p = layers(20, 64);
  for (RecomputeStep& s : p.steps) s.once = true;
  RecomputeSearch search(p);
  EXPECT_TRUE(search.fit(search.keep_all().peak - 1).empty());
  EXPECT_EQ(search.smallest().peak, search.keep_all().peak);
  p = layers(20, 64);
  for (RecomputeValue& v : p.values) v.is_kept = true;
  EXPECT_TRUE(RecomputeSearch(p).fit(21 * 64).empty());
}

TEST(Recompute, TheFewestBytesAreThoseOfOneStep) {
  Problem p = layers(30, 64);
  for (RecomputeStep& s : p.steps) s.scratch = 640;
  RecomputeSearch search(p);
  EXPECT_TRUE(search.fit(640 + 64).empty());
  EXPECT_TRUE(search.fit(0).empty());
}

// Skips, several results, writes in place and in parts, scratch, outputs that lie elsewhere, steps that run once.
Problem random_problem(std::mt19937* random) {
  Problem p;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>((*random)() % n); };
  std::vector<std::int32_t> made;
  const std::size_t steps = 20 + below(40);
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<std::int32_t> reads, writes;
    for (std::size_t k = below(4); k > 0 && !made.empty(); --k) {
      const std::size_t back = below(3) == 0 ? below(made.size()) : below(std::min<std::size_t>(made.size(), 4));
      const std::int32_t v = made[made.size() - 1 - back];
      if (std::find(reads.begin(), reads.end(), v) == reads.end()) reads.push_back(v);
    }
    for (std::size_t k = 1 + below(2); k > 0; --k) writes.push_back(p.value(64 * (1 + below(50))));
    RecomputeStep& s = p.step(reads, writes, static_cast<double>(1 + below(1000)));
    s.scratch = below(3) == 0 ? 64 * below(40) : 0;
    s.once = below(20) == 0;
    if (!reads.empty() && below(4) == 0) {  // over what nobody reads later
      const std::int32_t v = reads[0];
      std::erase(made, v);
      s.over[0] = v;
      p.values[static_cast<std::size_t>(writes[0])].bytes = p.values[static_cast<std::size_t>(v)].bytes;
    }
    if (below(8) == 0) p.values[static_cast<std::size_t>(writes.back())].is_outside = s.over.back() < 0;
    made.insert(made.end(), writes.begin(), writes.end());
    if (below(10) != 0 || made.size() < 3) continue;
    const std::int32_t whole = p.value(64 * (2 + below(50)));  // in two parts
    p.step({made[below(made.size())]}, {whole});
    p.step({made[below(made.size())]}, {whole});
    made.push_back(whole);
  }
  return p;
}

TEST(Recompute, RandomSequencesReadWhatTheyHaveRead) {
  std::mt19937 random(11);
  int again = 0;
  for (int round = 0; round < 120; ++round) {
    const Problem p = random_problem(&random);
    RecomputeSearch search(p);
    const Machine machine(p);
    const Recomputation all = search.keep_all();
    machine.expect(all);
    for (const double share : {0.9, 0.7, 0.5}) {
      const auto limit = static_cast<std::size_t>(share * static_cast<double>(all.peak));
      for (const Recomputation& r : search.fit(limit)) {
        machine.expect(r);
        EXPECT_LE(r.peak, limit);
        again += r.steps.size() > p.steps.size();
      }
    }
    machine.expect(search.smallest());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(again, 40);
}

// The work of one walk through the steps.
std::int64_t work_of_a_walk(const Problem& p) {
  RecomputeSearch search(p);
  const Cancel never;
  const CancelScope scope(never);
  search.keep_all();
  return scope.work();
}

TEST(Recompute, WorkIsCountedByStepsAndReads) {
  const std::int64_t small = work_of_a_walk(layers(1000, 64)), large = work_of_a_walk(layers(2000, 64));
  EXPECT_GE(small, 3 * 1000) << "each layer has two steps, of which one has two reads";
  EXPECT_LE(static_cast<double>(large), 2.1 * static_cast<double>(small));
  Problem p;
  std::vector<std::int32_t> parts;
  for (int i = 0; i < 10'000; ++i) parts.push_back(p.value(64));
  p.step({}, parts);
  p.step(parts, {p.value(64)});
  EXPECT_GE(work_of_a_walk(p), 2 * 10'000);
}

TEST(Recompute, StopsWhenItIsAsked) {
  const Problem p = layers(20'000, 64);
  RecomputeSearch search(p);
  std::atomic<bool> requested{true};
  Cancel cancel;
  cancel.requested = &requested;
  const CancelScope scope(cancel);
  EXPECT_THROW(search.keep_all(), Error);
  EXPECT_LE(scope.work(), 2 * kWorkPerLook);
}

}  // namespace
}  // namespace evn::test::recompute_test
