#include "train/rank_steps.h"

#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "base/status.h"
#include "train/model_hash.h"

namespace evn_train {
namespace {

// A hash of all that ranks must have in common.
std::uint64_t fingerprint(const Settings& settings, const TrainingGraphs& graphs) {
  evn::Hasher h;
  std::vector<bool> learned(graphs.graph().values.size());
  for (const auto* list : {&graphs.parameters(), &graphs.statistics()}) {
    for (const Parameter& p : *list) {
      learned[at(p.value)] = true;
      h.add(p.name);
      for (const std::int64_t dim : p.dims) h.add(static_cast<std::uint64_t>(dim));
      h.add(p.group);
    }
  }
  add_model(&h, graphs.graph(), learned);
  h.add(graphs.output());
  const evn_trainer_options& o = settings.given;
  for (const std::int32_t choice : {o.loss, o.optimizer, o.schedule, o.precision}) h.add(static_cast<std::uint64_t>(choice));
  for (const double number :
       {o.learning_rate, o.momentum, o.dampening, o.beta1, o.beta2, o.epsilon, o.alpha, o.rate_decay, o.clip_norm, o.clip_value,
        o.schedule_factor, o.least_rate, o.plateau_threshold, o.prune_share, o.loss_scale})
    h.add(&number, sizeof number);
  for (const ParameterGroup& g : settings.groups) {
    h.add(&g.rate_factor, sizeof g.rate_factor);
    h.add(&g.weight_decay, sizeof g.weight_decay);
  }
  for (const std::uint64_t count :
       {std::uint64_t{o.flags}, o.warmup_steps, o.schedule_steps, std::uint64_t{o.plateau_patience},
        std::uint64_t{settings.accumulate}, o.bucket_bytes, o.prune_begin, o.prune_steps, o.memory_limit})
    h.add(count);
  return h.value();
}

// The order in which the backward pass makes gradients: those of the last nodes first.
std::vector<std::size_t> order_of_gradients(const TrainingGraphs& graphs) {
  const Graph& graph = graphs.graph();
  std::vector<std::size_t> first_use(graph.values.size(), 0);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    for (const ValueId v : graph.nodes[n].inputs) {
      if (v != kNoValue) first_use[at(v)] = n;
    }
  }
  std::vector<std::size_t> order(graphs.parameters().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto use = [&](std::size_t p) { return first_use[at(graphs.parameters()[p].value)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return use(a) > use(b); });
  return order;
}

}  // namespace

std::vector<Tensor> RankSteps::prepare(evn_runtime runtime, const TrainingGraphs& graphs) {
  if ((settings_.given.flags & EVN_TRAIN_SYNC_NORM) != 0 && graphs.most_norm_channels() > 0)
    norm_sums_.emplace(runtime, ranks_, graphs.most_norm_channels() + 1);
  std::vector<std::vector<std::int64_t>> dims;
  for (const Parameter& p : graphs.parameters()) dims.push_back(p.dims);
  buckets_.emplace(runtime, ranks_, dims, order_of_gradients(graphs), settings_.given.bucket_bytes);
  return buckets_->take_tensors();
}

void RankSteps::join(const std::optional<evn::Error>& own, const TrainingGraphs* graphs, const TrainerTensors* tensors) {
  exchange({}, own, "make its trainer");
  const std::uint64_t words[] = {fingerprint(settings_, *graphs)};
  if (ranks_.first_difference(words) >= 0) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "rank %u of %u: the ranks train different models, or with different options", ranks_.rank(),
         ranks_.count());
  }
  const auto broadcast = [&](const std::vector<Parameter>& list, const std::vector<Tensor>& of) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Mapped mapped(of[i]);
      ranks_.broadcast({static_cast<float*>(mapped.data()), list[i].bytes() / sizeof(float)});
    }
  };
  broadcast(graphs->parameters(), tensors->values);
  broadcast(graphs->statistics(), tensors->statistics);
  std::size_t numbers = 0;
  for (const Statistic& statistic : graphs->statistics()) numbers += statistic.bytes() / sizeof(float);
  exchanged_statistics_.reserve(numbers);
}

