#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "base/number_text.h"
#include "base/os/os.h"

namespace evn_train {
namespace {

constexpr std::int64_t kOpset = 17;  // the least: BatchNormalization with training_mode, LayerNormalization

}  // namespace

Trainer::Trainer(evn_runtime runtime, const char* path, const evn_trainer_options& options)
    : settings_(read_settings(options)),
      ranks_(settings_),
      works_(runtime, settings_, options.cancel),
      rate_(settings_.given),
      scale_(settings_.given) {
  // A rank that cannot make its trainer takes part until the others know.
  const std::optional<evn::Error> own = error_of([&] { prepare(path, options); });
  if (!ranks_.is_alone()) ranks_.join(own, graphs_ ? &*graphs_ : nullptr, tensors_ ? &*tensors_ : nullptr);
  else if (own) throw evn::Error(*own);
}

// Reads the model within one time limit, for its checks and for what the trainer makes of it together.
void Trainer::read_model(const char* path, const evn_trainer_options& options) {
  const LoadLimits limits = load_limits(works_.runtime(), works_.cancel());
  evn::Cancel cancel;
  cancel.deadline_ns = limits.time_ns == 0 ? 0 : evn::deadline_clock_ns() + limits.time_ns;
  cancel.requested = limits.requested;
  cancel.over = "the time to load the model is over";
  cancel.cancelled = "the load was cancelled";
  source_ = read_source(works_.runtime(), path, options, kOpset);
  const evn::CancelScope scope(cancel);
  separate_statistics(settings_.frozen, &source_);
  graphs_.emplace(source_, settings_);
}

// Makes all that a step needs, so that a graph that cannot be trained, or a device that cannot train it, is an error of the
// creation.
void Trainer::prepare(const char* path, const evn_trainer_options& options) {
  read_model(path, options);
  const evn_runtime runtime = works_.runtime();
  if (settings_.given.prune_share > 0) pruning_.emplace(*graphs_, settings_.given);
  maker_.emplace(runtime, settings_, ranks_.is_alone());
  tensors_.emplace(runtime, *maker_, &source_, &*graphs_, settings_);
  right_ = Tensor(runtime, EVN_DTYPE_INT64, {});
  count_ = Tensor(runtime, EVN_DTYPE_INT64, {});
  labels_.emplace(works_, *graphs_, settings_, *tensors_);
  std::vector<Tensor> in_buckets;
  if (!ranks_.is_alone()) in_buckets = ranks_.prepare(runtime, *graphs_);
  gradients_.emplace(works_, *graphs_, settings_, *maker_, std::move(in_buckets));
  if (settings_.replicas.size() > 1) replicas_.emplace(works_, *graphs_, settings_, &*tensors_, &*labels_);
  prepare_gradients(graphs_->usual_labels());
  updater_.emplace(works_, *graphs_, settings_, *maker_, &*tensors_);
  if (!ranks_.is_alone()) gradients_->prepare();
}

// Makes the sessions of gradients with labels of a kind.
void Trainer::prepare_gradients(Labels kind) {
  if (replicas_) replicas_->prepare(kind);
  else gradient_work(kind);
}

Work& Trainer::gradient_work(Labels kind) {
  std::optional<Work>& work = gradient_[static_cast<int>(kind)];
  if (!work) {
    work = works_.make(graphs_->gradient_model(kind, ranks_.norm_sums()), "training: gradient", settings_.device,
                       settings_.given.memory_limit);
  }
  return *work;
}

Work& Trainer::evaluation_work(Labels kind) {
  std::optional<Work>& work = evaluation_[static_cast<int>(kind)];
  if (!work) work = works_.make(graphs_->evaluation_model(kind), "training: evaluation");
  return *work;
}

// The seed of a run's random numbers: others in each step, rank and replica.
std::uint64_t Trainer::seed_of_run(std::size_t replica) const {
  const std::uint64_t seed = settings_.given.seed + 0xd1342543de82ef95u * ranks_.ranks().rank() + 0xaf251af3b0f025b5u * replica;
  return seed * 0x9e3779b97f4a7c15u + calls_;
}

// The loss, gradients (or the first of their sums) and new statistics of a batch. Ranks may sum gradients as they come.
void Trainer::make_gradients(const Batch& batch) {
  ++calls_;
  scale_.begin_step();
  Buckets* const buckets = !ranks_.is_alone() && ranks_.overlaps() ? &ranks_.buckets() : nullptr;
  if (replicas_) {
    Replicas::Run run;
    run.gradients = gradients_->next();
    run.loss_scale = scale_.latest();
    run.step = calls_;
    run.seed = [this](std::size_t replica) { return seed_of_run(replica); };
    if (buckets != nullptr) run.summed = [buckets](std::size_t gradient) { buckets->ready(gradient); };
    return replicas_->make_gradients(batch, run);
  }
  Work& work = gradient_work(batch.kind);
  latest_ = &work;
  tensors_->give(batch, &work);
  tensors_->give_loss_scale(scale_.latest(), &work);
  append(&work.outputs, gradients_->next());
  append(&work.outputs, tensors_->new_statistics);
  work.outputs.push_back(tensors_->shape.get());
  struct Listener {
    Buckets* buckets;
    std::uint32_t end;  // of the gradients among the outputs, behind the loss
  } listener{buckets, static_cast<std::uint32_t>(1 + parameters().size())};
  const auto ready = [](void* context, std::uint32_t output) {
    const auto& l = *static_cast<const Listener*>(context);
    if (output >= 1 && output < l.end) l.buckets->ready(output - 1);
  };
  labels_->run(work, batch, seed_of_run(0), buckets != nullptr ? evn::OutputListener{ready, &listener} : evn::OutputListener{});
}

void Trainer::step(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info) {
  info->loss_scale = static_cast<double>(scale_.value());
  const std::uint64_t calls = calls_;
  const LossScale scale = scale_;
  const std::optional<evn::Error> error = error_of([&] {
    if (ranks_.is_alone()) step_alone(inputs, labels, info);
    else step_with_ranks(inputs, labels, info);
  });
  if (error) {  // the next step then has the random numbers that this one would have had
    calls_ = calls;
    scale_ = scale;
    throw evn::Error(*error);
  }
  ranks_.check_step(*graphs_, tensors_->values);
  info->step = steps_;
}

void Trainer::step_alone(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info) {
  make_gradients(labels_->batch_of(inputs, labels));
  if (is_kept(info)) end_step(gradients_->add(), info);
}

void Trainer::step_with_ranks(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info) {
  Batch batch;
  std::optional<evn::Error> own = ranks_.failed;
  if (!own) {
    own = error_of([&] {
      batch = labels_->batch_of(inputs, labels);
      prepare_gradients(batch.kind);
    });
  }
  const float weight = ranks_.open(batch.rows, own);
  ranks_.begin_gradients(weight);
  own = ranks_.end_gradients(error_of([&] { make_gradients(batch); }));
  ranks_.close(weight, own, *graphs_, &*tensors_);
  if (!is_kept(info)) return;
  bool is_complete = true;
  if (settings_.accumulates()) {
    own = error_of([&] { is_complete = gradients_->add(); });
    if (own) ranks_.failed = own;  // its sums are no longer those of these steps
    ranks_.exchange({}, own, "add its gradients");
    if (is_complete) ranks_.sum_whole();
  }
  // From here on the ranks cannot tell each other that one has failed; they learn it in the next step, or by its parameters.
  own = error_of([&] { end_step(is_complete, info); });
  if (!own) return;
  error_of([&] { ranks_.check_step(*graphs_, tensors_->values); });
  ranks_.failed = own;
  throw evn::Error(*own);
}

// Returns false for a batch that does not count: one of several of a step that is not finite.
bool Trainer::is_kept(evn_step_info* info) {
  info->loss = static_cast<double>(tensors_->loss.scalar<float>());
  if (!settings_.accumulates() || updater_->is_finite(calls_)) return true;
  info->skipped = 1;
  ++skipped_;
  return false;
}

// `is_complete`: gradients of all batches that are accumulated are there.
void Trainer::end_step(bool is_complete, evn_step_info* info) {
  bool moves = false;
  if (is_complete) {
    const std::optional<evn::Error> error = error_of([&] { moves = update(info); });
    if (error) {
      gradients_->drop_latest();
      throw evn::Error(*error);
    }
    gradients_->begin_step();
  }
  if (is_complete && !moves) return;  // it was skipped
  std::swap(tensors_->statistics, tensors_->new_statistics);
  if (moves && pruning_) pruning_->apply(steps_, {tensors_->values, tensors_->optimizer_state, tensors_->statistics});
}

// Returns true if the parameters moved.
bool Trainer::update(evn_step_info* info) {
  const double rate = rate_.at(steps_);
  const Updater::Result result =
      updater_->move({rate, static_cast<double>(gradient_factor()), steps_, calls_}, gradients_->whole());
  info->gradient_norm = result.norm;
  info->learning_rate = result.has_moved ? rate : 0;
  info->skipped = result.has_moved ? 0 : 1;
  scale_.note(result.is_finite);
  ++(result.has_moved ? steps_ : skipped_);
  return result.has_moved;
}

// What gradients, or their sums, are multiplied by before they move the parameters.
float Trainer::gradient_factor() const {
  return 1.0f / (scale_.latest() * static_cast<float>(settings_.accumulate) * static_cast<float>(ranks_.ranks().count()));
}

void Trainer::evaluate(std::span<const evn_tensor> inputs, evn_tensor labels, evn_evaluation* evaluation) {
  const Batch batch = labels_->batch_of(inputs, labels);
  Work& work = evaluation_work(batch.kind);
  tensors_->give(batch, &work);
  for (const Tensor* output : {&right_, &count_, &tensors_->shape}) work.outputs.push_back(output->get());
  labels_->run(work, batch, 0);
  evaluation->loss = static_cast<double>(tensors_->loss.scalar<float>());
  evaluation->correct = static_cast<std::uint64_t>(right_.scalar<std::int64_t>());
  evaluation->count = static_cast<std::uint64_t>(count_.scalar<std::int64_t>());
}

void Trainer::note_metric(double value) {
  if (settings_.given.schedule != EVN_SCHEDULE_PLATEAU) return;
  if (!ranks_.is_alone()) {
    ranks_.ranks().sum({&value, 1});
    value /= ranks_.ranks().count();
  }
  rate_.note(value);
}

void Trainer::set_learning_rate(double rate) {
  if (!(rate >= 0) || !std::isfinite(rate))
    fail(EVN_ERROR_INVALID_ARGUMENT, "the learning rate is %s", evn::shortest_text(rate).c_str());
  rate_.set_base(rate);
}

evn_tensor Trainer::copy_of(std::uint32_t index, evn_parameter_part part) {
  if (index >= parameters().size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is no parameter %u, there are %zu", index, parameters().size());
  if (part != EVN_PARAMETER_VALUE && part != EVN_PARAMETER_GRADIENT) fail(EVN_ERROR_INVALID_ARGUMENT, "part is %d", part);
  const std::vector<Tensor>& of = part == EVN_PARAMETER_VALUE ? tensors_->values : gradients_->whole();
  Tensor copy(works_.runtime(), EVN_DTYPE_FLOAT32, parameters()[index].dims);
  call(evn_tensor_copy, of[index].get(), copy.get());
  if (const float factor = gradient_factor(); part == EVN_PARAMETER_GRADIENT && factor != 1) {
    const Mapped mapped(copy);
    auto* const gradient = static_cast<float*>(mapped.data());
    std::transform(gradient, gradient + parameters()[index].bytes() / sizeof(float), gradient, [&](float g) { return g * factor; });
  }
  return copy.release();
}

// The model with the numbers of now.
evn::SavedModel Trainer::trained_model() {
  evn::Model model = source_.model;
  std::vector<Value>& values = model.graph.values;
  const auto put = [&](const std::vector<Parameter>& list, const std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      void* bytes = nullptr;
      values[at(list[i].value)].constant = evn::make_unfilled_weight({DType::kFloat32, list[i].shape()}, source_.ledger, &bytes);
      tensors[i].read(bytes, list[i].bytes());
    }
  };
  put(graphs_->parameters(), tensors_->values);
  put(graphs_->statistics(), tensors_->statistics);
  if (pruning_) pruning_->shrink(&model.graph, source_.ledger);
  // A constant that learns or was pruned is no default any more.
  std::set<std::string_view> unchanged;
  for (std::size_t v = 0; v < source_.model.graph.values.size(); ++v) {
    const Value& before = source_.model.graph.values[v];
    if (before.constant != nullptr && before.constant == values[v].constant) unchanged.insert(before.name);
  }
  std::erase_if(model.defaults, [&](const evn::InputDefault& d) { return !unchanged.contains(d.declared.name); });
  return evn::save_onnx(model);
}

evn_model Trainer::finish() { return load_saved(works_.runtime(), trained_model()); }

void Trainer::write_model(const std::string& path) { evn::write_model_file(path, trained_model()); }

}  // namespace evn_train
