// Source: torch.amp.GradScaler and _amp_update_scale_.
#include "train/loss_scale.h"

#include <cmath>

#include "base/number_text.h"
#include "train/library.h"

namespace evn_train {
namespace {

constexpr float kFirst = 65536, kGrowth = 2, kBackoff = 0.5f;
constexpr std::uint64_t kGrowthInterval = 2000;

}  // namespace

LossScale::LossScale(const evn_trainer_options& options)
    : is_dynamic_(options.precision == EVN_PRECISION_FP16 && std::isnan(options.loss_scale)),
      value_(is_dynamic_                      ? kFirst
             : std::isnan(options.loss_scale) ? 1
                                              : static_cast<float>(options.loss_scale)),
      latest_(value_) {}

void LossScale::note(bool is_finite) {
  if (!is_dynamic_) return;
  if (!is_finite) {
    if (static_cast<double>(value_ * kBackoff) >= kLeastLossScale) value_ *= kBackoff;
    good_ = 0;
  } else if (++good_ == kGrowthInterval) {
    if (std::isfinite(value_ * kGrowth)) value_ *= kGrowth;
    good_ = 0;
  }
}

bool LossScale::takes(const State& s) { return s.value > 0 && std::isfinite(s.value) && s.latest > 0 && std::isfinite(s.latest); }

void LossScale::set_state(const State& s) {
  if (!is_dynamic_) return;
  const State taken = s.is_dynamic ? s : State{kFirst, kFirst, 0, true};
  value_ = taken.value;
  latest_ = taken.latest;
  good_ = taken.good;
}

}  // namespace evn_train
