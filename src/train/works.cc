#include "train/works.h"

#include <algorithm>

namespace evn_train {

Session Works::session(evn::Model made, const char* name, bool is_own, const std::string& device, std::uint64_t arena_limit) const {
  Model model;
  *model.out() = take_model(runtime_, std::move(made), is_own, cancel_);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.name = name;
  options.cancel = cancel_;
  options.cache_file = "";
  options.precision = std::max<evn_precision>(settings_.given.precision, EVN_PRECISION_FP32);
  options.arena_limit = arena_limit;
  if (!device.empty()) options.device = device.c_str();
  evn_session session = nullptr;
  call(evn_session_create, runtime_, model.get(), static_cast<const evn_session_options*>(&options), &session);
  return Session(session);
}

Work Works::make(evn::Model model, const char* name, const std::string& device, std::uint64_t arena_limit) const {
  return {session(std::move(model), name, false, device, arena_limit), {}, {}};
}

Work Works::make_own(evn::Model model, const char* name) const {
  return {session(std::move(model), name, true, settings_.device, 0), {}, {}};
}

evn_run_options Works::options(std::uint64_t seed, Stop stop) const {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.random_seed = seed;
  options.allow_copies = 1;
  if (stop == Stop::kNever) {
    options.flags = EVN_RUN_OVERWRITE_INPUTS;
    options.timeout_ns = UINT64_MAX;  // instead of limits.run_time
  } else {
    options.cancel = cancel_;
  }
  return options;
}

void Works::run(Work& work, std::uint64_t seed, Stop stop, evn::OutputListener listener) const {
  run_listened(work.session.get(), work.inputs, work.outputs, options(seed, stop), listener);
}

}  // namespace evn_train
