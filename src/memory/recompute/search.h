// The search for what to compute again (memory/recompute.h), which is compiled into libevener_train.so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/recompute.h"

namespace evn {

class RecomputeSearch final : public RecomputeSolver {
 public:
  explicit RecomputeSearch(const RecomputeProblem& problem);

  // With nothing computed again.
  Recomputation keep_all();
  std::vector<Recomputation> fit(std::size_t limit) override;
  Recomputation smallest() override;

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
