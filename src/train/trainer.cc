#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "base/number_text.h"
#include "base/os/os.h"
#include "core/dtype.h"
#include "train/loss.h"

namespace evn_train {
namespace {

constexpr std::int64_t kOpset = 17;  // the least: BatchNormalization with training_mode, LayerNormalization

}  // namespace

Trainer::Trainer(evn_runtime runtime, const char* path, const evn_trainer_options& options)
    : runtime_(runtime),
      settings_(read_settings(options)),
      ranks_(settings_),
      cancel_(options.cancel),
      rate_(settings_.given),
      scale_(settings_.given),
      bounds_(settings_) {
  // A rank that cannot make its trainer takes part until the others know.
  const std::optional<evn::Error> own = error_of([&] { prepare(path, options); });
  if (!ranks_.is_alone()) join_ranks(own);
  else if (own) throw evn::Error(*own);
}

// Reads the model within one time limit, for its checks and for what the trainer makes of it together.
void Trainer::read_model(const char* path, const evn_trainer_options& options) {
  const LoadLimits limits = load_limits(runtime_, cancel_);
  evn::Cancel cancel;
  cancel.deadline_ns = limits.time_ns == 0 ? 0 : evn::deadline_clock_ns() + limits.time_ns;
  cancel.requested = limits.requested;
  cancel.over = "the time to load the model is over";
  cancel.cancelled = "the load was cancelled";
  source_ = read_source(runtime_, path, options, kOpset);
  const evn::CancelScope scope(cancel);
  separate_statistics(&source_);
  graphs_.emplace(source_, settings_);
}

void Trainer::prepare(const char* path, const evn_trainer_options& options) {
  read_model(path, options);
  if ((settings_.given.flags & EVN_TRAIN_SYNC_NORM) != 0 && !ranks_.is_alone() && graphs_->most_norm_channels() > 0)
    norm_sums_.emplace(runtime_, ranks_, graphs_->most_norm_channels() + 1);
  if (settings_.given.prune_share > 0) pruning_.emplace(*graphs_, settings_.given);
  make_tensors();
  // What is wrong with the graph, or a device that cannot train it, shows now, and not in the first step.
  if (settings_.replicas.size() > 1) make_replicas();
  prepare_gradients(graphs_->usual_labels());
  update_.emplace();
  update_->session = make_session(graphs_->update_model(), "training: update", true);
  if (!ranks_.is_alone() && settings_.accumulates()) adding_work();
}

// Makes the sessions of gradients with labels of a kind.
void Trainer::prepare_gradients(Labels labels) {
  if (replicas_.empty()) gradient_work(labels);
  for (Replica& r : replicas_) replica_work(r, labels);
}

// Where parameters and what belongs to them lie: on the first device of the sessions, so that no step copies them. What other
// devices or processes read too lies on the host ("").
std::string Trainer::device_of_tensors() const {
  if (!ranks_.is_alone() || settings_.replicas.size() > 1 || settings_.device == "auto") return {};
  return settings_.device.substr(0, settings_.device.find(','));
}

void Trainer::make_tensors() {
  const std::string name = device_of_tensors();
  std::optional<Device> device;
  if (name.empty()) device.emplace(runtime_);
  else device.emplace(runtime_, name.c_str());
  const auto make = [&](const Parameter& p) { return Tensor(*device, EVN_DTYPE_FLOAT32, p.dims, 0); };
  // The values lie in the tensors alone from here on.
  const auto filled = [&](const Parameter& p) {
    Tensor t = make(p);
    evn::WeightPtr& weight = source_.model.graph.values[at(p.value)].constant;
    t.write(weight->bytes(), weight->size_bytes);
    weight.reset();
    graphs_->forget(p);
    return t;
  };
  for (const Parameter& p : graphs_->parameters()) values_.push_back(filled(p));
  for (const Statistic& s : graphs_->statistics()) statistics_.push_back(filled(s));
  optimizer_state_.resize(graphs_->optimizer_state_count());
  for (const Parameter& p : graphs_->parameters()) {
    if (ranks_.is_alone() || settings_.accumulates()) gradients_.push_back(make(p));
    if (ranks_.is_alone() && settings_.accumulates()) sums_.push_back(make(p));
    for (auto& list : optimizer_state_) list.push_back(make(p));
  }
  if (!ranks_.is_alone()) make_buckets();
  for (const Statistic& s : graphs_->statistics()) new_statistics_.push_back(make(s));
  for (std::size_t i = 0; i < graphs_->used_groups().size(); ++i)
    rates_.emplace_back(runtime_, EVN_DTYPE_FLOAT32, std::vector<std::int64_t>{8});
  loss_ = Tensor(runtime_, EVN_DTYPE_FLOAT32, {});
  norm_ = Tensor(runtime_, EVN_DTYPE_FLOAT32, {});
  finite_ = Tensor(runtime_, EVN_DTYPE_BOOL, {});
  moved_ = Tensor(runtime_, EVN_DTYPE_BOOL, {});
  safe_norm_ = Tensor(runtime_, EVN_DTYPE_FLOAT32, {});
  right_ = Tensor(runtime_, EVN_DTYPE_INT64, {});
  count_ = Tensor(runtime_, EVN_DTYPE_INT64, {});
  shape_ = Tensor(runtime_, EVN_DTYPE_INT64, {static_cast<std::int64_t>(kShapeElements)});
  if (LossScale::is_used(settings_.given)) loss_scale_ = Tensor(runtime_, EVN_DTYPE_FLOAT32, {});
}

Session Trainer::make_session(evn::Model made, const char* name, bool is_own, const std::string& device,
                              std::uint64_t arena_limit) const {
  Model model;
  *model.out() = take_model(runtime_, std::move(made), is_own, cancel_);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.name = name;
  options.cancel = cancel_;
  options.cache_file = "";
  options.precision = std::max<evn_precision>(settings_.given.precision, EVN_PRECISION_FP32);
  if (!device.empty()) options.device = device.c_str();
  return Session(evn_train::make_session(runtime_, model.get(), options, arena_limit));
}

Labels Trainer::kind_of(evn_tensor labels) const {
  if (labels == nullptr) {
    if (!graphs_->takes(Labels::kNone)) fail(EVN_ERROR_INVALID_ARGUMENT, "labels is NULL");
    return Labels::kNone;
  }
  const evn_tensor_info info = info_of(labels);
  const Labels kind = info.dtype == EVN_DTYPE_INT64 ? Labels::kClasses : Labels::kNumbers;
  const bool fits = info.dtype == EVN_DTYPE_INT64 || info.dtype == EVN_DTYPE_FLOAT32;
  if (!fits || !graphs_->takes(kind)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "labels have dtype %s, which the loss %s does not take",
         evn::dtype_name(static_cast<evn::DType>(info.dtype)), loss_name(settings_.given.loss));
  }
  return kind;
}

