#include "train/updater.h"

#include <cmath>
#include <limits>
#include <utility>

namespace evn_train {
namespace {

constexpr char kLoss[] = "the loss is not finite", kStatistic[] = "a statistic of BatchNormalization is not finite";
constexpr double kAnyNorm = std::numeric_limits<double>::infinity();

}  // namespace

Updater::Updater(const Works& works, const TrainingGraphs& graphs, const Settings& settings, const TensorMaker& maker,
                 TrainerTensors* tensors)
    : works_(works),
      graphs_(graphs),
      settings_(settings),
      maker_(maker),
      tensors_(*tensors),
      work_(works.make_own(graphs.update_model(), "training: update")),
      norm_(works.runtime(), EVN_DTYPE_FLOAT32, {}),
      finite_(works.runtime(), EVN_DTYPE_BOOL, {}),
      moved_(works.runtime(), EVN_DTYPE_BOOL, {}),
      safe_norm_(works.runtime(), EVN_DTYPE_FLOAT32, {}),
      bounds_(settings) {
  for (std::size_t i = 0; i < graphs.used_groups().size(); ++i)
    rates_.emplace_back(works.runtime(), EVN_DTYPE_FLOAT32, std::vector<std::int64_t>{8});
}

void Updater::find_bounds() {
  double state = 0;
  for (const auto& list : tensors_.optimizer_state) {
    const double most = most_of(list, parameters());
    if (!(most <= state)) state = most;
  }
  bounds_.set(most_of(tensors_.values, parameters()), state);
}

void Updater::note_skip(std::uint64_t batch, const std::string& why) {
  latest_skip_ = "batch " + std::to_string(batch) + " was skipped: " + why;
}

bool Updater::is_finite(std::uint64_t batch) {
  const std::vector<Tensor>& statistics = tensors_.new_statistics;
  const bool is_loss = std::isfinite(tensors_.loss.scalar<float>());
  if (is_loss && first_not_finite(statistics, graphs_.statistics()) == statistics.size()) return true;
  note_skip(batch, is_loss ? kStatistic : kLoss);
  return false;
}

// `values`, `states`: where results go.
void Updater::run(const Step& step, double safe_norm, const std::vector<Tensor>& gradients, const std::vector<Tensor>& values,
                  const std::vector<std::vector<Tensor>>& states, Works::Stop stop) {
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    const ParameterGroup& group = settings_.groups[graphs_.used_groups()[i]];
    const float rates[8] = {static_cast<float>(step.rate * group.rate_factor),
                            static_cast<float>(group.weight_decay),
                            static_cast<float>(step.factor),
                            static_cast<float>(settings_.given.clip_value),
                            static_cast<float>(step.number + 1),
                            0,
                            0,
                            0};
    rates_[i].write(rates, sizeof rates);
  }
  const auto safe = static_cast<float>(safe_norm);
  safe_norm_.write(&safe, sizeof safe);
  work_.inputs = {tensors_.loss.get(), safe_norm_.get()};
  append(&work_.inputs, tensors_.new_statistics);
  append(&work_.inputs, rates_);
  append(&work_.inputs, tensors_.values);
  append(&work_.inputs, gradients);
  work_.outputs = {norm_.get(), finite_.get(), moved_.get()};
  append(&work_.outputs, values);
  for (const auto& list : tensors_.optimizer_state) append(&work_.inputs, list);
  for (const auto& list : states) append(&work_.outputs, list);
  works_.run(work_, 0, stop);
}

Updater::Result Updater::move(const Step& step, const std::vector<Tensor>& gradients) {
  if (!bounds_.is_known()) find_bounds();
  Result result;
  const float safe_norm = bounds_.safe_norm(step.rate);
  if (safe_norm >= 0) {
    run(step, static_cast<double>(safe_norm), gradients, tensors_.values, tensors_.optimizer_state, Works::Stop::kNever);
    result.is_finite = finite_.scalar<std::uint8_t>() != 0;
    result.has_moved = moved_.scalar<std::uint8_t>() != 0;
  }
  if (result.has_moved) {
    bounds_.take_step(static_cast<double>(norm_.scalar<float>()), step.rate);
  } else if (result.is_finite) {
    result.has_moved = move_carefully(step, gradients);
    result.is_finite = finite_.scalar<std::uint8_t>() != 0;
  }
  if (!result.is_finite) skip_for_gradients(step.batch, gradients);
  if (result.has_moved) result.norm = static_cast<double>(norm_.scalar<float>());
  return result;
}

// Writes the results beside the parameters, and takes them if they and the gradients are finite.
bool Updater::move_carefully(const Step& step, const std::vector<Tensor>& gradients) {
  std::vector<Tensor> values = maker_.make(parameters());
  std::vector<std::vector<Tensor>> states;
  for (std::size_t k = 0; k < tensors_.optimizer_state.size(); ++k) states.push_back(maker_.make(parameters()));
  run(step, kAnyNorm, gradients, values, states, Works::Stop::kByToken);
  if (finite_.scalar<std::uint8_t>() == 0) return false;
  std::size_t wrong = first_not_finite(values, parameters());
  const char* what = "the parameter";
  for (std::size_t k = 0; k < states.size() && wrong == values.size(); ++k) {
    wrong = first_not_finite(states[k], parameters());
    what = "the optimizer's state of";
  }
  if (wrong < values.size()) {
    note_skip(step.batch, std::string("it would have made ") + what + " \"" + parameters()[wrong].name + "\" not finite");
    return false;
  }
  std::swap(tensors_.values, values);
  std::swap(tensors_.optimizer_state, states);
  bounds_.forget();
  return true;
}

void Updater::skip_for_gradients(std::uint64_t batch, const std::vector<Tensor>& gradients) {
  std::string why = kStatistic;
  if (!std::isfinite(tensors_.loss.scalar<float>())) {
    why = kLoss;
  } else if (const std::size_t i = first_not_finite(gradients, parameters()); i < gradients.size()) {
    why = "the gradient of the parameter \"" + parameters()[i].name + "\" is not finite";
  }
  note_skip(batch, why);
}

}  // namespace evn_train
