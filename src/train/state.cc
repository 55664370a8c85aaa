// What a checkpoint has of a trainer, and what a trainer says of itself.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/cxx20.h"
#include "base/json_writer.h"
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
  add("parameter/", parameters(), values_);
  add("statistic/", graphs_->statistics(), statistics_);
  for (std::size_t k = 0; k < optimizer_state_.size(); ++k)
    add("optimizer_state" + std::to_string(k) + "/", parameters(), optimizer_state_[k]);
  if (settings_.accumulates()) add(kSum, parameters(), sums_);
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
                {"accumulated", std::to_string(accumulated_)},
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
  if (!ranks_.is_alone() && accumulated_ > 0)
    fail(EVN_ERROR_WRONG_STATE, "gradients of %u steps are accumulated: with other ranks that cannot be saved", accumulated_);
  write_checkpoint(path, checkpoint());
}

void Trainer::restore(const std::string& path) {
  if (ranks_.is_alone()) take_state(path, [] {});
  else restore_with_ranks(path);
}

// `commit` is called when nothing but itself can fail any more.
void Trainer::take_state(const std::string& path, const std::function<void()>& commit) {
  Checkpoint read = read_checkpoint(path);
  Checkpoint own = checkpoint();  // what a file of this trainer has
  // Files of earlier versions lack these keys.
  for (const char* key : {"optimizer_states", "loss_scale.dynamic"}) read.metadata.emplace(key, own.metadata[key]);
  for (const char* key : {"format", "loss", "optimizer", "optimizer_states", "schedule"}) {
    const auto found = read.metadata.find(key);
    if (found == read.metadata.end() || found->second != own.metadata[key]) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "the checkpoint is of %s \"%.64s\", the trainer's is \"%s\"", key,
           found == read.metadata.end() ? "" : found->second.c_str(), own.metadata[key].c_str());
    }
  }
  const auto number = [&](const char* key) {
    const auto found = read.metadata.find(key);
    if (found == read.metadata.end()) fail(EVN_ERROR_INVALID_ARGUMENT, "the checkpoint has no %s", key);
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
      fail(EVN_ERROR_INVALID_ARGUMENT, "the checkpoint has no tensor \"%.160s\": it is of another model", t.name.c_str());
    if (found->second->dims != t.dims)
      fail(EVN_ERROR_INVALID_ARGUMENT, "tensor \"%.160s\" of the checkpoint has other dims: it is of another model",
           t.name.c_str());
  }
  if (read.tensors.size() != own.tensors.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "the checkpoint has %zu tensors, expected %zu: it is of another model", read.tensors.size(),
         own.tensors.size());
  const auto integer = [&](const char* key) {
    const std::optional<std::uint64_t> read_number = evn::parse_u64(number(key));
    if (!read_number) fail(EVN_ERROR_INVALID_ARGUMENT, "%s of the checkpoint is no number", key);
    return *read_number;
  };
  const auto real = [&](const char* key) { return evn::bit_cast<double>(integer(key)); };
  const LearningRate::State rate = {real("rate.base"), real("rate.factor"), real("rate.best"), integer("rate.has_best"),
                                    integer("rate.bad")};
  const LossScale::State scale = {static_cast<float>(real("loss_scale.value")), static_cast<float>(real("loss_scale.latest")),
                                  integer("loss_scale.good"), integer("loss_scale.dynamic") != 0};
  LossScale::check_state(scale);
  const std::uint64_t counts[] = {integer("calls"), integer("steps"), integer("skipped"), integer("accumulated")};
  commit();
  own.file.reset();
  bounds_.forget();
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
  accumulated_ = takes_sums ? static_cast<std::uint32_t>(counts[3]) : 0;
}

namespace {

const char* precision_name(evn_precision precision) {
  return precision == EVN_PRECISION_BF16 ? "bfloat16" : precision == EVN_PRECISION_FP16 ? "float16" : "float32";
}

// Of which of the two that rounds operands the device has nothing; nullptr: it rounds them.
const char* lacks(const evn_device_info& info, evn_precision precision) {
  const bool is_cpu = info.kind == EVN_DEVICE_CPU;
  if (precision == EVN_PRECISION_BF16 && !(is_cpu && (info.features & EVN_DEVICE_BF16) != 0)) return "products of bfloat16";
  if (precision == EVN_PRECISION_FP16 && !is_cpu && (info.features & EVN_DEVICE_FP16) == 0) return "arithmetic of float16";
  return nullptr;
}

}  // namespace

// What has come of the options: of the graph, and of the devices, where these are named.
std::vector<std::string> Trainer::notes() const {
  std::vector<std::string> notes = graphs_->notes();
  if (!latest_skip_.empty()) notes.push_back(latest_skip_);
  std::vector<std::string> names = settings_.replicas;
  if (names.empty()) names.push_back(settings_.device);
  std::set<std::string> seen;
  for (const std::string& list : names) {
    if (list == "auto") continue;
    for (const std::string& name : evn::split_names(list)) {
      if (!seen.insert(name).second) continue;
      const evn_device_info info = name.empty() ? Device(runtime_).info() : Device(runtime_, name.c_str()).info();
      if (const char* const what = lacks(info, settings_.given.precision))
        notes.push_back(std::string("device ") + info.name + " has no " + what + ": it trains in float32");
    }
  }
  return notes;
}

