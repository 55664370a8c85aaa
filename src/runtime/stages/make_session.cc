#include "runtime/stages/make_session.h"

#include "base/error.h"
#include "base/guarded.h"
#include "kept_features.h"
#include "runtime/batch/batch_stage.h"
#include "runtime/cost/placement_search.h"
#include "runtime/loss/lost_device.h"
#include "runtime/replay/recording.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/compile_shared.h"
#include "runtime/session/memory_ladder.h"
#include "runtime/session/statistics_stage.h"
#include "runtime/split/operator_split.h"
#include "runtime/split/row_split.h"
#include "runtime/split/split_watch.h"
#include "runtime/state/state_run.h"

namespace evn {
namespace {

// Objects that sessions of one identity and the same settings share, whichever of their inputs are open.
struct Shared {
  SessionRequest request;
  std::shared_ptr<SessionIdentity> identity;
  std::shared_ptr<ArenaStore> arenas;
  std::shared_ptr<Tracing> tracing;
};

std::shared_ptr<SessionIdentity> identity_for(const LoadedModel& model, const SessionRequest& request) {
  if (request.role.identity != nullptr) return request.role.identity;
  const std::string name = !request.name.empty() ? request.name : !model.file_name.empty() ? model.file_name : "model";
  return std::make_shared<SessionIdentity>(request.role.listed ? &model.runtime->statistics() : nullptr, name,
                                           concurrency_of(request));
}

// Places of nodes of a body are not searched for.
std::shared_ptr<const CompiledGraph> compile_placed(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache,
                                                    bool is_body) {
  if (is_body || !is_searched(request.settings->config, request)) return compile_shared(model, request, cache);
  std::vector<std::shared_ptr<Session>> tried;  // until the graph is made, so that weights are not packed twice
  return compile_shared(model, request, cache, [&] { return search_placement(model, request, &tried); });
}

// Compiles the model with the nodes in parts that rules split. If a device is full, the nodes are split anew among the others.
std::shared_ptr<const CompiledGraph> compile_for(const ModelPtr& model, SessionRequest request, const CacheConfig& cache,
                                                 bool is_body) {
  if (!kHas_full) return compile_shared(model, request, cache);
  std::optional<Error> first;
  for (;;) {
    SplitModel split{model, nullptr};
    std::shared_ptr<const CompiledGraph> made;
    const std::optional<Error> failure = error_of([&] {
      split = split_operators(model, request);
      SessionRequest placed = request;
      placed.role.whole_nodes = split.whole;
      made = compile_placed(split.model, placed, cache, is_body);
    });
    if (!failure) return made;
    if (!first && split.model->whole == nullptr) throw *failure;  // whole nodes have been tried on all devices that rules allow
    leave_out_full(*model->runtime, *failure, &first, &request);
  }
}

// The stages, the outermost first. `parts` has the rest of the session.
void add_stages(const Shared& shared, SessionParts* parts) {
  const SessionRequest& request = shared.request;
  const CompiledGraph& graph = *parts->compiled;
  const auto add = [&](std::unique_ptr<RunStage> stage) {
    if (stage != nullptr) parts->stages.push_back(std::move(stage));
  };
  add(std::make_unique<StatisticsStage>(shared.identity->statistics));
  if (!kHas_full) {
    if (request.batching.max_batch == 0) return;
    fail(EVN_ERROR_UNSUPPORTED, "batching is asked for, and this build of the library leaves requests out (EVN_FEATURES=core)");
  }
  const Config& config = request.settings->config;
  const RecordingConfig& recording = config.recording;
  if (!recording.folder.empty()) add(make_recording_stage(recording, shared.identity->statistics.name()));
  add(make_loss_stage());
  add(make_state_stage());
  if (request.batching.max_batch != 0) {
    if (!config.split_devices.empty()) {
      fail(EVN_ERROR_UNSUPPORTED,
           "%s:%d: placement.split: a session with batching cannot be split: joined requests have the bits that they have alone, "
           "and devices other than the CPU may round otherwise for other sizes of a batch",
           config.source.c_str(), config.split_line);
    }
    auto batches = std::make_unique<BatchStage>(graph, request.batching);
    parts->batcher = &batches->batcher();
    add(std::move(batches));
  }
  if (!config.split_devices.empty()) add(std::make_unique<RowSplit>(graph, request));
  add(SplitWatch::make(graph, *shared.identity));
}

std::shared_ptr<Session> put_together(const ModelPtr& model, const std::shared_ptr<const Shared>& shared, const CacheConfig& cache,
                                      std::vector<NodeSelection> selections) {
  const std::uint64_t begin_ns = os::now_ns();
  const SessionRequest& request = shared->request;
  SessionParts parts{.stale_copies = StaleCopies(model, request.settings)};
  parts.compiled = compile_for(model, request, cache, false);
  parts.bodies = make_bodies(*parts.compiled, request, shared->arenas, [](const ModelPtr& body, const SessionRequest& within) {
    return compile_for(body, within, {}, true);
  });
  parts.arenas = shared->arenas;
  parts.group = shared->identity->group;
  parts.concurrency = concurrency_of(request);
  parts.tracing = shared->tracing;
  parts.identity = shared->identity;
  parts.selections = std::move(selections);
  parts.make_opened = [shared](const ModelPtr& open) { return put_together(open, shared, {}, {}); };
  add_stages(*shared, &parts);
  const CompiledGraph& graph = *parts.compiled;
  auto session = std::make_shared<Session>(std::move(parts));
  const std::uint64_t duration_ns = os::now_ns() - begin_ns;
  LogEvent(model->runtime->log(), EVN_LOG_INFO, "session.created")
      .device(request.device.c_str())
      .field("file", model->file_name.c_str())
      .field("nodes", graph.graph().nodes.size())
      .field("devices", graph.devices.size())
      .field("packed_values", graph.packed_count)
      .field("duration_ns", duration_ns)
      .write("made a session of %s: %zu nodes on %zu devices, %llu ms", model->shown_name(), graph.graph().nodes.size(),
             graph.devices.size(), static_cast<unsigned long long>(duration_ns / 1'000'000));
  return session;
}

}  // namespace

std::shared_ptr<Session> make_session(const ModelPtr& model, SessionRequest request, const CacheConfig& cache,
                                      std::vector<NodeSelection> selections) {
  request = with_settings(std::move(request), *model->runtime);
  auto shared = std::make_shared<Shared>(Shared{.request = request,
                                                .identity = identity_for(*model, request),
                                                .arenas = make_arenas(*model->runtime, request),
                                                .tracing = std::make_shared<Tracing>()});
  shared->request.role.identity = shared->identity;
  std::shared_ptr<Session> session = put_together(model, shared, cache, std::move(selections));
  if (request.role.identity == nullptr) apply_concurrency(*session);
  return session;
}

}  // namespace evn
