// Source: torch.optim.lr_scheduler (StepLR, ExponentialLR, CosineAnnealingLR, ReduceLROnPlateau, LinearLR from 1 / warmup_steps
// on).
#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace evn_train {

double LearningRate::at(std::uint64_t done) const {
  const evn_trainer_options& o = options_;
  if (done < o.warmup_steps) return base_ * static_cast<double>(done + 1) / static_cast<double>(o.warmup_steps);
  const auto t = static_cast<double>(done - o.warmup_steps);
  const auto steps = static_cast<double>(o.schedule_steps);
  switch (o.schedule) {
    case EVN_SCHEDULE_STEP: return base_ * std::pow(o.schedule_factor, std::floor(t / steps));
    case EVN_SCHEDULE_EXPONENTIAL: return base_ * std::pow(o.schedule_factor, t);
    case EVN_SCHEDULE_COSINE: {
      const double share = std::min(1.0, t / steps);
      return o.least_rate + (base_ - o.least_rate) * (1 + std::cos(std::numbers::pi * share)) / 2;
    }
    case EVN_SCHEDULE_PLATEAU: return std::max(base_ * factor_, std::min(base_, o.least_rate));
    default: return base_;
  }
}

void LearningRate::note(double metric) {
  if (options_.schedule != EVN_SCHEDULE_PLATEAU) return;
  const double limit = std::isfinite(best_) ? best_ - options_.plateau_threshold * std::abs(best_) : best_;
  if (metric < limit) {  // a NaN is not
    best_ = metric;
    bad_ = 0;
    return;
  }
  if (++bad_ <= options_.plateau_patience) return;
  factor_ *= options_.schedule_factor;
  bad_ = 0;
}

}  // namespace evn_train
