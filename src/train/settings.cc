#include "train/settings.h"

#include <algorithm>
#include <cmath>

#include "base/cancel.h"
#include "base/number_text.h"
#include "base/text.h"
#include "train/library.h"

namespace evn_train {
namespace {

constexpr const char* kLosses[] = {"softmax_cross_entropy", "bce_with_logits", "mse", "l1", "output"};
constexpr const char* kOptimizers[] = {"sgd", "adam", "adamw", "adagrad", "rmsprop"};
constexpr const char* kSchedules[] = {"constant", "step", "exponential", "cosine", "plateau"};

constexpr std::size_t kMostReplicas = 16;
constexpr double kLargestBelowOne = 0.99999994;  // of float32

void check_enum(std::int32_t value, std::int32_t last, const char* name) {
  if (value < 0 || value > last) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is %d, expected 0 .. %d", name, value, last);
}

void check_number(double value, double least, double most, const char* name) {
  if (value >= least && value <= most) return;  // a NaN is not
  const auto text = [](double x) { return evn::shortest_text(x); };
  fail(EVN_ERROR_INVALID_ARGUMENT, "%s is %s, expected %s .. %s", name, text(value).c_str(), text(least).c_str(),
       text(most).c_str());
}

std::vector<std::string> read_names(const char* const* names, std::uint32_t count, const char* what) {
  if (names == nullptr && count > 0) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is NULL", what);
  std::vector<std::string> read;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "an entry of %s is NULL", what);
    read.emplace_back(names[i]);
  }
  return read;
}

void or_default(double* value, double otherwise) {
  if (std::isnan(*value)) *value = otherwise;
}

void fill_defaults(evn_trainer_options* o) {
  const evn_optimizer kind = o->optimizer;
  or_default(&o->learning_rate, kind == EVN_OPTIMIZER_ADAGRAD || kind == EVN_OPTIMIZER_RMSPROP ? 0.01 : 0.001);
  or_default(&o->weight_decay, kind == EVN_OPTIMIZER_ADAMW ? 0.01 : 0);
  or_default(&o->beta1, 0.9);
  or_default(&o->beta2, 0.999);
  or_default(&o->epsilon, kind == EVN_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8);
  or_default(&o->alpha, 0.99);
  or_default(&o->schedule_factor, 0.1);
  or_default(&o->plateau_threshold, 1e-4);
  if (o->plateau_patience == EVN_DEFAULT_COUNT) o->plateau_patience = 10;
  or_default(&o->loss_scale, EVN_DEFAULT);  // the same bits in all ranks, which compare them
}

