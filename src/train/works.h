// The models that a trainer makes, as sessions, and their runs.
#pragma once

#include <string>
#include <vector>

#include "train/handles.h"
#include "train/host.h"
#include "train/settings.h"

namespace evn_train {

// A session whose arguments change little from run to run.
struct Work {
  Session session;
  std::vector<evn_tensor> inputs, outputs;
};

class Works {
 public:
  // The settings outlive this.
  Works(evn_runtime runtime, const Settings& settings, evn_cancel cancel)
      : runtime_(runtime), settings_(settings), cancel_(cancel) {}

  evn_runtime runtime() const { return runtime_; }
  evn_cancel cancel() const { return cancel_; }

  // A session on the device of the settings.
  Work make(evn::Model model, const char* name) const { return make(std::move(model), name, settings_.device, 0); }
  // A session of nodes of the library's own domain.
  Work make_own(evn::Model model, const char* name) const;
  // `arena_limit`: of each run's intermediate values; 0: none.
  Work make(evn::Model model, const char* name, const std::string& device, std::uint64_t arena_limit) const;

  // A run that moves the parameters is never stopped half-way.
  enum class Stop { kByToken, kNever };
  evn_run_options options(std::uint64_t seed, Stop stop) const;
  // `listener`: of outputs that are whole before the run has ended.
  void run(Work& work, std::uint64_t seed, Stop stop, evn::OutputListener listener = {}) const;

 private:
  const evn_runtime runtime_;
  const Settings& settings_;
  const evn_cancel cancel_;

  Session session(evn::Model made, const char* name, bool is_own, const std::string& device, std::uint64_t arena_limit) const;
};

}  // namespace evn_train