void RankSteps::exchange(std::span<double> numbers, const std::optional<evn::Error>& own, const char* what) {
  exchanged_.assign(numbers.begin(), numbers.end());
  exchanged_.resize(numbers.size() + ranks_.count(), 0);
  double* const statuses = exchanged_.data() + numbers.size();
  if (own) {  // it is what this rank reports, whatever becomes of the others
    statuses[ranks_.rank()] = own->status;
    error_of([&] { ranks_.sum(std::span<double>(exchanged_)); });
    throw evn::Error(*own);
  }
  ranks_.sum(std::span<double>(exchanged_));
  std::copy_n(exchanged_.begin(), numbers.size(), numbers.begin());
  for (std::uint32_t r = 0; r < ranks_.count(); ++r) {
    if (statuses[r] == 0) continue;
    fail(EVN_ERROR_WRONG_STATE, "rank %u could not %s (%s): no rank has changed anything", r, what,
         evn::status_name(static_cast<evn_status>(statuses[r])));
  }
}

float RankSteps::open(std::int64_t batch, const std::optional<evn::Error>& own) {
  const double rows = batch > 0 ? static_cast<double>(batch) : 1;
  double sums[] = {rows, rows * rows};
  exchange(sums, own, "begin the step");
  const double count = ranks_.count();
  const bool must_be_even = settings_.accumulates() || norm_sums_;
  if (must_be_even && sums[1] * count != sums[0] * sums[0]) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "where %s, batches of all ranks must be of one size",
         norm_sums_ ? "BatchNormalization is synchronized" : "gradients are accumulated");
  }
  return static_cast<float>(rows * count / sums[0]);
}

// Sums must come in one order in all ranks: those that a run makes itself would come between those of the buckets.
bool RankSteps::overlaps() const { return !settings_.accumulates() && !norm_sums_; }

void RankSteps::begin_gradients(float weight) {
  if (!settings_.accumulates()) buckets_->begin(weight);
  if (norm_sums_) norm_sums_->begin();
}

std::optional<evn::Error> RankSteps::end_gradients(std::optional<evn::Error> own) {
  if (norm_sums_) {
    const std::optional<evn::Error> at_end = error_of([&] { norm_sums_->end(own.has_value()); });
    if (!own) own = at_end;
  }
  if (!settings_.accumulates()) buckets_->finish();
  return own;
}

void RankSteps::close(float weight, const std::optional<evn::Error>& own, const TrainingGraphs& graphs, TrainerTensors* tensors) {
  double loss[] = {own ? 0 : static_cast<double>(weight) * static_cast<double>(tensors->loss.scalar<float>())};
  exchange(loss, own, "make the step");
  const float mean = static_cast<float>(loss[0] / ranks_.count());
  tensors->loss.write(&mean, sizeof mean);
  if (!tensors->new_statistics.empty()) average_statistics(weight, graphs, tensors);
}

void RankSteps::average_statistics(float weight, const TrainingGraphs& graphs, TrainerTensors* tensors) {
  const auto& list = graphs.statistics();
  exchanged_statistics_.clear();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Mapped mapped(tensors->new_statistics[i]);
    const auto* const from = static_cast<const float*>(mapped.data());
    exchanged_statistics_.insert(exchanged_statistics_.end(), from, from + list[i].bytes() / sizeof(float));
  }
  const float share = weight / static_cast<float>(ranks_.count());
  for (float& x : exchanged_statistics_) x *= share;
  ranks_.sum(std::span<float>(exchanged_statistics_));
  const float* from = exchanged_statistics_.data();
  for (std::size_t i = 0; i < list.size(); ++i) {
    tensors->new_statistics[i].write(from, list[i].bytes());
    from += list[i].bytes() / sizeof(float);
  }
}

void RankSteps::sum_whole() {
  buckets_->begin(1);
  buckets_->finish();
}

void RankSteps::check_parameters(const TrainingGraphs& graphs, const std::vector<Tensor>& values) {
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Mapped mapped(values[i]);
    words.push_back(evn::checksum_of(mapped.data(), graphs.parameters()[i].bytes()));
  }
  const std::int64_t i = ranks_.first_difference(words);
  if (i < 0) return;
  failed = evn::make_error(EVN_ERROR_WRONG_STATE, "rank %u of %u: parameter \"%.160s\" has other bits in another rank",
                           ranks_.rank(), ranks_.count(), graphs.parameters()[static_cast<std::size_t>(i)].name.c_str());
  throw evn::Error(*failed);
}

void RankSteps::check_step(const TrainingGraphs& graphs, const std::vector<Tensor>& values) {
  if (!is_alone() && (settings_.given.flags & EVN_TRAIN_CHECK_RANKS) != 0) check_parameters(graphs, values);
}

}  // namespace evn_train
