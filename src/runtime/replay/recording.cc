#include "runtime/replay/recording.h"

#include <atomic>
#include <cstdio>

#include "base/guarded.h"
#include "base/os/os.h"
#include "base/text.h"
#include "runtime/replay/npz_file.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::size_t kMostNameBytes = 64;

// Makes a file name of a session's name: each byte that is no letter, digit, '.', '-' or '_' becomes '_'.
std::string file_name_of(const std::string& name) {
  std::string text = name.substr(0, utf8_prefix(name, kMostNameBytes));
  for (char& c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!is_plain) c = '_';
  }
  return text;
}

class Recording final : public RunStage {
 public:
  Recording(const RecordingConfig& config, const std::string& name)
      : folder_(config.folder.ends_with('/') ? config.folder : config.folder + "/"),
        name_(file_name_of(name)),
        most_(config.runs) {}

  void run(Session& session, StagedRun& run, const RunRest& rest) override {
    if (!has_failed_.load(std::memory_order_relaxed)) record(session, run);
    rest(run);
  }

 private:
  void record(Session& session, const StagedRun& run) {
    if (run.request.state != nullptr || run.inputs.size() != session.graph().inputs.size()) return;
    for (const RunValue& v : run.inputs) {
      if (v.tensor == nullptr) return;
    }
    const std::optional<Error> e = error_of([&] { write(session, run); });
    if (!e || e->status == EVN_ERROR_BUSY || e->status == EVN_ERROR_CANCELLED || e->status == EVN_ERROR_TIMEOUT)
      return;  // the run's own
    if (has_failed_.exchange(true)) return;
    LogEvent(session.runtime()->log(), EVN_LOG_WARNING, "recording.failed")
        .field("file", session.compiled().model->file_name.c_str())
        .write("no more inputs of runs are recorded in %s: %s", folder_.c_str(), e->message);
  }

  void write(Session& session, const StagedRun& run) {
    const Graph& graph = session.graph();
    std::vector<TensorPtr> inputs;
    std::vector<Tensor::Use> uses;
    NpzFile file;
    for (std::size_t i = 0; i < run.inputs.size(); ++i) {
      TensorPtr input = run.inputs[i].tensor;
      uses.emplace_back(*input, "an input");
      if (!input->on_host()) {
        auto copy =
            std::make_shared<Tensor>(session.runtime(), &session.runtime()->cpu(), input->desc(), false, Tensor::Fill::kNone);
        Cancel cancel;
        cancel.join(run.request.stop);
        copy_tensor_or_stop(input, copy, cancel);
        input = std::move(copy);
      }
      file.add(graph.values[graph.inputs[i]].name, {input->desc(), input->size_bytes() > 0 ? input->buffer().address() : nullptr});
      inputs.push_back(std::move(input));
    }
    os::make_folders(folder_);
    SessionIdentity::Recorded& recorded = session.identity()->recorded;
    const std::uint64_t recorder = recorder_of(recorded);
    const std::uint64_t number = recorded.runs.fetch_add(1, std::memory_order_relaxed);
    file.write(path_of(recorder, number));
    if (number >= most_) os::remove_file(path_of(recorder, number - most_));
  }

  // Returns the number of the session among those of the process that have recorded a run: several may have one name.
  static std::uint64_t recorder_of(SessionIdentity::Recorded& recorded) {
    static constinit std::atomic<std::uint64_t> sessions{0};
    std::uint64_t number = recorded.session.load(std::memory_order_relaxed);
    if (number != 0) return number;
    const std::uint64_t next = sessions.fetch_add(1, std::memory_order_relaxed) + 1;
    return recorded.session.compare_exchange_strong(number, next, std::memory_order_relaxed) ? next : number;
  }

  std::string path_of(std::uint64_t recorder, std::uint64_t number) const {
    char end[80];
    std::snprintf(end, sizeof end, "-%ld-%llu-%08llu.npz", os::process_id(), static_cast<unsigned long long>(recorder),
                  static_cast<unsigned long long>(number + 1));
    return folder_ + name_ + end;
  }

  const std::string folder_, name_;
  const std::uint64_t most_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace

std::unique_ptr<RunStage> make_recording_stage(const RecordingConfig& config, const std::string& name) {
  return std::make_unique<Recording>(config, name);
}

}  // namespace evn
