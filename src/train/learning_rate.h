// The learning rate, step by step.
#pragma once

#include <cmath>

#include "train/settings.h"

namespace evn_train {

class LearningRate {
 public:
  explicit LearningRate(const evn_trainer_options& options) : options_(options), base_(options.learning_rate) {}

  // The learning rate of the step after `done` others.
  double at(std::uint64_t done) const;
  void set_base(double rate) { base_ = rate; }
  // What EVN_SCHEDULE_PLATEAU goes by (evn_trainer_note_metric).
  void note(double metric);

  // What a checkpoint has of it.
  struct State {
    double base = 0, factor = 1, best = 0;
    std::uint64_t has_best = 0, bad = 0;
  };
  State state() const { return {base_, factor_, best_, best_ < INFINITY ? 1u : 0u, bad_}; }
  // Returns true if the numbers are finite and not negative, as those of a trainer are.
  static bool takes(const State& s) {
    return s.base >= 0 && std::isfinite(s.base) && s.factor >= 0 && std::isfinite(s.factor) && !std::isnan(s.best);
  }
  void set_state(const State& s) {
    base_ = s.base;
    factor_ = s.factor;
    best_ = s.has_best != 0 ? s.best : INFINITY;
    bad_ = s.bad;
  }

 private:
  const evn_trainer_options options_;
  double base_;
  double factor_ = 1;       // of the plateau
  double best_ = INFINITY;  // least metric
  std::uint64_t bad_ = 0;   // calls without progress
};

}  // namespace evn_train
