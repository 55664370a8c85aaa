#include "cli/train_plan.h"

#include <algorithm>
#include <cstdlib>

#include "cli/npz.h"

namespace evn::cli {
namespace {

constexpr std::string_view kLosses[] = {"softmax_cross_entropy", "bce_with_logits", "mse", "l1", "output"};
constexpr std::string_view kOptimizers[] = {"sgd", "adam", "adamw", "adagrad", "rmsprop"};
constexpr std::string_view kSchedules[] = {"constant", "step", "exponential", "cosine", "plateau"};
constexpr double kMost = 1e30;
constexpr double kMostCount = 0x1p53;

std::string text_of(const Arguments& arguments, const char* option, const char* otherwise = "") {
  const char* const text = arguments.get(option);
  return text == nullptr ? otherwise : text;
}

// A whole number; 0 where the option is not given.
std::uint64_t count_of(const Arguments& arguments, const char* option, double least = 0) {
  const double value = number_of(arguments, option, least, kMostCount);
  const auto whole = static_cast<std::uint64_t>(value);
  if (static_cast<double>(whole) != value) fail_usage("%s is a whole number, not \"%s\"", option, arguments.get(option));
  return whole;
}

// Bytes, also as 512K, 64M or 2G.
std::uint64_t bytes_of(const Arguments& arguments, const char* option) {
  const char* const text = arguments.get(option);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  constexpr std::string_view kUnits = "KMG";
  const std::size_t unit = *end == '\0' ? std::string_view::npos : kUnits.find(*end);
  const double bytes = value * (unit == std::string_view::npos ? 1 : static_cast<double>(std::uint64_t{1} << (10 * (unit + 1))));
  const bool is_whole = end != text && (*end == '\0' || (unit != std::string_view::npos && end[1] == '\0'));
  if (!is_whole || !(bytes >= 1 && bytes <= kMostCount)) fail_usage("%s is bytes, as in 512M or 2G, not \"%s\"", option, text);
  return static_cast<std::uint64_t>(bytes);
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& t : texts) all.push_back(t.c_str());
  return all;
}

// What a launcher of MPI says of this process; -1: nothing.
int launched(const char* const (&names)[3]) {
  for (const char* name : names) {
    const char* const text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::atoi(text);
  }
  return -1;
}

}  // namespace

const char* train_loss_name(evn_loss loss) { return kLosses[loss].data(); }
const char* train_optimizer_name(evn_optimizer optimizer) { return kOptimizers[optimizer].data(); }
const char* train_schedule_name(evn_schedule schedule) { return kSchedules[schedule].data(); }

TrainPlan::TrainPlan(const Arguments& arguments)
    : model(arguments.operand(0)),
      data(text_of(arguments, "--data")),
      validation(text_of(arguments, "--validate")),
      labels(text_of(arguments, "--labels", "labels")),
      checkpoint(text_of(arguments, "--checkpoint")),
      resume(text_of(arguments, "--resume")),
      output(text_of(arguments, "-o")),
      report(text_of(arguments, "--report")),
      picture(text_of(arguments, "--picture")),
      frozen_(arguments.all("--freeze")),
      trainable_(arguments.all("--trainable")) {
  if (output.empty()) fail_usage("train needs -o FILE");
  if (data.empty()) fail_usage("train needs --data FILE.npz");
  for (const std::string* file : {&data, &validation}) {
    if (!file->empty() && !is_npz(*file))
      fail_usage("%s takes a file that ends in .npz, not \"%s\"", file == &data ? "--data" : "--validate", file->c_str());
  }
  options.loss = static_cast<evn_loss>(choice_of(arguments, "--loss", kLosses));
  options.optimizer = static_cast<evn_optimizer>(choice_of(arguments, "--optimizer", kOptimizers));
  options.schedule = static_cast<evn_schedule>(choice_of(arguments, "--schedule", kSchedules));
  if (options.loss == EVN_LOSS_OUTPUT) {
    if (arguments.has("--labels")) fail_usage("--loss output has no labels");
    labels.clear();
  }
  if (options.schedule == EVN_SCHEDULE_PLATEAU && validation.empty())
    fail_usage("--schedule plateau goes by the loss of --validate");
  if (const char* precision = arguments.get("--precision")) options.precision = parse_precision(precision);
  if (options.precision == EVN_PRECISION_AUTO) fail_usage("--precision of train is fp32, bf16 or fp16");
  options.output = arguments.get("--output");
  options.device = arguments.get("--device");
  frozen_names_ = pointers(frozen_);
  trainable_names_ = pointers(trainable_);
  options.frozen = frozen_names_.data();
  options.frozen_count = static_cast<std::uint32_t>(frozen_names_.size());
  options.trainable = trainable_names_.empty() ? nullptr : trainable_names_.data();
  options.trainable_count = static_cast<std::uint32_t>(trainable_names_.size());
  read_numbers(arguments);
  read_ranks(arguments);
}

