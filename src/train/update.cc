// Moving the parameters: a step is written if all that it would write is finite, and skipped otherwise.
#include <algorithm>
#include <cmath>
#include <limits>

#include "train/trainer.h"

namespace evn_train {
namespace {

constexpr char kLoss[] = "the loss is not finite", kStatistic[] = "a statistic of BatchNormalization is not finite";
constexpr double kAnyNorm = std::numeric_limits<double>::infinity();

// Largest magnitude; a NaN if there is one.
double most_of(const std::vector<Tensor>& tensors, const std::vector<Parameter>& list) {
  double most = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Mapped mapped(tensors[i], EVN_MAP_READ);
    const auto* const data = static_cast<const float*>(mapped.data());
    float largest = 0;
    for (std::size_t k = 0; k < list[i].bytes() / sizeof(float); ++k)
      largest = std::fabs(data[k]) <= largest ? largest : std::fabs(data[k]);
    if (!(static_cast<double>(largest) <= most)) most = static_cast<double>(largest);
    if (std::isnan(most)) break;
  }
  return most;
}

// Index of the first tensor with an element that is not finite; their number if there is none.
std::size_t first_not_finite(const std::vector<Tensor>& tensors, const std::vector<Parameter>& list) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Mapped mapped(tensors[i], EVN_MAP_READ);
    const auto* const data = static_cast<const float*>(mapped.data());
    if (!std::all_of(data, data + list[i].bytes() / sizeof(float), [](float v) { return std::isfinite(v); })) return i;
  }
  return tensors.size();
}

std::string skip_text(std::uint64_t batch, const std::string& why) {
  return "batch " + std::to_string(batch) + " was skipped: " + why;
}

}  // namespace

void Trainer::find_bounds() {
  double state = 0;
  for (const auto& list : optimizer_state_) {
    const double most = most_of(list, parameters());
    if (!(most <= state)) state = most;
  }
  bounds_.set(most_of(values_, parameters()), state);
}

// Loss and statistics of a batch that is one of several of a step.
bool Trainer::is_batch_finite() {
  const bool is_loss = std::isfinite(loss_.scalar<float>());
  if (is_loss && first_not_finite(new_statistics_, graphs_->statistics()) == new_statistics_.size()) return true;
  latest_skip_ = skip_text(calls_, is_loss ? kStatistic : kLoss);
  return false;
}

// `values`, `states`: where results go.
void Trainer::run_update(double rate, double safe_norm, const std::vector<Tensor>& values,
                         const std::vector<std::vector<Tensor>>& states, Run how) {
  const evn_trainer_options& o = settings_.given;
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    const ParameterGroup& group = settings_.groups[graphs_->used_groups()[i]];
    const float rates[8] = {static_cast<float>(rate * group.rate_factor),
                            static_cast<float>(group.weight_decay),
                            gradient_factor(),
                            static_cast<float>(o.clip_value),
                            static_cast<float>(steps_ + 1),
                            0,
                            0,
                            0};
    rates_[i].write(rates, sizeof rates);
  }
  const auto safe = static_cast<float>(safe_norm);
  safe_norm_.write(&safe, sizeof safe);
  Work& work = *update_;
  work.inputs = {loss_.get(), safe_norm_.get()};
  append(&work.inputs, new_statistics_);
  append(&work.inputs, rates_);
  append(&work.inputs, values_);
  append(&work.inputs, settings_.accumulates() ? sums_ : gradients_);
  work.outputs = {norm_.get(), finite_.get(), moved_.get()};
  append(&work.outputs, values);
  for (const auto& list : optimizer_state_) append(&work.inputs, list);
  for (const auto& list : states) append(&work.outputs, list);
  run(work, 0, how);
}

// Moves the parameters. Returns true if they moved. Throws EVN_ERROR_CANCELLED and EVN_ERROR_OUT_OF_MEMORY before anything moves.
bool Trainer::update(double rate, evn_step_info* info) {
  if (!bounds_.is_known()) find_bounds();
  const float safe_norm = bounds_.safe_norm(rate);
  bool moved = false, is_finite = true;
  if (safe_norm >= 0) {
    run_update(rate, static_cast<double>(safe_norm), values_, optimizer_state_, Run::kUninterrupted);
    is_finite = finite_.scalar<std::uint8_t>() != 0;
    moved = moved_.scalar<std::uint8_t>() != 0;
  }
  if (moved) {
    bounds_.take_step(static_cast<double>(norm_.scalar<float>()), rate);
  } else if (is_finite) {
    moved = update_carefully(rate);
    is_finite = finite_.scalar<std::uint8_t>() != 0;
  }
  if (!is_finite) skip_for_gradients();
  info->gradient_norm = moved ? static_cast<double>(norm_.scalar<float>()) : 0;
  info->learning_rate = moved ? rate : 0;
  info->skipped = moved ? 0 : 1;
  scale_.note(is_finite);
  ++(moved ? steps_ : skipped_);
  return moved;
}

// Writes the results beside the parameters, and takes them if they and the gradients are finite.
bool Trainer::update_carefully(double rate) {
  const auto same_as = [&](const std::vector<Tensor>& list) {
    const std::string name = device_of_tensors();
    std::optional<Device> device;
    if (name.empty()) device.emplace(runtime_);
    else device.emplace(runtime_, name.c_str());
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < list.size(); ++i) made.emplace_back(*device, EVN_DTYPE_FLOAT32, parameters()[i].dims, 0u);
    return made;
  };
  std::vector<Tensor> values = same_as(values_);
  std::vector<std::vector<Tensor>> states;
  for (const auto& list : optimizer_state_) states.push_back(same_as(list));
  run_update(rate, kAnyNorm, values, states, Run::kCancellable);
  if (finite_.scalar<std::uint8_t>() == 0) return false;
  std::size_t wrong = first_not_finite(values, parameters());
  const char* what = "the parameter";
  for (std::size_t k = 0; k < states.size() && wrong == values.size(); ++k) {
    wrong = first_not_finite(states[k], parameters());
    what = "the optimizer's state of";
  }
  if (wrong < values.size()) {
    latest_skip_ =
        skip_text(calls_, std::string("it would have made ") + what + " \"" + parameters()[wrong].name + "\" not finite");
    return false;
  }
  std::swap(values_, values);
  std::swap(optimizer_state_, states);
  bounds_.forget();
  return true;
}

void Trainer::skip_for_gradients() {
  const std::vector<Tensor>& gradients = settings_.accumulates() ? sums_ : gradients_;
  std::string why = kStatistic;
  if (!std::isfinite(loss_.scalar<float>())) {
    why = kLoss;
  } else if (const std::size_t i = first_not_finite(gradients, parameters()); i < gradients.size()) {
    why = "the gradient of the parameter \"" + parameters()[i].name + "\" is not finite";
  }
  latest_skip_ = skip_text(calls_, why);
}

}  // namespace evn_train
