#include "runtime/live/deployment.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/os/beneath.h"
#include "base/text.h"
#include "runtime/stages/make_session.h"

namespace evn {
namespace {

const ModelConfig* find_model(const Config& config, const std::string& name) {
  for (const ModelConfig& m : config.models) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

void require_model(const Config& config, const char* name) {
  if (find_model(config, name) != nullptr) return;
  std::string names;
  for (const ModelConfig& m : config.models) {
    if (names.size() < 300) names += (names.empty() ? "" : ", ") + m.name;
  }
  const std::string shown = shorten(name, 80);
  if (names.empty()) fail(EVN_ERROR_INVALID_ARGUMENT, "there is no model \"%s\": the configuration names none", shown.c_str());
  fail(EVN_ERROR_INVALID_ARGUMENT, "there is no model \"%s\" in the configuration; there are: %s", shown.c_str(), names.c_str());
}

// The error with the place in the configuration that led to it. What is no argument of the host's is the configuration's.
Error blame(const Config& config, const ModelConfig& model, int line, const char* part, const Error& e) {
  const evn_status status = e.status == EVN_ERROR_INVALID_ARGUMENT ? EVN_ERROR_CONFIG : e.status;
  return make_error(status, "%s:%d: model \"%s\"%s: %s", shorten(config.source, 120).c_str(), line, model.name.c_str(), part,
                    e.message)
      .with_node(e.node)
      .with_device(e.device)
      .with_bytes(e.bytes_requested, e.bytes_available);
}

// Those that are there. Where none is, the nodes are the configuration's default's.
std::string devices_of(const Runtime& runtime, const Settings& settings, const ModelConfig& model) {
  std::string present;
  for (const std::string& name : model.devices) {
    const DeviceConfig* const configured = settings.config.find_device(name);
    std::string why;
    if (configured == nullptr || !configured->optional || runtime.known_device(name, settings, &why) != nullptr) {
      present += (present.empty() ? "" : ",") + name;
      continue;
    }
    LogEvent(runtime.log(), EVN_LOG_WARNING, "device.absent")
        .device(name.c_str())
        .field("model", model.name.c_str())
        .field("reason", why.c_str())
        .write("model \"%s\" runs without device %s, which is not there: %s", model.name.c_str(), name.c_str(), why.c_str());
  }
  return present;
}

CacheConfig cache_of(const Config& config, const ModelConfig& model) {
  if (!model.cache) return config.cache;
  CacheConfig cache = *model.cache;
  if (cache.file.empty()) return cache;
  os::refuse_links_beneath(config.folder, cache.file);
  cache.file.insert(0, config.folder);
  return cache;
}

void refuse_unknown_inputs(const Graph& graph, const WarmRun& warm) {
  for (const WarmRun::Input& given : warm.inputs) {
    std::string names;
    bool found = false;
    for (const ValueId id : graph.inputs) {
      const std::string& name = graph.values[id].name;
      found = found || name == given.name;
      if (names.size() < 256) names += (names.empty() ? "" : ", ") + name;
    }
    if (found) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is no input \"%s\"; there are: %s", shorten(given.name, 80).c_str(), names.c_str());
  }
}

// Zeros of the dims that are given, or else declared.
RunValue zeros_for(const Session& session, const Value& value, const WarmRun& warm) {
  const std::shared_ptr<Runtime>& runtime = session.runtime();
  if (value.wraps) fail(EVN_ERROR_UNSUPPORTED, "input \"%s\" is no tensor, so that no zeros can be given", value.name.c_str());
  const auto given =
      std::find_if(warm.inputs.begin(), warm.inputs.end(), [&](const WarmRun::Input& input) { return input.name == value.name; });
  std::vector<std::int64_t> dims;
  if (given != warm.inputs.end()) {
    dims = given->dims;
  } else if (value.has_shape && value.shape.is_known()) {
    for (int i = 0; i < value.shape.rank(); ++i) dims.push_back(value.shape[i]);
  } else {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the dims of input \"%s\" are not given, and the model leaves them open", value.name.c_str());
  }
  if (dims.size() > EVN_MAX_RANK) fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" has %zu dims", value.name.c_str(), dims.size());
  const TensorDesc desc = checked_desc(session.compiled().limits(), static_cast<evn_dtype>(value.dtype), dims.data(),
                                       static_cast<std::uint32_t>(dims.size()));
  return {std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false), nullptr};
}

