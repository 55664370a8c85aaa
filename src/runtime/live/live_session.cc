#include "runtime/live/live_session.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/stages/make_session.h"

namespace evn {

std::shared_ptr<Session> GivenRecipe::make(const std::shared_ptr<Runtime>&, const SettingsPtr& settings,
                                           const std::shared_ptr<Session>& before) const {
  SessionRequest request = request_;
  request.settings = settings;
  request.role.identity = before != nullptr ? before->identity() : nullptr;
  request.batching = batching_ ? *batching_ : settings->config.session.batching;
  std::vector<NodeSelection> selections = check_session_names(*model_, request, warns_of_names(settings, before.get()));
  return make_session(model_, std::move(request), cache_ ? *cache_ : settings->config.cache, std::move(selections));
}

std::string GivenRecipe::name() const {
  if (!request_.name.empty()) return "session " + request_.name;
  return "session of " + (model_->file_name.empty() ? std::string("a model from a buffer") : model_->file_name);
}

std::shared_ptr<LiveSession> LiveSession::create(const std::shared_ptr<Runtime>& runtime, std::unique_ptr<SessionRecipe> recipe) {
  auto live = std::make_shared<LiveSession>(std::move(recipe));
  LiveSessions& all = runtime->live();
  for (;;) {
    const SettingsPtr settings = runtime->settings();
    live->current_ = live->recipe_->make(runtime, settings, nullptr);
    const std::lock_guard<Mutex> lock(all.mutex_);
    if (runtime->settings() != settings) continue;  // it has been reconfigured meanwhile
    all.schedule_.prune(all.all_, [](const auto& l) { return l.expired(); });
    all.all_.push_back(live);
    live->recipe_->note_use_of(settings);
    live->current_->identity()->owner = live;
    return live;
  }
}

std::shared_ptr<Session> LiveSession::current() const {
  const std::lock_guard<Mutex> lock(mutex_);
  return current_;
}

bool LiveSession::has_lost_device(const Session& session) {
  const std::vector<Device*> devices = session.devices();
  return std::any_of(devices.begin(), devices.end(), [](const Device* d) { return d->is_out(); });
}

namespace {

void refuse_other_value(const char* what, std::size_t index, const Value& had, const Value& has) {
  fail(EVN_ERROR_CONFIG, "%s %zu was \"%s\", %s, and would be \"%s\", %s: handles of the session could not go on", what, index,
       had.name.c_str(), TensorDesc{had.dtype, had.shape, had.wraps}.type_string().c_str(), has.name.c_str(),
       TensorDesc{has.dtype, has.shape, has.wraps}.type_string().c_str());
}

// Throws where a host that knows the inputs and outputs of one graph would be wrong about the other's.
void check_same_interface(const LoadedModel& model_before, const LoadedModel& model_after) {
  const Graph &before = model_before.graph(), &after = model_after.graph();
  const auto check = [&](const char* what, std::span<const ValueId> had, std::span<const ValueId> has) {
    if (had.size() != has.size())
      fail(EVN_ERROR_CONFIG, "it has %zu %ss, and would have %zu: handles of the session could not go on", had.size(), what,
           has.size());
    for (std::size_t i = 0; i < had.size(); ++i) {
      const Value& a = before.values[had[i]];
      const Value& b = after.values[has[i]];
      const bool alike = a.name == b.name && a.dtype == b.dtype && a.wraps == b.wraps && a.has_shape == b.has_shape &&
                         (!a.has_shape || a.shape == b.shape);
      if (!alike) refuse_other_value(what, i, a, b);
    }
  };
  check("input", std::span(before.inputs).first(model_before.required_inputs()),
        std::span(after.inputs).first(model_after.required_inputs()));
  check("output", before.outputs, after.outputs);
  const std::vector<InputDefault>&had = model_before.model.defaults, &has = model_after.model.defaults;
  const auto alike = [](const InputDefault& a, const InputDefault& b) { return a.declared.name == b.declared.name; };
  if (!std::equal(had.begin(), had.end(), has.begin(), has.end(), alike))
    fail(EVN_ERROR_CONFIG, "it would have other inputs with a default: handles of the session could not go on");
}

}  // namespace

std::shared_ptr<Session> LiveSession::make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings) const {
  const std::shared_ptr<Session> before = current();
  try {
    std::shared_ptr<Session> session = recipe_->make(runtime, settings, before);
    check_same_interface(*before->compiled().model, *session->compiled().model);
    session->tracing().start_like(before->tracing(), session->shared_graph());
    return session;
  } catch (const Error& e) {
    throw make_error(e.status, "%s: %s", recipe_->name().c_str(), e.message)
        .with_node(e.node)
        .with_device(e.device)
        .with_bytes(e.bytes_requested, e.bytes_available);
  }
}

void LiveSession::replace(std::shared_ptr<Session> session, const char* why) noexcept {
  const std::shared_ptr<Session> now = session;
  recipe_->note_use_of(now->compiled().settings);
  {
    const LockIfAlive lock(mutex_);
    current_.swap(session);
  }
  apply_concurrency(*now);
  LogEvent(now->runtime()->log(), EVN_LOG_INFO, "session.replaced")
      .field("file", now->compiled().model->file_name.c_str())
      .field("reason", why)
      .write("another placement of %s takes over: %s",
             now->compiled().model->file_name.empty() ? "a model" : now->compiled().model->file_name.c_str(), why);
}

std::shared_ptr<Session> LiveSession::without_lost_devices(const Session& failed, const StopCondition& stop) {
  const Cancel cancel{stop};
  const std::unique_lock<Mutex> losing = lock_or_stop(losing_, &cancel);
  const std::shared_ptr<Runtime>& runtime = failed.runtime();
  for (;;) {
    const std::shared_ptr<Session> now = current();
    if (now.get() != &failed && !has_lost_device(*now)) return now;
    const SettingsPtr settings = runtime->settings();
    const std::uint64_t lost = runtime->lost_devices();
    std::shared_ptr<Session> session;
    try {
      session = make(runtime, settings);
    } catch (const Error& e) {  // a warm run may lose one more
      if (e.status != EVN_ERROR_DEVICE_LOST || runtime->lost_devices() == lost) throw;
      continue;
    }
    const std::lock_guard<Mutex> lock(runtime->live().mutex_);
    if (runtime->settings() != settings) continue;
    replace(session, "a device is lost or in quarantine");
    return session;
  }
}

}  // namespace evn
