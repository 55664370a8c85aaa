// Rematerialization: which values of a sequence of steps are computed again, where they are needed late, instead of being kept, so
// that fewer bytes live at a time. In training it is what activation checkpointing does: the values that stay are the checkpoints.
//
// A value is dropped in the longest pause between two of its uses, and made again before the step that needs it next, by the steps
// that have made it, from what lives then or is made again likewise. What is made again stays until its last use, or, where the
// value is `transient`, only for the one step of the given sequence that has asked for it. Which values these are is searched for
// (the problem is NP-hard: Kusumoto et al., 2019): the choice that spares the most bytes above the limit, over all steps, for what
// it costs, one after the other; then those that turn out not to be needed are taken back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/cancel.h"
#include "evener/evener.h"

namespace evn {

struct RecomputeValue {
  std::size_t bytes = 0;    // of the arena, as they are aligned there
  bool is_outside = false;  // what its steps make the first time lies elsewhere, for ever; bytes are those of what they make again
  bool is_kept = false;     // it is never dropped
};

struct RecomputeStep {
  std::vector<std::int32_t> reads;   // values, each once; what lies outside and no step makes is none
  std::vector<std::int32_t> writes;  // each once. Several steps may make parts of one value
  std::vector<std::int32_t> over;    // per write: the value of the same bytes that it is written over; -1: none
  std::size_t scratch = 0;           // bytes of the arena that it has for itself
  double cost = 0;
  bool once = false;  // it cannot run again
};

struct RecomputeProblem {
  std::vector<RecomputeValue> values;
  std::vector<RecomputeStep> steps;  // each reads what those before it have written
};

// What the steps of a value have made at one time. The first ones have the numbers of their values.
struct RecomputeInstance {
  std::int32_t value = -1;
  std::int32_t first = -1, last = -1;  // places in the new sequence
};

// A step in the new sequence.
struct RecomputedStep {
  std::int32_t step = -1;
  bool again = false;                  // not the first time
  std::vector<std::int32_t> reads;     // instances, as RecomputeStep's values
  std::vector<std::int32_t> writes;    // likewise
  std::vector<std::int32_t> in_place;  // per write: the instance that it is written over, which nobody reads later; -1: none
};

struct Recomputation {
  std::vector<RecomputedStep> steps;
  std::vector<RecomputeInstance> instances;
  std::size_t peak = 0;          // bytes that live at the fullest moment
  std::uint32_t kept = 0;        // values that live then
  std::uint32_t recomputed = 0;  // values that are dropped
  double cost = 0;               // of the steps that run again
};

class RecomputeSolver {
 public:
  virtual ~RecomputeSolver() = default;
  // Those that were found with a peak of at most `limit`, the cheapest first.
  virtual std::vector<Recomputation> fit(std::size_t limit) = 0;
  // With the smallest peak that was found, to within a hundredth.
  virtual Recomputation smallest() = 0;
};

// Searches for what to compute again, on the calling thread; the problem lives as long. The search is in libevener_train.so, as
// only training asks for it: EVN_ERROR_UNSUPPORTED where that is missing.
std::unique_ptr<RecomputeSolver> make_recompute_solver(const RecomputeProblem& problem);

// What the module exports under this name, where `build` is kRecomputeBuild; else it gives nullptr. `meter`: the thread's.
#define EVN_RECOMPUTE_SYMBOL "evn_recompute"
using RecomputeFunction = RecomputeSolver* (*)(std::uint64_t build, const RecomputeProblem& problem, WorkMeter& meter);

// Differs where the two were not compiled from the same headers.
inline constexpr std::uint64_t kRecomputeBuild = [] {
  std::uint64_t number = EVN_VERSION_NUMBER;
  for (const std::size_t size : {sizeof(RecomputeProblem), sizeof(RecomputeValue), sizeof(RecomputeStep), sizeof(RecomputeInstance),
                                 sizeof(RecomputedStep), sizeof(Recomputation), sizeof(WorkMeter)})
    number = number * 4099 + size;
  return number;
}();

}  // namespace evn