void run_with_zeros(Session& session, const WarmRun& warm) {
  const Graph& graph = session.graph();
  refuse_unknown_inputs(graph, warm);
  std::vector<RunValue> inputs;
  for (const ValueId id : std::span(graph.inputs).first(session.compiled().model->required_inputs()))
    inputs.push_back(zeros_for(session, graph.values[id], warm));
  inputs.resize(graph.inputs.size());
  const std::vector<InputDefault>& defaults = session.compiled().model->model.defaults;
  for (std::size_t d = 0; d < defaults.size(); ++d) {
    const auto is_given = [&](const WarmRun::Input& input) { return input.name == defaults[d].declared.name; };
    if (defaults[d].input < 0) continue;
    RunValue& input = inputs[static_cast<std::size_t>(defaults[d].input)];
    const bool given = std::any_of(warm.inputs.begin(), warm.inputs.end(), is_given);
    input = given ? zeros_for(session, defaults[d].declared, warm) : RunValue{session.open_inputs().default_value(d), nullptr};
  }
  std::vector<RunValue> outputs(graph.outputs.size());
  RunRequest request;
  request.is_warm = true;
  session.run(inputs, outputs, request);
}

// Makes sessions of a model that the configuration names.
class DeployedRecipe final : public SessionRecipe {
 public:
  explicit DeployedRecipe(std::string name) : name_(std::move(name)) {}

  // By what the settings say of the model, or where they say nothing of it any more, what those said by which the session was made
  // that is in use.
  std::shared_ptr<Session> make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings,
                                const std::shared_ptr<Session>& before) const override {
    SettingsPtr said = settings, used;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      used = used_;
    }
    if (find_model(settings->config, name_) == nullptr && used != nullptr) said = used;
    require_model(said->config, name_.c_str());
    const ModelConfig& model = *find_model(said->config, name_);
    int line = model.line;
    char part[32] = "";
    try {
      const std::shared_ptr<Session> session = make_session(runtime, settings, *said, model, before, used.get());
      for (std::size_t i = 0; i < model.warm.size(); ++i) {
        line = model.warm[i].line;
        std::snprintf(part, sizeof part, ", warm run %zu", i);
        run_with_zeros(*session, model.warm[i]);
      }
      return session;
    } catch (const Error& e) {
      throw blame(said->config, model, line, part, e);
    }
  }

  void note_use_of(const SettingsPtr& settings) noexcept override {
    if (find_model(settings->config, name_) == nullptr) return;
    const LockIfAlive lock(mutex_);
    used_ = settings;
  }

  std::string name() const override { return "model \"" + name_ + "\""; }

 private:
  // The model of the session in whose place this one comes, where it is under the path that `used` says.
  static ModelPtr loaded_before(const std::shared_ptr<Session>& before, const Settings* used, const Settings& said,
                                const ModelConfig& model) {
    const ModelConfig* const was = before != nullptr && used != nullptr ? find_model(used->config, model.name) : nullptr;
    const bool same = was != nullptr && was->path == model.path && used->config.folder == said.config.folder;
    if (!same) return nullptr;
    const ModelPtr& now = before->compiled().model;
    return now->whole != nullptr ? now->whole : now;
  }

  static std::shared_ptr<Session> make_session(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings,
                                               const Settings& said, const ModelConfig& model,
                                               const std::shared_ptr<Session>& before, const Settings* used) {
    const Config& config = said.config;
    ModelPtr loaded = loaded_before(before, used, said, model);
    if (loaded == nullptr) loaded = load_model_beneath(runtime, config.folder, model.path);
    loaded = with_open_inputs(loaded, model.overridable);
    SessionRequest request(devices_of(*runtime, *settings, model));
    request.settings = settings;
    request.role.identity = before != nullptr ? before->identity() : nullptr;
    request.precision = model.session.precision;
    request.products = model.session.products;
    request.keep_fp32 = model.session.keep_fp32;
    request.numerics = model.session.numerics;
    request.disabled_passes = model.disabled_passes;
    request.concurrency = model.session.concurrency;
    request.batching = model.session.batching.max_batch != 0 ? model.session.batching : settings->config.session.batching;
    request.idle_arena_bytes = model.session.idle_arena_bytes;
    request.memory = model.session.memory;
    request.name = model.name;
    if (!model.warm.empty()) request.assumed_inputs = model.warm[0].inputs;
    std::vector<NodeSelection> selections = check_session_names(*loaded, request, warns_of_names(settings, before.get()));
    return evn::make_session(loaded, std::move(request), cache_of(config, model), std::move(selections));
  }

  const std::string name_;
  mutable Mutex mutex_;  // guards used_
  SettingsPtr used_;     // that said something of the model, and by which the session in use was made; null: none yet
};

}  // namespace

