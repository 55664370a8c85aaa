#include "cli/train.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "cli/file.h"
#include "cli/json.h"
#include "cli/load_sources.h"
#include "cli/train_data.h"
#include "cli/train_history.h"

namespace evn::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Trainer = Owner<evn_trainer, evn_trainer_release>;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A line on stderr that is written over; nothing when that is no terminal.
class LiveLine {
 public:
  explicit LiveLine(bool writes) : shown_(writes && isatty(STDERR_FILENO) == 1) {}
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  void clear() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  void say(const TrainEpoch& e, std::uint64_t epochs, std::uint64_t batch, std::uint64_t batches) {
    if (!shown_ || seconds_since(last_) < 0.1) return;
    last_ = Clock::now();
    std::fprintf(stderr, "\r\x1b[Kepoch %llu/%llu, batch %llu/%llu: loss %.4g, learning rate %.3g, %.0f samples/s",
                 static_cast<unsigned long long>(e.number), static_cast<unsigned long long>(epochs),
                 static_cast<unsigned long long>(batch), static_cast<unsigned long long>(batches), e.loss, e.rate,
                 e.rate_of_samples());
  }

 private:
  const bool shown_;
  Clock::time_point last_{};
};

class Training {
 public:
  explicit Training(const Arguments& arguments)
      : is_json_(arguments.has("--json")), plan_(arguments), runtime_(open_runtime(arguments)), live_(plan_.writes()) {
    open_devices();
    TrainModel model = read_train_model(runtime_, plan_.model, plan_.options.output);
    data_.emplace(plan_.data, model, plan_.labels, plan_.options.loss);
    if (!plan_.validation.empty()) held_.emplace(plan_.validation, model, plan_.labels, plan_.options.loss);
    open_loaders();
    Call call(kExitModel);
    call.check(evn_trainer_create(runtime_.get(), plan_.model.c_str(), &plan_.options, trainer_.out(), call));
    check_order(model);
    if (!plan_.resume.empty()) resume();
  }

  int run() {
    const Clock::time_point begin = Clock::now();
    const Interruption interruption;
    for (std::uint64_t epoch = done_ / history_.batches_of_epoch; epoch < plan_.epochs; ++epoch) {
      learn(epoch, interruption);
      const bool is_whole = done_ % history_.batches_of_epoch == 0 && history_.epochs.back().steps > 0;
      if (is_whole && held_) validate();
      live_.clear();
      say(epoch_line(plan_, history_.epochs.back()));
      if (!plan_.checkpoint.empty()) save();
      history_.is_interrupted = interruption.came() && (!is_whole || epoch + 1 < plan_.epochs);
      if (history_.is_interrupted) break;
    }
    history_.seconds = seconds_since(begin);
    if (plan_.writes()) write();
    if (!history_.is_interrupted) return kExitOk;
    fail(kExitFailure, "interrupted after batch %llu%s%s", static_cast<unsigned long long>(done_),
         plan_.checkpoint.empty() ? "; no --checkpoint was asked for" : "; this goes on: --resume ", plan_.checkpoint.c_str());
  }