std::string Trainer::describe_as_json() const {
  const evn_trainer_options& o = settings_.given;
  evn::JsonWriter json;
  json.begin_object();
  json.field("loss", loss_name(o.loss));
  json.field("optimizer", optimizer_name(o.optimizer));
  json.field("schedule", schedule_name(o.schedule));
  json.field("output", std::string_view(graphs_->output()));
  json.field("steps", steps_);
  json.field("skipped", skipped_);
  json.field("batches", calls_);
  json.key("learning_rate");
  json.number(evn::shortest_text(rate_.at(steps_)));
  json.field("precision", precision_name(o.precision));
  json.key("loss_scale");
  json.number(evn::shortest_text(static_cast<double>(scale_.value())));
  if (o.memory_limit != 0) write_memory(json);
  json.key("parameters");
  json.begin_array();
  for (const Parameter& p : parameters()) {
    json.begin_object();
    json.field("name", std::string_view(p.name));
    json.key("dims");
    json.number(dims_text(p.dims));
    json.field("group", static_cast<std::uint64_t>(p.group));
    if (!p.note.empty()) json.field("note", std::string_view(p.note));
    json.end_object();
  }
  json.end_array();
  json.key("frozen");
  json.begin_array();
  for (const Frozen& f : graphs_->frozen()) {
    json.begin_object();
    json.field("name", std::string_view(f.name));
    json.field("reason", std::string_view(f.reason));
    json.end_object();
  }
  json.end_array();
  json.field("rank", std::uint64_t{ranks_.rank()});
  json.field("rank_count", std::uint64_t{ranks_.count()});
  json.field("transport", std::string_view(ranks_.transport()));
  json.key("replicas");
  json.begin_array();
  for (const Replica& r : replicas_) {
    json.begin_object();
    json.field("device", std::string_view(r.device));
    json.key("share");
    json.number(evn::shortest_text(r.share));
    json.end_object();
  }
  json.end_array();
  if (pruning_) {
    json.key("pruning");
    pruning_->describe(&json);
  }
  json.key("notes");
  json.begin_array();
  for (const std::string& note : notes()) json.value(std::string_view(note));
  json.end_array();
  json.end_object();
  return json.take();
}

// What the latest step's plan takes.
RunMemory Trainer::memory() const { return latest_ != nullptr ? memory_of(latest_->session.get()) : RunMemory(); }

void Trainer::write_memory(evn::JsonWriter& json) const {
  const RunMemory m = memory();
  json.key("memory");
  json.begin_object();
  json.field("limit", settings_.given.memory_limit);
  json.field("activation_bytes", m.arena_bytes);
  json.field("unlimited_bytes", m.unlimited_bytes);
  json.field("kept_values", std::uint64_t{m.kept_values});
  json.field("recomputed_values", std::uint64_t{m.recomputed_values});
  json.field("recomputed_steps", std::uint64_t{m.recomputed_steps});
  json.field("steps", std::uint64_t{m.steps});
  json.end_object();
}

std::string Trainer::memory_text() const {
  const RunMemory m = memory();
  std::string text = "activations: at most " + std::to_string(settings_.given.memory_limit) + " bytes";
  if (m.steps != 0)
    text +=
        ", " + std::to_string(m.arena_bytes) + " of " + std::to_string(m.unlimited_bytes) + " that they would be without a limit";
  if (m.recomputed_steps != 0) {
    text += "; " + std::to_string(m.kept_values) + " values are kept, " + std::to_string(m.recomputed_values) +
            " computed again by " + std::to_string(m.recomputed_steps) + " of " + std::to_string(m.steps) + " steps";
  }
  return text + "\n";
}

std::string Trainer::describe_as_text() const {
  const evn_trainer_options& o = settings_.given;
  std::size_t count = 0;
  for (const Parameter& p : parameters()) count += p.bytes() / sizeof(float);
  std::string text =
      std::string("trains by ") + loss_name(o.loss) + " of " + graphs_->output() + ", " + optimizer_name(o.optimizer) + ", " +
      schedule_name(o.schedule) + " rate, " + precision_name(o.precision) +
      (LossScale::is_used(o) ? ", loss scale " + evn::shortest_text(static_cast<double>(scale_.value())) : std::string()) + "\n" +
      std::to_string(steps_) + " steps, " + std::to_string(skipped_) + " skipped, learning rate " +
      evn::shortest_text(rate_.at(steps_)) + "\n" + std::to_string(count) + " numbers in " + std::to_string(parameters().size()) +
      " parameters:\n";
  for (const Parameter& p : parameters())
    text += "  " + p.name + " " + dims_text(p.dims) + (p.note.empty() ? "" : ": " + p.note) + "\n";
  if (o.memory_limit != 0) text += memory_text();
  for (const Frozen& f : graphs_->frozen()) text += "stays: " + f.name + ": " + f.reason + "\n";
  if (!ranks_.is_alone())
    text += "rank " + std::to_string(ranks_.rank()) + " of " + std::to_string(ranks_.count()) + ", summed by " +
            ranks_.transport() + "\n";
  for (const Replica& r : replicas_) text += "replica: " + r.device + ", share " + evn::shortest_text(r.share) + "\n";
  if (pruning_) text += pruning_->describe_as_text();
  for (const std::string& note : notes()) text += "note: " + note + "\n";
  return text;
}

const std::string& Trainer::describe(evn_format format) {
  if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
  text_ = format == EVN_FORMAT_JSON ? describe_as_json() : describe_as_text();
  return text_;
}

}  // namespace evn_train