// Returns the size of the batch; 0: no tensor has that dim.
std::int64_t Trainer::check_arguments(std::span<const evn_tensor> inputs, evn_tensor labels) const {
  const Graph& graph = graphs_->graph();
  if (inputs.size() != graph.inputs.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs, %zu are given", graph.inputs.size(), inputs.size());
  std::int64_t batch = -1;
  for (std::size_t i = 0; i <= inputs.size(); ++i) {
    if (i == inputs.size() && labels == nullptr) break;
    const evn_tensor_info info = info_of(i < inputs.size() ? inputs[i] : labels);
    if (info.rank == 0) continue;
    if (batch >= 0 && info.dims[0] != batch) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "%s has a batch of %lld, others have %lld",
           i < inputs.size() ? name_of(graph, graph.inputs[i]).c_str() : "labels", static_cast<long long>(info.dims[0]),
           static_cast<long long>(batch));
    }
    batch = info.dims[0];
  }
  if (batch == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the batch is empty");
  return std::max<std::int64_t>(batch, 0);
}

Trainer::Work& Trainer::gradient_work(Labels labels) {
  std::optional<Work>& work = gradient_[static_cast<int>(labels)];
  if (!work) {
    Session session = make_session(graphs_->gradient_model(labels, norm_sums_ ? norm_sums_->id() : 0), "training: gradient", false,
                                   settings_.device, settings_.given.memory_limit);
    work.emplace();
    work->session = std::move(session);
  }
  return *work;
}

