// Proof that a step of the optimizer leaves all numbers finite, by bounds of their magnitudes: a step is checked before it is
// written, and no pass over the parameters is needed for it unless numbers come near the end of float32.
#pragma once

#include "train/settings.h"

namespace evn_train {

class UpdateBounds {
 public:
  explicit UpdateBounds(const Settings& settings);

  bool is_known() const { return is_known_; }
  void forget() { is_known_ = false; }
  // Largest magnitudes of the parameters, and of the optimizer's state.
  void set(double value, double state);

  // Largest norm of all gradients with which a step at this learning rate is certainly finite; -1: none is.
  float safe_norm(double rate) const;
  // After a step that was taken.
  void take_step(double norm, double rate) { now_ = after(norm, rate); }

 private:
  struct Magnitudes {
    double value = 0, average = 0, square = 0, momentum = 0;
    bool fit() const;
  };
  const evn_trainer_options& options_;
  double rate_factor_ = 0, weight_decay_ = 0;  // the largest of all groups
  Magnitudes now_;
  bool is_known_ = false;

  Magnitudes after(double norm, double rate) const;
};

}  // namespace evn_train