void TrainPlan::read_numbers(const Arguments& arguments) {
  epochs = arguments.has("--epochs") ? count_of(arguments, "--epochs", 1) : 1;
  if (const char* text = arguments.get("--batch")) batch = static_cast<std::uint32_t>(parse_count("--batch", text, 1, INT32_MAX));
  every = count_of(arguments, "--every", 1);
  if (every > 0 && checkpoint.empty()) fail_usage("--every needs --checkpoint");
  const auto set_given = [&](double* option, const char* name, double least) {
    if (arguments.has(name)) *option = number_of(arguments, name, least, kMost);
  };
  set_given(&options.learning_rate, "--learning-rate", 0);
  options.momentum = number_of(arguments, "--momentum", 0, kMost);
  set_given(&options.weight_decay, "--weight-decay", 0);
  options.clip_norm = number_of(arguments, "--clip-norm", 0, kMost);
  options.flags = arguments.has("--nesterov") ? EVN_TRAIN_NESTEROV : 0;
  if (const char* text = arguments.get("--accumulate"))
    options.accumulate = static_cast<std::uint32_t>(parse_count("--accumulate", text, 1, INT32_MAX));
  options.warmup_steps = count_of(arguments, "--warmup");
  options.schedule_steps = count_of(arguments, "--schedule-steps", 1);
  set_given(&options.schedule_factor, "--schedule-factor", 0);
  options.least_rate = number_of(arguments, "--least-rate", 0, kMost);
  if (const char* text = arguments.get("--patience"))
    options.plateau_patience = static_cast<std::uint32_t>(parse_count("--patience", text, 0, INT32_MAX));
  options.seed = count_of(arguments, "--seed");
  set_given(&options.loss_scale, "--loss-scale", 0);
  options.memory_limit = bytes_of(arguments, "--memory-limit");
  options.prune_share = number_of(arguments, "--prune", 0, 0.99);
  options.prune_begin = count_of(arguments, "--prune-begin");
  options.prune_steps = count_of(arguments, "--prune-steps", 1);
  has_schedule_steps_ = options.schedule_steps > 0;
  has_prune_begin_ = arguments.has("--prune-begin");
  has_prune_steps_ = options.prune_steps > 0;
}

void TrainPlan::read_ranks(const Arguments& arguments) {
  constexpr std::string_view kCollectives[] = {"mpi", "gloo"};
  if (arguments.has("--collective")) options.collective = kCollectives[choice_of(arguments, "--collective", kCollectives)].data();
  options.collective_store = arguments.get("--store");
  const std::uint64_t ranks = count_of(arguments, "--ranks", 1), rank = count_of(arguments, "--rank");
  if (options.collective == nullptr) {
    for (const char* option : {"--store", "--rank", "--ranks"}) {
      if (arguments.has(option)) fail_usage("%s needs --collective", option);
    }
    return;
  }
  options.rank = static_cast<std::uint32_t>(std::min<std::uint64_t>(rank, UINT32_MAX));
  options.rank_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(ranks, UINT32_MAX));
  if (options.rank_count == 0) {  // as the launcher says
    const int size = launched({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
    const int number = launched({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
    if (size < 1 || number < 0 || number >= size || arguments.has("--rank"))
      fail_usage("--collective needs --ranks and --rank, or a launcher of MPI that says them");
    options.rank_count = static_cast<std::uint32_t>(size);
    options.rank = static_cast<std::uint32_t>(number);
  } else if (options.rank_count > 1 && !arguments.has("--rank")) {
    fail_usage("--ranks needs --rank, the number of this process");
  }
  if (options.rank >= options.rank_count) fail_usage("--rank is below --ranks, %u is not", options.rank);
}

void TrainPlan::set_steps(std::uint64_t batches) {
  std::uint64_t all = 0;
  if (__builtin_mul_overflow(epochs, batches, &all)) fail_usage("--epochs is too large");
  const std::uint64_t steps = std::max<std::uint64_t>(1, all / std::max<std::uint32_t>(1, options.accumulate));
  const std::uint64_t after_warmup = steps > options.warmup_steps ? steps - options.warmup_steps : 1;
  if (!has_schedule_steps_) options.schedule_steps = options.schedule == EVN_SCHEDULE_STEP ? (after_warmup + 2) / 3 : after_warmup;
  if (options.prune_share == 0) return;
  if (!has_prune_begin_) options.prune_begin = steps / 10;
  if (!has_prune_steps_) options.prune_steps = std::max<std::uint64_t>(1, steps / 2);
}

}  // namespace evn::cli
