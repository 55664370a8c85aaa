// Checkpoints of a trainer: tensors and counters that are saved and restored.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/cxx20.h"
#include "base/number_text.h"
#include "base/text.h"
#include "train/trainer.h"

namespace evn_train {
namespace {

// The bits of a number, so that it comes back as it was in every locale.
std::string bits_text(double value) { return std::to_string(evn::bit_cast<std::uint64_t>(value)); }

std::string joined(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts) text += (text.empty() ? "" : " ") + each;
  return text;
}

constexpr char kSum[] = "sum/";  // prefix of tensors of accumulated gradients
constexpr char kFormat[] = "evener trainer 1";

}  // namespace

// Calls f(name, its dims, tensor) for what a checkpoint has.
template <typename F>
void Trainer::each_saved(F&& f) {
  const auto add = [&](const std::string& prefix, const std::vector<Parameter>& list, std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < list.size(); ++i) f(prefix + list[i].name, list[i], tensors[i]);
  };
  add("parameter/", parameters(), tensors_->values);
  add("statistic/", graphs_->statistics(), tensors_->statistics);
  for (std::size_t k = 0; k < tensors_->optimizer_state.size(); ++k)
    add("optimizer_state" + std::to_string(k) + "/", parameters(), tensors_->optimizer_state[k]);
  if (settings_.accumulates()) add(kSum, parameters(), gradients_->sums());
}

// The tensors are mapped for as long as it lives.
Checkpoint Trainer::checkpoint() {
  Checkpoint c;
  const auto maps = std::make_shared<std::vector<std::unique_ptr<Mapped>>>();
  each_saved([&](const std::string& name, const Parameter& p, const Tensor& tensor) {
    maps->push_back(std::make_unique<Mapped>(tensor, EVN_MAP_READ));
    c.tensors.push_back({name, p.dims, maps->back()->data(), p.bytes()});
  });
  c.file = maps;
  if (pruning_) pruning_->add_to(&c);
  const LearningRate::State rate = rate_.state();
  const LossScale::State scale = scale_.state();
  c.metadata = {{"format", kFormat},
                {"loss", loss_name(settings_.given.loss)},
                {"optimizer", optimizer_name(settings_.given.optimizer)},
                {"optimizer_states", joined(graphs_->optimizer_states())},
                {"schedule", schedule_name(settings_.given.schedule)},
                {"calls", std::to_string(calls_)},
                {"steps", std::to_string(steps_)},
                {"skipped", std::to_string(skipped_)},
                {"accumulated", std::to_string(gradients_->count())},
                {"rate.base", bits_text(rate.base)},
                {"rate.factor", bits_text(rate.factor)},
                {"rate.best", bits_text(rate.best)},
                {"rate.has_best", std::to_string(rate.has_best)},
                {"rate.bad", std::to_string(rate.bad)},
                {"loss_scale.value", bits_text(static_cast<double>(scale.value))},
                {"loss_scale.latest", bits_text(static_cast<double>(scale.latest))},
                {"loss_scale.good", std::to_string(scale.good)},
                {"loss_scale.dynamic", std::to_string(scale.is_dynamic ? 1 : 0)}};
  return c;
}

void Trainer::save(const std::string& path) {
  if (const std::uint32_t count = gradients_->count(); !ranks_.is_alone() && count > 0)
    fail(EVN_ERROR_WRONG_STATE, "gradients of %u steps are accumulated: with other ranks that cannot be saved", count);
  write_checkpoint(path, checkpoint());
}

void Trainer::restore(const std::string& path) {
  if (ranks_.is_alone()) take_state(path, [] {});
  else restore_with_ranks(path);
}

