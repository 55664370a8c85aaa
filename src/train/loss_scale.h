// Loss scaling: gradients are those of the loss times a scale, by which they are divided where the parameters move, so that small
// ones do not vanish in float16. Dynamic, it is the largest power of two with which they stay finite.
#pragma once

#include <cmath>

#include "train/settings.h"

namespace evn_train {

class LossScale {
 public:
  explicit LossScale(const evn_trainer_options& options);

  // Returns true if the gradient's model takes a scale.
  static bool is_used(const evn_trainer_options& options) {
    return !std::isnan(options.loss_scale) || options.precision == EVN_PRECISION_FP16;
  }
  bool is_dynamic() const { return is_dynamic_; }
  // The scale of the next gradients.
  float value() const { return value_; }
  // The scale of those that are there.
  float latest() const { return latest_; }
  void begin_step() { latest_ = value_; }
  // After a step that was to move the parameters: whether all gradients were finite.
  void note(bool is_finite);

  // What a checkpoint has of it.
  struct State {
    float value = 1, latest = 1;
    std::uint64_t good = 0;
    bool is_dynamic = false;
  };
  State state() const { return {value_, latest_, good_, is_dynamic_}; }
  // Returns true if the scales are finite and above 0, as those of a trainer are.
  static bool takes(const State& state);
  // Takes the state if both scales are dynamic. Otherwise the scale becomes the one that options say, as at first.
  void set_state(const State& state);

 private:
  bool is_dynamic_;
  float value_, latest_;
  std::uint64_t good_ = 0;  // steps since the scale was changed
};

}  // namespace evn_train