void check_ranks(const evn_trainer_options& o) {
  if ((o.flags & EVN_TRAIN_SYNC_NORM) != 0 && o.replica_count > 1)
    fail(EVN_ERROR_UNSUPPORTED, "EVN_TRAIN_SYNC_NORM: replicas normalize by their own rows");
  if (o.rank_count > kMostRanks) fail(EVN_ERROR_INVALID_ARGUMENT, "rank_count is %u, expected 0 .. %u", o.rank_count, kMostRanks);
  if (o.rank != 0 && o.rank >= o.rank_count) fail(EVN_ERROR_INVALID_ARGUMENT, "rank is %u of %u", o.rank, o.rank_count);
  if (o.reduce != nullptr && o.collective != nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "reduce and collective are both given");
  if (o.rank_count > 1 && o.reduce == nullptr && o.collective == nullptr)
    fail(EVN_ERROR_INVALID_ARGUMENT, "rank_count is %u, but neither reduce nor collective is given", o.rank_count);
  if (o.reduce != nullptr && o.rank_count == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reduce is given without rank_count");
  if (o.collective == nullptr) return;
  const std::string_view name = o.collective;
  if (name != "mpi" && name != "gloo")
    fail(EVN_ERROR_INVALID_ARGUMENT, "collective is \"%.64s\", expected mpi or gloo", o.collective);
}

void check_numbers(const evn_trainer_options& o) {
  constexpr double kMost = 1e30;
  check_enum(o.loss, EVN_LOSS_OUTPUT, "loss");
  check_enum(o.optimizer, EVN_OPTIMIZER_RMSPROP, "optimizer");
  check_enum(o.schedule, EVN_SCHEDULE_PLATEAU, "schedule");
  check_number(o.learning_rate, 0, kMost, "learning_rate");
  check_number(o.momentum, 0, kMost, "momentum");
  check_number(o.dampening, 0, 1, "dampening");
  check_number(o.weight_decay, 0, kMost, "weight_decay");
  check_number(o.beta1, 0, kLargestBelowOne, "beta1");
  check_number(o.beta2, 0, kLargestBelowOne, "beta2");
  check_number(o.epsilon, 0, kMost, "epsilon");
  check_number(o.alpha, 0, 1, "alpha");
  check_number(o.rate_decay, 0, kMost, "rate_decay");
  check_number(o.clip_norm, 0, kMost, "clip_norm");
  check_number(o.clip_value, 0, kMost, "clip_value");
  check_number(o.schedule_factor, 0, kMost, "schedule_factor");
  check_number(o.least_rate, 0, kMost, "least_rate");
  check_number(o.plateau_threshold, 0, kMost, "plateau_threshold");
  constexpr std::uint32_t kFlags = EVN_TRAIN_NESTEROV | EVN_TRAIN_CENTERED | EVN_TRAIN_CHECK_RANKS | EVN_TRAIN_SYNC_NORM;
  if ((o.flags & ~kFlags) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
  if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  if (!std::isnan(o.loss_scale)) check_number(o.loss_scale, kLeastLossScale, kMostLossScale, "loss_scale");
  check_number(o.prune_share, 0, 0.99, "prune_share");
  if (o.prune_share == 0 && (o.prune_begin != 0 || o.prune_steps != 0))
    fail(EVN_ERROR_INVALID_ARGUMENT, "prune_begin and prune_steps need prune_share");
  if (o.precision < EVN_PRECISION_DEFAULT || o.precision > EVN_PRECISION_FP16)
    fail(EVN_ERROR_UNSUPPORTED, "precision is %d: training is in float32, or with products of bfloat16 or float16", o.precision);
}

// Rounds numbers to float32, in which kernels have them, so that everything computes with the same numbers. Refuses a number that
// would become one of another meaning.
void round_numbers(evn_trainer_options* o) {
  const auto to_float = [](double* value) { *value = static_cast<double>(static_cast<float>(*value)); };
  for (double* value : {&o->momentum, &o->beta1, &o->beta2, &o->epsilon, &o->rate_decay}) to_float(value);
  const auto to_float_beside = [&](double* value, double special, const char* name) {
    const double given = *value;
    to_float(value);
    if (*value != special || given == special) return;
    fail(EVN_ERROR_INVALID_ARGUMENT, "%s is %s, which is %s in float32", name, evn::shortest_text(given).c_str(),
         evn::shortest_text(special).c_str());
  };
  to_float_beside(&o->dampening, 1, "dampening");
  to_float_beside(&o->alpha, 1, "alpha");
  to_float_beside(&o->clip_norm, 0, "clip_norm");  // 0 does not clip
  to_float_beside(&o->clip_value, 0, "clip_value");
}

void check_choices(const evn_trainer_options& o) {
  check_ranks(o);
  const bool counts = o.schedule == EVN_SCHEDULE_STEP || o.schedule == EVN_SCHEDULE_COSINE;
  if (counts && o.schedule_steps == 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "the schedule %s needs schedule_steps", kSchedules[o.schedule]);
  if ((o.flags & EVN_TRAIN_NESTEROV) != 0 && (o.optimizer != EVN_OPTIMIZER_SGD || o.momentum == 0 || o.dampening != 0))
    fail(EVN_ERROR_INVALID_ARGUMENT, "EVN_TRAIN_NESTEROV is of SGD with momentum and without dampening");
}

}  // namespace

Settings read_settings(const evn_trainer_options& options) {
  Settings s;
  s.given = options;
  fill_defaults(&s.given);
  check_numbers(s.given);
  round_numbers(&s.given);
  check_choices(s.given);
  if (options.output != nullptr) s.output = options.output;
  if (options.device != nullptr) s.device = options.device;
  if (options.collective != nullptr) s.collective = options.collective;
  if (options.collective_store != nullptr) s.collective_store = options.collective_store;
  if (options.trainable != nullptr && options.trainable_count == 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "trainable is an empty list: nothing can learn (NULL: all that can)");
  s.trainable = read_names(options.trainable, options.trainable_count, "trainable");
  s.frozen = read_names(options.frozen, options.frozen_count, "frozen");
  s.replicas = read_names(options.replicas, options.replica_count, "replicas");
  if (!s.replicas.empty() && options.device != nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "device and replicas are both given");
  if (s.replicas.size() > kMostReplicas)
    fail(EVN_ERROR_INVALID_ARGUMENT, "there are %zu replicas, expected 0 .. %zu", s.replicas.size(), kMostReplicas);
  if (!s.replicas.empty()) s.device = s.replicas[0];
  if (options.groups == nullptr && options.group_count > 0) fail(EVN_ERROR_INVALID_ARGUMENT, "groups is NULL");
  for (std::uint32_t i = 0; i < options.group_count; ++i) {
    const evn_parameter_group& g = options.groups[i];
    if (g.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved of a group is not 0");
    double factor = g.rate_factor, decay = g.weight_decay;
    or_default(&factor, 1);
    or_default(&decay, s.given.weight_decay);
    check_number(factor, 0, 1e30, "rate_factor of a group");
    check_number(decay, 0, 1e30, "weight_decay of a group");
    s.groups.push_back({read_names(g.names, g.name_count, "names of a group"), factor, decay});
  }
  s.groups.push_back({{"*"}, 1, s.given.weight_decay});
  s.accumulate = std::max<std::uint32_t>(1, options.accumulate);
  return s;
}

const char* loss_name(evn_loss loss) { return kLosses[loss]; }
const char* optimizer_name(evn_optimizer optimizer) { return kOptimizers[optimizer]; }
const char* schedule_name(evn_schedule schedule) { return kSchedules[schedule]; }

bool fits_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
    evn::cancellation_point(evn::kNodeWork);
    return evn::glob_match(p, name);
  });
}

}  // namespace evn_train
