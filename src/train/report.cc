// evn_trainer_describe: a trainer's options, parameters and state as text and as JSON.
#include <set>

#include "base/json_writer.h"
#include "base/number_text.h"
#include "base/text.h"
#include "train/trainer.h"

namespace evn_train {

namespace {

const char* precision_name(evn_precision precision) {
  return precision == EVN_PRECISION_BF16 ? "bfloat16" : precision == EVN_PRECISION_FP16 ? "float16" : "float32";
}

// Arithmetic of a lower precision that the device lacks; nullptr: it has that.
const char* lacks(const evn_device_info& info, evn_precision precision) {
  const bool is_cpu = info.kind == EVN_DEVICE_CPU;
  if (precision == EVN_PRECISION_BF16 && !(is_cpu && (info.features & EVN_DEVICE_BF16) != 0)) return "products of bfloat16";
  if (precision == EVN_PRECISION_FP16 && !is_cpu && (info.features & EVN_DEVICE_FP16) == 0) return "arithmetic of float16";
  return nullptr;
}

void write_memory(const RunMemory& m, std::uint64_t limit, evn::JsonWriter* json) {
  json->key("memory");
  json->begin_object();
  json->field("limit", limit);
  json->field("activation_bytes", m.arena_bytes);
  json->field("unlimited_bytes", m.unlimited_bytes);
  json->field("kept_values", std::uint64_t{m.kept_values});
  json->field("recomputed_values", std::uint64_t{m.recomputed_values});
  json->field("recomputed_steps", std::uint64_t{m.recomputed_steps});
  json->field("steps", std::uint64_t{m.steps});
  json->end_object();
}

std::string memory_text(const RunMemory& m, std::uint64_t limit) {
  std::string text = "activations: at most " + std::to_string(limit) + " bytes";
  if (m.steps != 0)
    text +=
        ", " + std::to_string(m.arena_bytes) + " of " + std::to_string(m.unlimited_bytes) + " that they would be without a limit";
  if (m.recomputed_steps != 0) {
    text += "; " + std::to_string(m.kept_values) + " values are kept, " + std::to_string(m.recomputed_values) +
            " computed again by " + std::to_string(m.recomputed_steps) + " of " + std::to_string(m.steps) + " steps";
  }
  return text + "\n";
}

}  // namespace

// Remarks on the graph, the latest skipped step and the devices.
std::vector<std::string> Trainer::notes() const {
  std::vector<std::string> notes = graphs_->notes();
  if (!updater_->latest_skip().empty()) notes.push_back(updater_->latest_skip());
  std::vector<std::string> names = settings_.replicas;
  if (names.empty()) names.push_back(settings_.device);
  std::set<std::string> seen;
  for (const std::string& list : names) {
    if (list == "auto") continue;
    for (const std::string& name : evn::split_names(list)) {
      if (!seen.insert(name).second) continue;
      const evn_device_info info = name.empty() ? Device(works_.runtime()).info() : Device(works_.runtime(), name.c_str()).info();
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
  if (o.memory_limit != 0) write_memory(memory(), o.memory_limit, &json);
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
  json.field("rank", std::uint64_t{ranks_.ranks().rank()});
  json.field("rank_count", std::uint64_t{ranks_.ranks().count()});
  json.field("transport", std::string_view(ranks_.ranks().transport()));
  json.key("replicas");
  json.begin_array();
  if (replicas_) replicas_->describe(&json);
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

// Memory of the latest step's plan.
RunMemory Trainer::memory() const {
  const Work* const latest = replicas_ ? replicas_->latest() : latest_;
  return latest != nullptr ? memory_of(latest->session.get()) : RunMemory();
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
  if (o.memory_limit != 0) text += memory_text(memory(), o.memory_limit);
  for (const Frozen& f : graphs_->frozen()) text += "stays: " + f.name + ": " + f.reason + "\n";
  if (!ranks_.is_alone())
    text += "rank " + std::to_string(ranks_.ranks().rank()) + " of " + std::to_string(ranks_.ranks().count()) + ", summed by " +
            ranks_.ranks().transport() + "\n";
  if (replicas_) text += replicas_->describe_as_text();
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