Trainer::Work& Trainer::evaluation_work(Labels labels) {
  std::optional<Work>& work = evaluation_[static_cast<int>(labels)];
  if (!work) {
    Session session = make_session(graphs_->evaluation_model(labels), "training: evaluation", false);
    work.emplace();
    work->session = std::move(session);
  }
  return *work;
}

// The caller's tensors, parameters and statistics.
void Trainer::set_arguments(Work& work, std::span<const evn_tensor> inputs, evn_tensor labels) const {
  work.inputs.assign(inputs.begin(), inputs.end());
  if (labels != nullptr) work.inputs.push_back(labels);
  append(&work.inputs, values_);
  append(&work.inputs, statistics_);
  work.outputs.clear();
  work.outputs.push_back(loss_.get());
}

void Trainer::run(Work& work, std::uint64_t seed, Run how) {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.random_seed = seed;
  options.allow_copies = 1;
  options.flags = how == Run::kUninterrupted ? EVN_RUN_OVERWRITE_INPUTS : 0;
  if (how != Run::kUninterrupted) options.cancel = cancel_;  // what moves the parameters is not stopped half-way
  const auto inputs = static_cast<std::uint32_t>(work.inputs.size()), outputs = static_cast<std::uint32_t>(work.outputs.size());
  const evn_tensor* const from = work.inputs.data();
  const evn_run_options* const with = &options;
  if (how != Run::kOverlapped) return call(evn_session_run, work.session.get(), from, inputs, work.outputs.data(), outputs, with);
  struct Listener {
    Buckets& buckets;
    std::uint32_t end;  // of the gradients among the outputs, behind the loss
  } listener{*buckets_, static_cast<std::uint32_t>(1 + gradients_.size())};
  const auto ready = [](void* context, std::uint32_t output) {
    auto* const l = static_cast<Listener*>(context);
    if (output >= 1 && output < l->end) l->buckets.ready(output - 1);
  };
  run_listened(work.session.get(), work.inputs, work.outputs, options, {ready, &listener});
}

// The last input of a gradient's model, where the loss is scaled.
void Trainer::give_loss_scale(Work& work) {
  if (loss_scale_.get() == nullptr) return;
  const float scale = scale_.latest();
  loss_scale_.write(&scale, sizeof scale);
  work.inputs.push_back(loss_scale_.get());
}

// The seed of a run's random numbers: others in each step, rank and replica.
std::uint64_t Trainer::seed_of_run(std::size_t replica) const {
  const std::uint64_t seed = settings_.given.seed + 0xd1342543de82ef95u * ranks_.rank() + 0xaf251af3b0f025b5u * replica;
  return seed * 0x9e3779b97f4a7c15u + calls_;
}

// The loss, gradients (in sums_ where they are the first of some steps) and new statistics of a batch.
void Trainer::make_gradients(Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels, std::int64_t batch, Run how) {
  ++calls_;
  scale_.begin_step();
  if (!replicas_.empty()) return make_gradients_split(labels, inputs, of_labels, batch, how);
  Work& work = gradient_work(labels);
  latest_ = &work;
  set_arguments(work, inputs, of_labels);
  give_loss_scale(work);
  append(&work.outputs, settings_.accumulates() && accumulated_ == 0 ? sums_ : gradients_);
  append(&work.outputs, new_statistics_);
  work.outputs.push_back(shape_.get());
  run_with_labels(work, labels, inputs, of_labels, seed_of_run(0), how);
}

Trainer::Work& Trainer::adding_work() {
  if (!adding_) {
    Session session = make_session(graphs_->adding_model(), "training: sums", false);
    adding_.emplace();
    adding_->session = std::move(session);
  }
  return *adding_;
}

// Takes the gradients into the sums. Returns whether these are complete. The new sums lie beside the old ones, which
// drop_latest_gradients() takes back; ranks, whose sums lie in buckets, add in place.
bool Trainer::add_gradients() {
  if (settings_.accumulates() && accumulated_ > 0) {
    const bool in_place = !ranks_.is_alone();
    Work& work = adding_work();
    work.inputs.clear();
    append(&work.inputs, in_place ? sums_ : gradients_);
    work.outputs = work.inputs;
    append(&work.inputs, in_place ? gradients_ : sums_);
    run(work, 0, Run::kUninterrupted);
    if (!in_place) std::swap(sums_, gradients_);
  }
  return ++accumulated_ >= settings_.accumulate;
}

