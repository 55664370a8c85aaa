#include "runtime/session/session.h"

#include "base/error.h"
#include "runtime/session/compile_shared.h"

namespace evn {

Session::Session(SessionParts parts)
    : stale_copies_(std::move(parts.stale_copies)),
      compiled_(std::move(parts.compiled)),
      bodies_(std::move(parts.bodies)),
      arenas_(std::move(parts.arenas)),
      group_(std::move(parts.group)),
      concurrency_(parts.concurrency),
      tracing_(std::move(parts.tracing)),
      identity_(std::move(parts.identity)),
      spare_blocks_(list_bytes(graph())),
      plans_(*compiled_, *arenas_),
      stages_(std::move(parts.stages)),
      batcher_(parts.batcher),
      selections_(std::move(parts.selections)),
      open_inputs_(*this, *compiled_->model, std::move(parts.make_opened)) {
  for (Device* device : compiled_->devices) Runtime::require_not_forked(*device);
}

Session::~Session() = default;

StaleCopies::~StaleCopies() {
  if (model_ != nullptr && settings_->generation != model_->runtime->settings()->generation) model_->store.drop_unused();
}

std::vector<Device*> Session::devices() const {
  std::vector<Device*> devices = compiled_->devices;
  std::vector<const Session*> others;
  for (const std::unique_ptr<RunStage>& stage : stages_) stage->add_sessions(&others);
  for (const Session* other : others) {
    const std::vector<Device*>& own = other->compiled().devices;
    devices.insert(devices.end(), own.begin(), own.end());
  }
  return devices;
}

void Session::count_plans(SessionMemoryStats* stats) const {
  plans_.count(&stats->plan_count, &stats->plan_bytes);
  std::vector<const Session*> others;
  for (const std::unique_ptr<Session>& body : bodies_) {
    if (body != nullptr) others.push_back(body.get());
  }
  for (const std::unique_ptr<RunStage>& stage : stages_) stage->add_sessions(&others);
  for (const Session* other : others) other->count_plans(stats);
  for (const std::shared_ptr<Session>& open : open_inputs_.opened()) open->count_plans(stats);
}

SessionMemoryStats Session::memory_stats() const {
  SessionMemoryStats stats;
  count_plans(&stats);
  stats.arenas = arenas_->stats();
  return stats;
}

DividedWork Session::divided_work() const {
  DividedWork work;
  for (const std::unique_ptr<RunStage>& stage : stages_) stage->explain(&work);
  return work;
}

std::shared_ptr<ArenaStore> make_arenas(Runtime& runtime, const SessionRequest& request) {
  const SessionConfig& configured = request.settings->config.session;
  const std::uint64_t budget = request.idle_arena_bytes != 0 ? request.idle_arena_bytes : configured.idle_arena_bytes;
  if (request.share_arenas.value_or(configured.share_arenas)) return runtime.shared_arenas(budget);
  return std::make_shared<ArenaStore>(runtime.arenas(), budget);
}

int concurrency_of(const SessionRequest& request) {
  return request.concurrency != 0 ? request.concurrency : request.settings->config.session.concurrency;
}

namespace {

SessionParts plain_parts(const ModelPtr& model, const SessionRequest& request, std::shared_ptr<ArenaStore> arenas,
                         const CompileBody& compile_body) {
  SessionParts parts{.stale_copies = StaleCopies(model, request.settings)};
  parts.compiled = compile_body != nullptr ? compile_body(model, request) : compile_shared(model, request, {});
  parts.bodies = make_bodies(*parts.compiled, request, arenas, compile_body);
  parts.arenas = std::move(arenas);
  parts.concurrency = concurrency_of(request);
  parts.group = std::make_shared<RunGroup>(parts.concurrency);
  return parts;
}

}  // namespace

std::vector<std::unique_ptr<Session>> make_bodies(const CompiledGraph& compiled, const SessionRequest& request,
                                                  const std::shared_ptr<ArenaStore>& arenas, const CompileBody& compile_body) {
  std::vector<std::unique_ptr<Session>> bodies;
  const std::map<std::string, ModelPtr>& models = compiled.model->bodies;
  if (models.empty()) return bodies;
  SessionRequest within = request;
  within.role.assigned = nullptr;
  within.batching = {};
  within.role.is_of_batches = request.joins_requests();
  const std::vector<Node>& nodes = compiled.graph().nodes;
  bodies.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto body = models.find(nodes[i].name);
    if (body != models.end()) bodies[i] = std::make_unique<Session>(plain_parts(body->second, within, arenas, compile_body));
  }
  return bodies;
}

std::shared_ptr<Session> make_plain_session(const ModelPtr& model, SessionRequest request) {
  Runtime& runtime = *model->runtime;
  request = with_settings(std::move(request), runtime);
  return std::make_shared<Session>(plain_parts(model, request, make_arenas(runtime, request), nullptr));
}

}  // namespace evn
