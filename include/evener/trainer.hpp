// Training in C++: a model learns where its data is, and comes back as ONNX; see train.h for the rules.
//
//   evener::TrainerOptions options;
//   options.optimizer = evener::Optimizer::kAdamW;
//   evener::Trainer trainer(runtime, "model.onnx", options);
//   for (...) trainer.step(inputs, labels);
//   trainer.evaluate(others, their_labels).accuracy();
//   trainer.export_model("trained.onnx");
#ifndef EVENER_TRAINER_HPP
#define EVENER_TRAINER_HPP

#include "evener.hpp"
#include "train.h"

namespace evener {
inline namespace EVENER_SPANS {

enum class Loss : std::int32_t {
  kSoftmaxCrossEntropy = EVN_LOSS_SOFTMAX_CROSS_ENTROPY,
  kBceWithLogits = EVN_LOSS_BCE_WITH_LOGITS,
  kMse = EVN_LOSS_MSE,
  kL1 = EVN_LOSS_L1,
  kOutput = EVN_LOSS_OUTPUT  // the output is the loss: there are no labels
};

enum class Optimizer : std::int32_t {
  kSgd = EVN_OPTIMIZER_SGD,
  kAdam = EVN_OPTIMIZER_ADAM,
  kAdamW = EVN_OPTIMIZER_ADAMW,
  kAdagrad = EVN_OPTIMIZER_ADAGRAD,
  kRmsprop = EVN_OPTIMIZER_RMSPROP
};

enum class Schedule : std::int32_t {
  kConstant = EVN_SCHEDULE_CONSTANT,
  kStep = EVN_SCHEDULE_STEP,
  kExponential = EVN_SCHEDULE_EXPONENTIAL,
  kCosine = EVN_SCHEDULE_COSINE,
  kPlateau = EVN_SCHEDULE_PLATEAU
};

// All-reduce by the host (evn_reduce): `count` elements of kFloat32 or kFloat64 at `data` become their sums over all ranks. An
// Error that it throws gives its status to the call, another exception EVN_ERROR_INTERNAL. It must not call the trainer.
using Reduce = std::function<void(void* data, std::uint64_t count, DType dtype)>;

// Parameters that are treated otherwise than the rest; the first group with a name that matches counts.
struct ParameterGroup {
  std::vector<std::string> names;  // globs of names of initializers
  double rate_factor = EVN_DEFAULT;   // times the learning rate; EVN_DEFAULT: 1
  double weight_decay = EVN_DEFAULT;  // EVN_DEFAULT: that of the options
};

// Options of a trainer; train.h says what EVN_DEFAULT, and an empty option, stand for. 0 is the number 0 where EVN_DEFAULT is the
// initial value.
struct TrainerOptions {
  Loss loss = Loss::kSoftmaxCrossEntropy;
  std::string output;  // that the loss is of; "": the first
  std::vector<std::string> trainable, frozen;  // globs; no trainable: all that can learn
  std::vector<ParameterGroup> groups;
  Precision precision = Precision::kDefault;

  Optimizer optimizer = Optimizer::kSgd;
  double learning_rate = EVN_DEFAULT;
  double momentum = 0, dampening = 0, weight_decay = EVN_DEFAULT;
  bool nesterov = false, centered = false;
  double beta1 = EVN_DEFAULT, beta2 = EVN_DEFAULT, epsilon = EVN_DEFAULT, alpha = EVN_DEFAULT;
  double rate_decay = 0;

  Schedule schedule = Schedule::kConstant;
  std::uint64_t warmup_steps = 0, schedule_steps = 0;
  double schedule_factor = EVN_DEFAULT, least_rate = 0;
  double plateau_threshold = EVN_DEFAULT;
  std::uint32_t plateau_patience = EVN_DEFAULT_COUNT;

  double clip_norm = 0, clip_value = 0;
  std::uint32_t accumulate = 0;
  double loss_scale = EVN_DEFAULT;
  std::uint64_t seed = 0;
  std::uint64_t memory_limit = 0;
  double prune_share = 0;
  std::uint64_t prune_begin = 0, prune_steps = 0;

  std::string device;        // "": as the configuration says
  std::string external_dir;  // of a model that comes from a buffer; "": none is allowed
  const Cancel* cancel = nullptr;  // once it is requested, the constructor, step and evaluate end with EVN_ERROR_CANCELLED

  std::vector<std::string> replicas;  // devices that share each batch; none: `device` alone
  std::uint32_t rank = 0, rank_count = 0;
  std::chrono::milliseconds collective_timeout{0};
  Reduce reduce;           // the sum over ranks by the host; empty: none
  std::string collective;  // the sum over ranks by a module: "mpi", "gloo"; "": none
  std::string collective_store;
  std::uint64_t bucket_bytes = 0;
  bool check_ranks = false, sync_norm = false;
};

// How good a model is on a batch.
struct Evaluation {
  double loss = 0;
  std::uint64_t correct = 0, count = 0;
  // Nothing where the loss has none.
  std::optional<double> accuracy() const {
    if (count == 0) return std::nullopt;
    return static_cast<double>(correct) / static_cast<double>(count);
  }
};

namespace detail {

inline std::vector<const char*> c_strs(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  all.reserve(texts.size());
  for (const std::string& t : texts) all.push_back(t.c_str());
  return all;
}

inline evn_status on_reduce(void* context, void* data, std::uint64_t count, evn_dtype dtype, evn_error* error) noexcept {
  return guarded(error, [&] { (*static_cast<Reduce*>(context))(data, count, static_cast<DType>(dtype)); });
}

}  // namespace detail

class Trainer : public detail::Object<evn_trainer, evn_trainer_release> {
 public:
  Trainer() noexcept = default;
  Trainer(const Runtime& runtime, const std::string& path, const TrainerOptions& options = {}) {
    create(runtime, path.c_str(), {}, options);
  }
  // Trains a model's bytes, which are copied.
  Trainer(const Runtime& runtime, const void* data, std::size_t size, const TrainerOptions& options = {}) {
    create(runtime, nullptr, Span<const std::byte>(static_cast<const std::byte*>(data), size), options);
  }

  std::size_t input_count() const { return detail::count(get(), evn_trainer_input_count); }
  // Throws EVN_ERROR_INVALID_ARGUMENT when there is none of that name.
  std::size_t find_input(const std::string& name) const {
    std::uint32_t index = 0;
    detail::check([&](evn_error* e) { return evn_trainer_find_input(get(), name.c_str(), &index, e); });
    return index;
  }

  // Learns from one batch: inputs in the model's order; labels as the loss says, an empty Tensor with Loss::kOutput.
  evn_step_info step(Span<const Tensor> inputs, const Tensor& labels = Tensor()) const {
    const std::vector<evn_tensor> in = handles(inputs);
    evn_step_info info = EVN_STEP_INFO_INIT;
    detail::check([&](evn_error* e) {
      return evn_trainer_step(get(), in.data(), static_cast<std::uint32_t>(in.size()), labels.get(), &info, e);
    });
    return info;
  }
  // Compares the model as it is in use with labels; nothing is learned.
  Evaluation evaluate(Span<const Tensor> inputs, const Tensor& labels = Tensor()) const {
    const std::vector<evn_tensor> in = handles(inputs);
    evn_evaluation info = EVN_EVALUATION_INIT;
    detail::check([&](evn_error* e) {
      return evn_trainer_evaluate(get(), in.data(), static_cast<std::uint32_t>(in.size()), labels.get(), &info, e);
    });
    return {info.loss, info.correct, info.count};
  }

  // Tells Schedule::kPlateau what is to fall.
  void note_metric(double value) const {
    detail::check([&](evn_error* e) { return evn_trainer_note_metric(get(), value, e); });
  }
  void set_learning_rate(double rate) const {
    detail::check([&](evn_error* e) { return evn_trainer_set_learning_rate(get(), rate, e); });
  }

  // Names of the parameters that learn, in the order of their indices.
  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names(detail::count(get(), evn_trainer_parameter_count));
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = detail::text_at(get(), evn_trainer_parameter_name, i);
    return names;
  }
  // A copy of the parameter at an index, or of its gradient in the last step, before clipping.
  Tensor parameter(std::size_t index) const { return part(index, EVN_PARAMETER_VALUE); }
  Tensor gradient(std::size_t index) const { return part(index, EVN_PARAMETER_GRADIENT); }

  // Writes all that training needs to go on with the same bits, in one step.
  void save(const std::string& path) const {
    detail::check([&](evn_error* e) { return evn_trainer_save(get(), path.c_str(), e); });
  }
  void restore(const std::string& path) const {
    detail::check([&](evn_error* e) { return evn_trainer_restore(get(), path.c_str(), e); });
  }
  // The trained model, with the parameters of now.
  Model finish() const {
    Model model;
    detail::check([&](evn_error* e) { return evn_trainer_finish(get(), model.handle_.out(), e); });
    return model;
  }
  // Writes it as an ONNX file in one step.
  void export_model(const std::string& path) const {
    detail::check([&](evn_error* e) { return evn_trainer_export(get(), path.c_str(), e); });
  }
  std::string describe(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_trainer_describe(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

 private:
  static std::vector<evn_tensor> handles(Span<const Tensor> tensors) {
    std::vector<evn_tensor> all;
    all.reserve(tensors.size());
    for (const Tensor& t : tensors) all.push_back(t.get());
    return all;
  }
  Tensor part(std::size_t index, evn_parameter_part part) const {
    Tensor t;
    detail::check([&](evn_error* e) {
      return evn_trainer_get_parameter(get(), static_cast<std::uint32_t>(index), part, t.handle_.out(), e);
    });
    return t;
  }

  static void set_numbers(const TrainerOptions& options, evn_trainer_options* o) {
    o->loss = static_cast<evn_loss>(options.loss);
    o->optimizer = static_cast<evn_optimizer>(options.optimizer);
    o->schedule = static_cast<evn_schedule>(options.schedule);
    if (options.nesterov) o->flags |= EVN_TRAIN_NESTEROV;
    if (options.centered) o->flags |= EVN_TRAIN_CENTERED;
    if (options.check_ranks) o->flags |= EVN_TRAIN_CHECK_RANKS;
    if (options.sync_norm) o->flags |= EVN_TRAIN_SYNC_NORM;
    o->precision = static_cast<evn_precision>(options.precision);
    o->accumulate = options.accumulate;
    o->learning_rate = options.learning_rate;
    o->momentum = options.momentum;
    o->dampening = options.dampening;
    o->weight_decay = options.weight_decay;
    o->beta1 = options.beta1;
    o->beta2 = options.beta2;
    o->epsilon = options.epsilon;
    o->alpha = options.alpha;
    o->rate_decay = options.rate_decay;
    o->clip_norm = options.clip_norm;
    o->clip_value = options.clip_value;
    o->warmup_steps = options.warmup_steps;
    o->schedule_steps = options.schedule_steps;
    o->schedule_factor = options.schedule_factor;
    o->least_rate = options.least_rate;
    o->plateau_threshold = options.plateau_threshold;
    o->plateau_patience = options.plateau_patience;
    o->seed = options.seed;
    o->loss_scale = options.loss_scale;
    o->memory_limit = options.memory_limit;
    o->prune_share = options.prune_share;
    o->prune_begin = options.prune_begin;
    o->prune_steps = options.prune_steps;
    o->rank = options.rank;
    o->rank_count = options.rank_count;
    const std::int64_t timeout = options.collective_timeout.count();
    if (timeout < 0 || timeout > std::int64_t{UINT32_MAX}) {
      throw Error(EVN_ERROR_INVALID_ARGUMENT, "collective_timeout is " + std::to_string(timeout) + " ms");
    }
    o->collective_timeout_ms = static_cast<std::uint32_t>(timeout);
    o->bucket_bytes = options.bucket_bytes;
  }

  void create(const Runtime& runtime, const char* path, Span<const std::byte> bytes, const TrainerOptions& options) {
    evn_trainer_options o = EVN_TRAINER_OPTIONS_INIT;
    set_numbers(options, &o);
    const std::vector<const char*> trainable = detail::c_strs(options.trainable), frozen = detail::c_strs(options.frozen),
                                   replicas = detail::c_strs(options.replicas);
    std::vector<std::vector<const char*>> names;
    std::vector<evn_parameter_group> groups;
    for (const ParameterGroup& g : options.groups) {
      names.push_back(detail::c_strs(g.names));  // whose elements stay where they are when this one grows
      groups.push_back({names.back().data(), static_cast<std::uint32_t>(g.names.size()), 0, g.rate_factor, g.weight_decay});
    }
    o.output = detail::c_str_or_null(options.output);
    o.trainable = trainable.empty() ? nullptr : trainable.data();
    o.trainable_count = static_cast<std::uint32_t>(trainable.size());
    o.frozen = frozen.empty() ? nullptr : frozen.data();
    o.frozen_count = static_cast<std::uint32_t>(frozen.size());
    o.groups = groups.empty() ? nullptr : groups.data();
    o.group_count = static_cast<std::uint32_t>(groups.size());
    o.replicas = replicas.empty() ? nullptr : replicas.data();
    o.replica_count = static_cast<std::uint32_t>(replicas.size());
    o.device = detail::c_str_or_null(options.device);
    o.data = bytes.data();
    o.size = bytes.size();
    o.external_dir = detail::c_str_or_null(options.external_dir);
    o.cancel = options.cancel != nullptr ? options.cancel->get() : nullptr;
    o.collective = detail::c_str_or_null(options.collective);
    o.collective_store = detail::c_str_or_null(options.collective_store);
    if (options.reduce) {
      reduce_ = std::make_unique<Reduce>(options.reduce);
      o.reduce = detail::on_reduce;
      o.reduce_context = reduce_.get();
    }
    detail::check([&](evn_error* e) { return evn_trainer_create(runtime.get(), path, &o, handle_.out(), e); });
  }

  std::unique_ptr<Reduce> reduce_;
};

}  // inline namespace
}  // namespace evener
#endif