 private:
  // An OpenCL device that the configuration does not name is opened by being looked for.
  void open_devices() const {
    if (plan_.options.device == nullptr) return;
    const std::string names = plan_.options.device;
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t comma = std::min(names.find(',', at), names.size());
      Device device;
      Call call(kExitDevice);
      call.check(evn_runtime_device_find(runtime_.get(), names.substr(at, comma - at).c_str(), device.out(), call));
      at = comma + 1;
    }
  }

  void open_loaders() {
    evn_loader_options options = EVN_LOADER_OPTIONS_INIT;
    options.batch = plan_.batch;
    if (held_) validation_ = held_->open(runtime_, options);  // all of it on every rank: all of them go by its loss
    options.flags = EVN_LOADER_SHUFFLE;
    options.seed = plan_.options.seed;
    options.rank = plan_.options.rank;
    options.rank_count = plan_.options.rank_count;
    loader_ = data_->open(runtime_, options);
    Call call;
    call.check(evn_loader_batch_count(loader_.get(), &history_.batches_of_epoch, call));
    history_.samples = data_->samples();
    history_.validation_samples = held_ ? held_->samples() : 0;
    if (history_.batches_of_epoch == 0) fail(kExitFailure, "%s has fewer samples than there are ranks", plan_.data.c_str());
    plan_.set_steps(history_.batches_of_epoch);
  }

  // The data's arrays are in the order of the model's inputs, as the trainer wants them.
  void check_order(const TrainModel& model) const {
    std::uint32_t count = 0;
    Call call;
    call.check(evn_trainer_input_count(trainer_.get(), &count, call));
    for (std::uint32_t i = 0; i < model.inputs.size(); ++i) {
      std::uint32_t index = 0;
      call.check(evn_trainer_find_input(trainer_.get(), model.inputs[i].name.c_str(), &index, call));
      if (index != i || count != model.inputs.size()) fail(kExitFailure, "the model's inputs are in another order in training");
    }
  }

  std::string describe(evn_format format) const {
    return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
      return evn_trainer_describe(trainer_.get(), format, buffer, capacity, size, error);
    });
  }

  void resume() {
    evn_error error = EVN_ERROR_INIT;
    if (evn_trainer_restore(trainer_.get(), plan_.resume.c_str(), &error) != EVN_OK)
      fail(kExitFailure, "%s: %s", plan_.resume.c_str(), cli::describe(error).c_str());
    done_ = std::stoull(parse_json(describe(EVN_FORMAT_JSON))["batches"].text);
    if (done_ >= plan_.epochs * history_.batches_of_epoch) {
      fail(kExitFailure, "%s has learned from %llu batches already: --epochs %llu has no more than these", plan_.resume.c_str(),
           static_cast<unsigned long long>(done_), static_cast<unsigned long long>(plan_.epochs));
    }
  }

  void save() const {
    if (!plan_.writes()) return;
    Call call;
    call.check(evn_trainer_save(trainer_.get(), plan_.checkpoint.c_str(), call));
  }

  // Throws what a call with batch `number` of a file has reported.
  static void check_batch(evn_status status, const evn_error& error, const TrainData& data, std::uint64_t number) {
    if (status == EVN_OK) return;
    fail(status == EVN_ERROR_UNSUPPORTED ? kExitModel : kExitFailure, "%s, batch %llu: %s", data.path().c_str(),
         static_cast<unsigned long long>(number), cli::describe(error).c_str());
  }

  // An epoch, or what is left of it.
  void learn(std::uint64_t epoch, const Interruption& interruption) {
    const std::uint64_t batches = history_.batches_of_epoch;
    TrainEpoch& e = history_.epochs.emplace_back();
    e.number = epoch + 1;
    const Clock::time_point begin = Clock::now();
    Call start;
    start.check(evn_loader_start_epoch(loader_.get(), epoch, done_ % batches, start));
    TrainBatch batch(*data_);
    double sum = 0, weight = 0;
    while (batch.next(loader_)) {
      evn_step_info info = EVN_STEP_INFO_INIT;
      evn_error error = EVN_ERROR_INIT;
      const evn_status status =
          evn_trainer_step(trainer_.get(), batch.inputs(), batch.input_count(), batch.labels(), &info, &error);
      // Ctrl-C reaches all ranks, and one of them may end a step earlier: the others end with the parameters of their last step.
      if (status != EVN_OK && plan_.options.rank_count > 1 && interruption.came()) break;
      check_batch(status, error, *data_, done_ % batches);
      const std::uint64_t samples = std::min<std::uint64_t>(plan_.batch, data_->samples() - done_ % batches * plan_.batch);
      ++done_;
      ++e.steps;
      e.samples += samples;
      if (info.learning_rate != 0) e.rate = info.learning_rate;
      if (info.skipped != 0) {
        ++e.skipped;
      } else {
        sum += info.loss * static_cast<double>(samples);  // of all ranks, as the loss is
        weight += static_cast<double>(samples);
        history_.curve.add(done_, info.loss, e.rate);
      }
      e.loss = weight > 0 ? sum / weight : NAN;
      e.seconds = seconds_since(begin);
      live_.say(e, plan_.epochs, (done_ - 1) % batches + 1, batches);
      const bool is_last = done_ % batches == 0;  // that is saved when the epoch is over
      if (is_last) continue;
      if (interruption.came()) break;
      if (plan_.every > 0 && done_ % plan_.every == 0) save();
    }
    e.last_batch = done_;
  }

  void validate() {
    TrainEpoch& e = history_.epochs.back();
    Call start;
    start.check(evn_loader_start_epoch(validation_.get(), 0, 0, start));
    TrainBatch batch(*held_);
    double sum = 0, weight = 0;
    std::uint64_t correct = 0, count = 0, number = 0;
    while (batch.next(validation_)) {
      evn_evaluation evaluation = EVN_EVALUATION_INIT;
      evn_error error = EVN_ERROR_INIT;
      check_batch(evn_trainer_evaluate(trainer_.get(), batch.inputs(), batch.input_count(), batch.labels(), &evaluation, &error),
                  error, *held_, number++);
      sum += evaluation.loss * batch.samples();
      weight += batch.samples();
      correct += evaluation.correct;
      count += evaluation.count;
    }
    e.is_validated = true;
    e.validation_loss = sum / weight;
    if (count > 0) e.accuracy = static_cast<double>(correct) / static_cast<double>(count);
    Call note;
    note.check(evn_trainer_note_metric(trainer_.get(), e.validation_loss, note));
  }

  void say(const std::string& line) const {
    if (!plan_.writes()) return;
    std::FILE* const out = is_json_ ? stderr : stdout;
    std::fprintf(out, "%s\n", line.c_str());
    std::fflush(out);
  }

  void write() const {
    if (!history_.is_interrupted) {
      Call call;
      call.check(evn_trainer_export(trainer_.get(), plan_.output.c_str(), call));
    }
    const std::string json = train_json(plan_, history_, describe(EVN_FORMAT_JSON));
    if (!plan_.report.empty()) write_file(plan_.report, json + "\n", nullptr, 0);
    if (!plan_.picture.empty()) write_file(plan_.picture, train_picture(plan_, history_), nullptr, 0);
    print_text(is_json_ ? json : train_text(plan_, history_));
  }

  const bool is_json_;
  TrainPlan plan_;
  const Runtime runtime_;
  std::optional<TrainData> data_, held_;
  Loader loader_, validation_;
  Trainer trainer_;
  TrainHistory history_;
  LiveLine live_;
  std::uint64_t done_ = 0;  // batches
};

}  // namespace

int run_train(const Arguments& arguments) { return Training(arguments).run(); }

}  // namespace evn::cli
