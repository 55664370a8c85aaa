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
#include <vector>

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

// Searches on the calling thread.
class RecomputeSearch {
 public:
  // The problem lives as long.
  explicit RecomputeSearch(const RecomputeProblem& problem);

  // With nothing computed again.
  Recomputation keep_all();
  // Those that were found with a peak of at most `limit`, the cheapest first.
  std::vector<Recomputation> fit(std::size_t limit);
  // With the smallest peak that was found, to within a hundredth.
  Recomputation smallest();

 private:
  struct Outcome {
    bool possible = false;
    std::size_t peak = 0;
    std::int32_t fullest = 0;  // place
    double excess = 0;         // bytes above the limit, summed over all steps
    double cost = 0;
  };
  struct Open {  // a step that is to run again
    std::int32_t step;
    std::size_t next;  // of its reads, that is looked at
  };
  struct Write {
    std::int32_t place, instance, over;  // instances
    std::size_t number;                  // of the step's writes
  };
  enum class Kind : std::uint8_t { kDrop, kTransient };
  struct Choice {
    std::int32_t value;
    Kind kind;
    double gain;
    std::int32_t order = 0;  // among those of the same gain
  };

  const RecomputeProblem& p_;
  std::vector<std::vector<std::int32_t>> makers_;  // per value, in order
  std::vector<std::int32_t> last_;                 // per value: the last step that uses it
  std::vector<std::int32_t> pause_;                // per value: the last step in front of its longest pause
  std::vector<std::int32_t> candidates_;           // values that may be dropped

  std::vector<bool> dropped_, transient_;  // per value

  // State of the sequence that is being made:
  std::vector<std::int32_t> again_at_;  // per step: the step of the given sequence for which it ran again last; -1: never
  std::vector<std::int32_t> copy_;      // per value: the instance that was made again last; -1: none
  std::vector<RecomputeInstance> instances_;
  std::vector<Write> writes_;
  std::vector<Open> open_;
  std::vector<std::size_t> scratch_;  // per place
  std::vector<double> change_;        // per place: bytes that begin to live less those that end
  std::vector<RecomputedStep>* record_ = nullptr;
  std::int32_t place_ = 0;

  std::vector<bool>& chosen(Kind kind) { return kind == Kind::kDrop ? dropped_ : transient_; }
  bool is_in_arena(std::size_t instance) const;
  bool is_original(std::int32_t value, std::int32_t at) const;
  std::int32_t instance_of(std::int32_t value, std::int32_t at) const;
  std::int32_t written(std::int32_t value, bool again);
  void run(std::int32_t step, bool again, std::int32_t at);
  std::int32_t missing(std::int32_t value, std::int32_t reader, std::int32_t at) const;
  bool make_again(std::int32_t reader, std::int32_t at, double* cost);
  Outcome simulate(std::size_t limit);
  Outcome tried(const Choice& choice, bool value, std::size_t limit);
  std::vector<Choice> all_choices() const;
  bool reduce(std::size_t aim, std::size_t limit);
  void take_back(std::size_t limit);
  void clear();
  Recomputation result();
};

}  // namespace evn