// `commit` is called when nothing but itself can fail any more.
void Trainer::take_state(const std::string& path, const std::function<void()>& commit) {
  const char* const file = path.c_str();
  Checkpoint read = read_checkpoint(path);
  Checkpoint own = checkpoint();  // what a file of this trainer has
  // Files of earlier versions lack these keys.
  for (const char* key : {"optimizer_states", "loss_scale.dynamic"}) read.metadata.emplace(key, own.metadata[key]);
  for (const char* key : {"format", "loss", "optimizer", "optimizer_states", "schedule"}) {
    const auto found = read.metadata.find(key);
    if (found == read.metadata.end() || found->second != own.metadata[key]) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' is a checkpoint of %s \"%.64s\", the trainer's is \"%s\"", file, key,
           found == read.metadata.end() ? "" : found->second.c_str(), own.metadata[key].c_str());
    }
  }
  const auto number = [&](const char* key) {
    const auto found = read.metadata.find(key);
    if (found == read.metadata.end()) fail(EVN_ERROR_INVALID_ARGUMENT, "checkpoint '%.256s' has no %s", file, key);
    return found->second;
  };
  const auto is_sum = [](const SavedTensor& t) { return t.name.starts_with(kSum); };
  const bool both_accumulate = settings_.accumulates() && std::any_of(read.tensors.begin(), read.tensors.end(), is_sum);
  if (!both_accumulate) {
    for (Checkpoint* c : {&read, &own}) std::erase_if(c->tensors, is_sum);
  }
  std::map<std::string, const SavedTensor*> tensors;
  for (const SavedTensor& t : read.tensors) tensors.emplace(t.name, &t);
  for (const SavedTensor& t : own.tensors) {
    const auto found = tensors.find(t.name);
    if (found == tensors.end())
      fail(EVN_ERROR_INVALID_ARGUMENT, "checkpoint '%.256s' has no tensor \"%.160s\": it is of another model", file,
           t.name.c_str());
    if (found->second->dims != t.dims)
      fail(EVN_ERROR_INVALID_ARGUMENT, "tensor \"%.160s\" of checkpoint '%.256s' has other dims: it is of another model",
           t.name.c_str(), file);
  }
  if (read.tensors.size() != own.tensors.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "checkpoint '%.256s' has %zu tensors, expected %zu: it is of another model", file,
         read.tensors.size(), own.tensors.size());
  const auto integer = [&](const char* key) {
    const std::optional<std::uint64_t> read_number = evn::parse_u64(number(key));
    if (!read_number) fail(EVN_ERROR_INVALID_ARGUMENT, "%s of checkpoint '%.256s' is no number", key, file);
    return *read_number;
  };
  const auto real = [&](const char* key) { return evn::bit_cast<double>(integer(key)); };
  const LearningRate::State rate = {real("rate.base"), real("rate.factor"), real("rate.best"), integer("rate.has_best"),
                                    integer("rate.bad")};
  const LossScale::State scale = {static_cast<float>(real("loss_scale.value")), static_cast<float>(real("loss_scale.latest")),
                                  integer("loss_scale.good"), integer("loss_scale.dynamic") != 0};
  if (!LossScale::takes(scale) || !LearningRate::takes(rate)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "checkpoint '%.256s' has loss scale %s and learning rate %s, times %s with metric %s", file,
         evn::shortest_text(static_cast<double>(scale.value)).c_str(), evn::shortest_text(rate.base).c_str(),
         evn::shortest_text(rate.factor).c_str(), evn::shortest_text(rate.best).c_str());
  }
  const std::uint64_t counts[] = {integer("calls"), integer("steps"), integer("skipped"), integer("accumulated")};
  commit();
  own.file.reset();
  updater_->forget_bounds();
  scale_.set_state(scale);
  // Sums are gradients of the loss times a scale.
  const bool takes_sums = both_accumulate && counts[3] < settings_.accumulate && scale.latest == scale_.latest();
  each_saved([&](const std::string& name, const Parameter& p, Tensor& tensor) {
    if (takes_sums || !name.starts_with(kSum)) tensor.write(tensors.at(name)->data, p.bytes());
  });
  if (pruning_) pruning_->take_from(tensors);
  rate_.set_state(rate);
  calls_ = counts[0];
  steps_ = counts[1];
  skipped_ = counts[2];
  gradients_->set_count(takes_sums ? static_cast<std::uint32_t>(counts[3]) : 0);
}

// Restores a checkpoint in all ranks, or in none.
void Trainer::restore_with_ranks(const std::string& path) {
  constexpr char kWhat[] = "restore the checkpoint";
  bool told = false;
  const std::optional<evn::Error> own = error_of([&] {
    take_state(path, [&] {
      told = true;
      ranks_.exchange({}, {}, kWhat);
    });
  });
  if (own && !told) ranks_.exchange({}, own, kWhat);
  if (own) throw evn::Error(*own);
  ranks_.failed.reset();
  ranks_.check_parameters(*graphs_, tensors_->values);
}

}  // namespace evn_train
