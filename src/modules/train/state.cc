// What a checkpoint has of a trainer, and what a trainer says of itself.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "modules/train/trainer.h"

namespace evn_train {
namespace {

// All digits of it, so that it comes back as it was.
std::string number_text(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

constexpr char kFormat[] = "evener trainer 1";

}  // namespace

// The tensors' data are mapped while the file is written: they are on the host, where a map is free.
Checkpoint Trainer::checkpoint() {
  Checkpoint c;
  const auto add = [&](const std::string& prefix, const std::vector<Parameter>& list, const std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Mapped mapped(tensors[i]);
      c.tensors.push_back({prefix + list[i].name, list[i].dims, mapped.data(), list[i].bytes()});
    }
  };
  add("parameter/", parameters(), values_);
  add("statistic/", graphs_->statistics(), statistics_);
  for (std::size_t k = 0; k < kept_.size(); ++k) add("kept" + std::to_string(k) + "/", parameters(), kept_[k]);
  if (settings_.accumulate > 1) add("sum/", parameters(), sums_);
  const Rate::State rate = rate_.state();
  c.metadata = {{"format", kFormat},
                {"loss", loss_name(settings_.given.loss)},
                {"optimizer", optimizer_name(settings_.given.optimizer)},
                {"schedule", schedule_name(settings_.given.schedule)},
                {"calls", std::to_string(calls_)},
                {"steps", std::to_string(steps_)},
                {"skipped", std::to_string(skipped_)},
                {"gathered", std::to_string(gathered_)},
                {"rate.base", number_text(rate.base)},
                {"rate.factor", number_text(rate.factor)},
                {"rate.best", number_text(rate.best)},
                {"rate.has_best", std::to_string(rate.has_best)},
                {"rate.bad", std::to_string(rate.bad)}};
  return c;
}

void Trainer::save(const std::string& path) { write_checkpoint(path, checkpoint()); }

void Trainer::restore(const std::string& path) {
  const Checkpoint read = read_checkpoint(path);
  Checkpoint own = checkpoint();  // what a file of this trainer has
  for (const char* key : {"format", "loss", "optimizer", "schedule"}) {
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
  const auto integer = [&](const char* key) { return std::strtoull(number(key).c_str(), nullptr, 10); };
  const auto real = [&](const char* key) { return std::strtod(number(key).c_str(), nullptr); };
  const Rate::State rate = {real("rate.base"), real("rate.factor"), real("rate.best"), integer("rate.has_best"),
                            integer("rate.bad")};
  const std::uint64_t counts[] = {integer("calls"), integer("steps"), integer("skipped"), integer("gathered")};
  // Nothing can fail from here on.
  for (const SavedTensor& t : own.tensors) std::memcpy(const_cast<void*>(t.data), tensors.at(t.name)->data, t.size);
  rate_.set_state(rate);
  calls_ = counts[0];
  steps_ = counts[1];
  skipped_ = counts[2];
  gathered_ = static_cast<std::uint32_t>(counts[3]);
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) >= 32) out.push_back(c);
  }
  return out + "\"";
}

std::string dims_text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

// A list of JSON.
template <typename List, typename F>
std::string list_text(const List& list, F&& text_of) {
  std::string text = "[";
  for (const auto& item : list) text += (text.size() > 1 ? "," : "") + text_of(item);
  return text + "]";
}

std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

const std::string& Trainer::describe(evn_format format) {
  if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
  const evn_trainer_options& o = settings_.given;
  const std::string rate = short_number(rate_.at(steps_));
  const char* const precision = o.precision == EVN_PRECISION_BF16 ? "bfloat16" : "float32";
  if (format == EVN_FORMAT_JSON) {
    text_ = "{\"loss\":" + quoted(loss_name(o.loss)) + ",\"optimizer\":" + quoted(optimizer_name(o.optimizer)) +
            ",\"schedule\":" + quoted(schedule_name(o.schedule)) + ",\"output\":" + quoted(graphs_->output()) +
            ",\"steps\":" + std::to_string(steps_) + ",\"skipped\":" + std::to_string(skipped_) + ",\"learning_rate\":" + rate +
            ",\"precision\":" + quoted(precision) + ",\"parameters\":" +
            list_text(parameters(),
                      [](const Parameter& p) {
                        return "{\"name\":" + quoted(p.name) + ",\"dims\":" + dims_text(p.dims) +
                               ",\"group\":" + std::to_string(p.group) + "}";
                      }) +
            ",\"frozen\":" +
            list_text(graphs_->frozen(),
                      [](const Frozen& f) { return "{\"name\":" + quoted(f.name) + ",\"reason\":" + quoted(f.reason) + "}"; }) +
            ",\"notes\":" + list_text(graphs_->notes(), quoted) + "}";
    return text_;
  }
  std::size_t count = 0;
  for (const Parameter& p : parameters()) count += p.bytes() / sizeof(float);
  text_ = std::string("trains by ") + loss_name(o.loss) + " of " + graphs_->output() + ", " + optimizer_name(o.optimizer) + ", " +
          schedule_name(o.schedule) + " rate, " + precision + "\n" + std::to_string(steps_) + " steps, " +
          std::to_string(skipped_) + " skipped, learning rate " + rate + "\n" + std::to_string(count) + " numbers in " +
          std::to_string(parameters().size()) + " parameters:\n";
  for (const Parameter& p : parameters()) text_ += "  " + p.name + " " + dims_text(p.dims) + "\n";
  for (const Frozen& f : graphs_->frozen()) text_ += "stays: " + f.name + ": " + f.reason + "\n";
  for (const std::string& note : graphs_->notes()) text_ += "note: " + note + "\n";
  return text_;
}

}  // namespace evn_train
