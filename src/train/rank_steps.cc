// Steps of a trainer that is one of several ranks: what they tell each other, in an order that is the same in all of them. A rank
// that fails takes part until the exchange in which the others learn of it, so that nobody waits.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/hash.h"
#include "base/status.h"
#include "train/trainer.h"

namespace evn_train {
namespace {

// A hash of all that ranks must have in common.
std::uint64_t fingerprint(const Settings& settings, const TrainingGraphs& graphs) {
  evn::Hasher h;
  for (const auto* list : {&graphs.parameters(), &graphs.statistics()}) {
    for (const Parameter& p : *list) {
      h.add(p.name);
      for (const std::int64_t dim : p.dims) h.add(static_cast<std::uint64_t>(dim));
      h.add(p.group);
    }
  }
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

}  // namespace

// Gradients lie in the buckets in the order in which the backward pass makes them: those of the last nodes first.
void Trainer::make_buckets() {
  const Graph& graph = graphs_->graph();
  std::vector<std::size_t> first_use(graph.values.size(), 0);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    for (const ValueId v : graph.nodes[n].inputs) {
      if (v != kNoValue) first_use[at(v)] = n;
    }
  }
  std::vector<std::vector<std::int64_t>> dims;
  for (const Parameter& p : parameters()) dims.push_back(p.dims);
  std::vector<std::size_t> order(dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto use = [&](std::size_t p) { return first_use[at(parameters()[p].value)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return use(a) > use(b); });
  buckets_.emplace(runtime_, ranks_, dims, order, settings_.given.bucket_bytes);
  (settings_.accumulates() ? sums_ : gradients_) = buckets_->take_tensors();
}

// All ranks train the same model in the same way, and begin with the parameters of rank 0.
void Trainer::join_ranks(const std::optional<evn::Error>& own) {
  exchange({}, own, "make its trainer");
  const std::uint64_t words[] = {fingerprint(settings_, *graphs_)};
  if (ranks_.first_difference(words) >= 0) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "rank %u of %u: the ranks train different models, or with different options", ranks_.rank(),
         ranks_.count());
  }
  const auto broadcast = [&](const std::vector<Parameter>& list, const std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Mapped mapped(tensors[i]);
      ranks_.broadcast({static_cast<float*>(mapped.data()), list[i].bytes() / sizeof(float)});
    }
  };
  broadcast(parameters(), values_);
  broadcast(graphs_->statistics(), statistics_);
  std::size_t numbers = 0;
  for (const Statistic& statistic : graphs_->statistics()) numbers += statistic.bytes() / sizeof(float);
  exchanged_statistics_.reserve(numbers);
}

// Sums numbers over all ranks. Throws in all of them where one has failed: `own` is what this one has failed with.
void Trainer::exchange(std::span<double> numbers, const std::optional<evn::Error>& own, const char* what) {
  exchanged_.assign(numbers.begin(), numbers.end());
  exchanged_.resize(numbers.size() + ranks_.count(), 0);
  double* const failed = exchanged_.data() + numbers.size();
  if (own) failed[ranks_.rank()] = own->status;
  if (own) {  // it is what this rank reports, whatever becomes of the others
    error_of([&] { ranks_.sum(std::span<double>(exchanged_)); });
    throw evn::Error(*own);
  }
  ranks_.sum(std::span<double>(exchanged_));
  std::copy_n(exchanged_.begin(), numbers.size(), numbers.begin());
  for (std::uint32_t r = 0; r < ranks_.count(); ++r) {
    if (failed[r] == 0) continue;
    fail(EVN_ERROR_WRONG_STATE, "rank %u could not %s (%s): no rank has changed anything", r, what,
         evn::status_name(static_cast<evn_status>(failed[r])));
  }
}

