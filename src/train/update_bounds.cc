#include "train/update_bounds.h"

#include <algorithm>
#include <cmath>

namespace evn_train {
namespace {

constexpr double kLargest = 1e37;  // of float32: 3.4e38
constexpr double kRounding = 2;    // far more than what float32 loses
constexpr double kSmallestEpsilon = 1e-30;
constexpr double kSmallestNorm = 1e-15;  // whose square a device may have lost
constexpr double kSafeNorm = 1e12;

}  // namespace

UpdateBounds::UpdateBounds(const Settings& settings) : options_(settings.given) {
  for (const ParameterGroup& group : settings.groups) {
    rate_factor_ = std::max(rate_factor_, group.rate_factor);
    weight_decay_ = std::max(weight_decay_, group.weight_decay);
  }
}

void UpdateBounds::set(double value, double state) {
  now_ = {value, state, state, state};
  is_known_ = true;
}

bool UpdateBounds::Magnitudes::fit() const {
  const auto is_small = [](double x) { return x <= kLargest; };  // a NaN is not
  return is_small(value) && is_small(average) && is_small(square) && is_small(momentum);
}

// The formulas of OptimizerStep (ops/training/optimizer_step.cc) with each term at its largest.
UpdateBounds::Magnitudes UpdateBounds::after(double norm, double rate) const {
  const evn_trainer_options& o = options_;
  const bool decays_apart = o.optimizer == EVN_OPTIMIZER_ADAMW;
  const double decay = rate * rate_factor_ * weight_decay_;
  const double g = kRounding * (norm + kSmallestNorm + (decays_apart ? 0 : weight_decay_ * now_.value));
  const double least = o.epsilon < kSmallestEpsilon ? 0 : o.epsilon;  // what is divided by
  double step = rate * rate_factor_, update = g;
  Magnitudes next = now_;
  switch (o.optimizer) {
    case EVN_OPTIMIZER_ADAM:
    case EVN_OPTIMIZER_ADAMW:
      next.average = std::max(now_.average, g);
      next.square = std::max(now_.square, g * g);
      step /= 1 - o.beta1;
      update = next.average / least;
      break;
    case EVN_OPTIMIZER_ADAGRAD:
      next.square = now_.square + g * g;
      update = g / least;
      break;
    case EVN_OPTIMIZER_RMSPROP:
      next.average = std::max(now_.average, g);
      next.square = std::max(now_.square, g * g);
      update = g / least;
      if (o.momentum != 0) update = next.momentum = o.momentum * now_.momentum + update;
      break;
    default:
      if (o.momentum == 0) break;
      next.momentum = std::max(g, o.momentum * now_.momentum + g);
      update = g + std::max(1.0, o.momentum) * next.momentum;
  }
  next.value = now_.value * (decays_apart ? std::max(1.0, decay) : 1.0) + kRounding * step * update;
  if (!(step <= kLargest && update <= kLargest)) next.value = INFINITY;  // they are float32 too
  return next;
}

float UpdateBounds::safe_norm(double rate) const { return after(kSafeNorm, rate).fit() ? static_cast<float>(kSafeNorm) : -1.0f; }

}  // namespace evn_train
