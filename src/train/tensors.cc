#include "train/tensors.h"

#include <algorithm>
#include <cmath>

#include "train/loss.h"
#include "train/loss_scale.h"
#include "train/works.h"

namespace evn_train {

TensorMaker::TensorMaker(evn_runtime runtime, const Settings& settings, bool is_alone) {
  const bool on_host = !is_alone || settings.replicas.size() > 1 || settings.device == "auto" || settings.device.empty();
  if (on_host) device_.emplace(runtime);
  else device_.emplace(runtime, settings.device.substr(0, settings.device.find(',')).c_str());
}

std::vector<Tensor> TensorMaker::make(const std::vector<Parameter>& like) const {
  std::vector<Tensor> made;
  for (const Parameter& p : like) made.push_back(make(p));
  return made;
}

TrainerTensors::TrainerTensors(evn_runtime runtime, const TensorMaker& maker, SourceModel* source, TrainingGraphs* graphs,
                               const Settings& settings)
    : loss(runtime, EVN_DTYPE_FLOAT32, {}), shape(runtime, EVN_DTYPE_INT64, {static_cast<std::int64_t>(kShapeElements)}) {
  const auto move_values = [&](const std::vector<Parameter>& list, std::vector<Tensor>* to) {
    for (const Parameter& p : list) {
      evn::WeightPtr& weight = source->model.graph.values[at(p.value)].constant;
      to->push_back(maker.make(p));
      to->back().write(weight->bytes(), weight->size_bytes);
      weight.reset();
      graphs->forget(p);
    }
  };
  move_values(graphs->parameters(), &values);
  move_values(graphs->statistics(), &statistics);
  for (std::size_t kind = 0; kind < graphs->optimizer_state_count(); ++kind)
    optimizer_state.push_back(maker.make(graphs->parameters()));
  new_statistics = maker.make(graphs->statistics());
  if (LossScale::is_used(settings.given)) loss_scale = Tensor(runtime, EVN_DTYPE_FLOAT32, {});
}

void TrainerTensors::give(const Batch& batch, Work* work) const {
  work->inputs.assign(batch.inputs.begin(), batch.inputs.end());
  if (batch.labels != nullptr) work->inputs.push_back(batch.labels);
  append(&work->inputs, values);
  append(&work->inputs, statistics);
  work->outputs.assign(1, loss.get());
}

void TrainerTensors::give_loss_scale(float scale, Work* work) {
  if (loss_scale.get() == nullptr) return;
  loss_scale.write(&scale, sizeof scale);
  work->inputs.push_back(loss_scale.get());
}

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

std::size_t first_not_finite(const std::vector<Tensor>& tensors, const std::vector<Parameter>& list) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Mapped mapped(tensors[i], EVN_MAP_READ);
    const auto* const data = static_cast<const float*>(mapped.data());
    if (!std::all_of(data, data + list[i].bytes() / sizeof(float), [](float v) { return std::isfinite(v); })) return i;
  }
  return tensors.size();
}

}  // namespace evn_train