// What this rank's mean over its batch counts, so that the mean of all ranks is that over all batches.
float Trainer::open_step(std::int64_t batch, const std::optional<evn::Error>& own) {
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

void Trainer::average_statistics(float weight) {
  const auto& list = graphs_->statistics();
  exchanged_statistics_.clear();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Mapped mapped(new_statistics_[i]);
    const auto* const from = static_cast<const float*>(mapped.data());
    exchanged_statistics_.insert(exchanged_statistics_.end(), from, from + list[i].bytes() / sizeof(float));
  }
  const float share = weight / static_cast<float>(ranks_.count());
  for (float& x : exchanged_statistics_) x *= share;
  ranks_.sum(std::span<float>(exchanged_statistics_));
  const float* from = exchanged_statistics_.data();
  for (std::size_t i = 0; i < list.size(); ++i) {
    new_statistics_[i].write(from, list[i].bytes());
    from += list[i].bytes() / sizeof(float);
  }
}

// The loss becomes the mean of all ranks.
void Trainer::close_step(float weight, const std::optional<evn::Error>& own) {
  double loss[] = {own ? 0 : static_cast<double>(weight) * static_cast<double>(loss_.scalar<float>())};
  exchange(loss, own, "make the step");
  const float mean = static_cast<float>(loss[0] / ranks_.count());
  loss_.write(&mean, sizeof mean);
}

void Trainer::check_parameters() {
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Mapped mapped(values_[i]);
    words.push_back(evn::checksum_of(mapped.data(), parameters()[i].bytes()));
  }
  const std::int64_t i = ranks_.first_difference(words);
  if (i < 0) return;
  failed_ = evn::make_error(EVN_ERROR_WRONG_STATE, "rank %u of %u: parameter \"%.160s\" has other bits in another rank",
                            ranks_.rank(), ranks_.count(), parameters()[static_cast<std::size_t>(i)].name.c_str());
  throw evn::Error(*failed_);
}

// All ranks take the checkpoint, or none does.
void Trainer::restore_with_ranks(const std::string& path) {
  constexpr char kWhat[] = "restore the checkpoint";
  bool told = false;
  const std::optional<evn::Error> own = error_of([&] {
    take_state(path, [&] {
      told = true;
      exchange({}, {}, kWhat);
    });
  });
  if (own && !told) exchange({}, own, kWhat);
  if (own) throw evn::Error(*own);
  failed_.reset();
  check_parameters();
}

void Trainer::step_with_ranks(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info) {
  const bool accumulates = settings_.accumulates();
  const bool overlaps = !accumulates && !norm_sums_;  // sums of the run and of buckets would come in another order in each rank
  Labels kind = Labels::kNone;
  std::int64_t batch = 0;
  std::optional<evn::Error> own = failed_;
  if (!own) {
    own = error_of([&] {
      kind = kind_of(labels);
      batch = check_arguments(inputs, labels);
      prepare_gradients(kind);
    });
  }
  const float weight = open_step(batch, own);
  if (!accumulates) buckets_->begin(weight);
  if (norm_sums_) norm_sums_->begin();
  own = error_of([&] { make_gradients(kind, inputs, labels, batch, overlaps ? Run::kOverlapped : Run::kCancellable); });
  if (norm_sums_) {
    const std::optional<evn::Error> at_end = error_of([&] { norm_sums_->end(own.has_value()); });
    if (!own) own = at_end;
  }
  if (!accumulates) buckets_->finish();
  close_step(weight, own);
  if (!new_statistics_.empty()) average_statistics(weight);
  info->loss = static_cast<double>(loss_.scalar<float>());
  if (accumulates && !is_batch_finite()) {
    info->skipped = 1;
    ++skipped_;
    return;
  }
  bool is_complete = true;
  if (accumulates) {
    own = error_of([&] { is_complete = add_gradients(); });
    if (own) failed_ = own;  // its sums are no longer those of these steps
    exchange({}, own, "add its gradients");
    if (is_complete) {
      buckets_->begin(1);
      buckets_->finish();
    }
  }
  // From here on the ranks cannot tell each other that one has failed; they learn it in the next step.
  failed_ = error_of([&] { end_step(is_complete, info); });
  if (failed_) throw evn::Error(*failed_);
}

}  // namespace evn_train