// One load of a slot, whose end it tells of, however it ends.
class DeployedSessions::Loading {
 public:
  // With the lock.
  Loading(DeployedSessions& all, Slot& slot) : all_(all), slot_(slot) {
    slot.loading = true;
    slot.loading_in = os::fork_generation();
    slot.loader = std::this_thread::get_id();
  }
  ~Loading() {
    const LockIfAlive lock(all_.mutex_);
    slot_.loading = false;
    if (session != nullptr) slot_.session = std::move(session);
    all_.changed_.notify_all();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  std::shared_ptr<LiveSession> session;

 private:
  DeployedSessions& all_;
  Slot& slot_;
};

// Notes in what the calling thread loads what it waits for.
void DeployedSessions::set_waiting(const Slot* slot) {
  for (const std::unique_ptr<Slot>& own : slots_) {
    if (own->loading && own->loader == std::this_thread::get_id()) own->waits_for = slot;
  }
}

// Waits until the slot is not loading, or something else has changed.
void DeployedSessions::wait_for(std::unique_lock<Mutex>& lock, const Slot& slot, const char* name) {
  if (slot.loading_in != os::fork_generation()) {
    fail(EVN_ERROR_FORKED, "model \"%s\" was being loaded when the process was forked", name);
  }
  for (const Slot* s = &slot; s != nullptr && s->loading; s = s->waits_for) {
    if (s->loader != std::this_thread::get_id()) continue;
    fail(EVN_ERROR_WRONG_STATE, "model \"%s\" is being loaded by the thread that asks for it, which would wait for itself", name);
  }
  set_waiting(&slot);
  changed_.wait(lock);
  set_waiting(nullptr);
}

DeployedSessions::Slot& DeployedSessions::slot_of(const char* name) {
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->name == name) return *slot;
  }
  auto made = std::make_unique<Slot>();
  made->name = name;
  slots_.push_back(std::move(made));
  return *slots_.back();
}

std::shared_ptr<LiveSession> DeployedSessions::get(const std::shared_ptr<Runtime>& runtime, const char* name) {
  require_model(runtime->settings()->config, name);
  std::unique_lock<Mutex> held(mutex_);
  Slot* slot = &slot_of(name);
  while (slot->loading) {
    wait_for(held, *slot, name);
    slot = &slot_of(name);  // it may have been let go of meanwhile
  }
  if (slot->session != nullptr) return slot->session;
  Loading loading(*this, *slot);
  held.unlock();
  std::shared_ptr<LiveSession> session = LiveSession::create(runtime, std::make_unique<DeployedRecipe>(name));
  loading.session = session;
  return session;
}

void DeployedSessions::keep_named(const Settings& settings) {
  std::vector<std::unique_ptr<Slot>> dropped;  // end without the lock
  const std::lock_guard<Mutex> lock(mutex_);
  for (std::unique_ptr<Slot>& slot : slots_) {
    const bool is_awaited = std::any_of(slots_.begin(), slots_.end(),
                                        [&](const std::unique_ptr<Slot>& s) { return s != nullptr && s->waits_for == slot.get(); });
    if (slot->loading || is_awaited || find_model(settings.config, slot->name) != nullptr) continue;
    dropped.push_back(std::move(slot));
  }
  std::erase_if(slots_, [](const std::unique_ptr<Slot>& slot) { return slot == nullptr; });
}

}  // namespace evn