// Undoes the latest add_gradients(). Sums of ranks stay as they are: a rank that fails here trains on after a restore alone.
void Trainer::drop_latest_gradients() {
  --accumulated_;
  if (accumulated_ > 0 && ranks_.is_alone()) std::swap(sums_, gradients_);
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
  if (!ranks_.is_alone() && (settings_.given.flags & EVN_TRAIN_CHECK_RANKS) != 0) check_parameters();
  info->step = steps_;
}

void Trainer::step_alone(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info) {
  const Labels kind = kind_of(labels);
  const std::int64_t batch = check_arguments(inputs, labels);
  make_gradients(kind, inputs, labels, batch, Run::kCancellable);
  info->loss = static_cast<double>(loss_.scalar<float>());
  if (settings_.accumulates() && !is_batch_finite()) {
    info->skipped = 1;
    ++skipped_;
    return;
  }
  end_step(add_gradients(), info);
}

// `is_complete`: gradients of all steps that are accumulated are there.
void Trainer::end_step(bool is_complete, evn_step_info* info) {
  bool moves = false;
  if (is_complete) {
    const std::optional<evn::Error> error = error_of([&] { moves = update(rate_.at(steps_), info); });
    if (error) {
      drop_latest_gradients();
      throw evn::Error(*error);
    }
    accumulated_ = 0;
  }
  if (is_complete && !moves) return;  // it was skipped
  std::swap(statistics_, new_statistics_);
  if (moves && pruning_) pruning_->apply(steps_, {values_, optimizer_state_, statistics_});
}

// What gradients, or their sums, are multiplied by before they move the parameters.
float Trainer::gradient_factor() const {
  return 1.0f / (scale_.latest() * static_cast<float>(settings_.accumulate) * static_cast<float>(ranks_.count()));
}

void Trainer::evaluate(std::span<const evn_tensor> inputs, evn_tensor labels, evn_evaluation* evaluation) {
  const Labels kind = kind_of(labels);
  check_arguments(inputs, labels);
  Work& work = evaluation_work(kind);
  set_arguments(work, inputs, labels);
  work.outputs.push_back(right_.get());
  work.outputs.push_back(count_.get());
  work.outputs.push_back(shape_.get());
  run_with_labels(work, kind, inputs, labels, 0, Run::kCancellable);
  evaluation->loss = static_cast<double>(loss_.scalar<float>());
  evaluation->correct = static_cast<std::uint64_t>(right_.scalar<std::int64_t>());
  evaluation->count = static_cast<std::uint64_t>(count_.scalar<std::int64_t>());
}

void Trainer::note_metric(double value) {
  if (settings_.given.schedule != EVN_SCHEDULE_PLATEAU) return;
  if (!ranks_.is_alone()) {
    ranks_.sum({&value, 1});
    value /= ranks_.count();
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
  const std::vector<Tensor>& of = part == EVN_PARAMETER_VALUE ? values_ : settings_.accumulates() ? sums_ : gradients_;
  Tensor copy(runtime_, EVN_DTYPE_FLOAT32, parameters()[index].dims);
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
  put(graphs_->parameters(), values_);
  put(graphs_->statistics(), statistics_);
  if (pruning_) pruning_->shrink(&model.graph, source_.ledger);
  // What learns or was pruned is no default any more.
  std::set<std::string_view> unchanged;
  for (std::size_t v = 0; v < source_.model.graph.values.size(); ++v) {
    const Value& before = source_.model.graph.values[v];
    if (before.constant != nullptr && before.constant == values[v].constant) unchanged.insert(before.name);
  }
  std::erase_if(model.defaults, [&](const evn::InputDefault& d) { return !unchanged.contains(d.declared.name); });
  return evn::save_onnx(model);
}

evn_model Trainer::finish() { return load_saved(runtime_, trained_model()); }

void Trainer::write_model(const std::string& path) { evn::write_model_file(path, trained_model()); }

}  // namespace evn_train
