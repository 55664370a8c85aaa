#include "runtime/loaded/model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/os/beneath.h"
#include "base/os/os.h"
#include "core/name_map.h"
#include "graph/infer.h"
#include "graph/passes/passes.h"
#include "graph/validate.h"
#include "model/load.h"
#include "ops/merge.h"
#include "runtime/loaded/load_scope.h"
#include "runtime/loaded/model_summary.h"

namespace evn {
namespace {

void take_bodies(LoadedModel& model) {
  for (const Node& node : model.graph().nodes) {
    if (node.body == nullptr) continue;
    auto body = std::make_shared<LoadedModel>();
    body->runtime = model.runtime;
    body->store.set_owner(body->runtime);
    body->file_name = model.file_name;
    body->external = model.external;
    body->plain = model.plain;
    body->model.graph = Graph(*node.body);  // assigning copies would be code of its own
    take_bodies(*body);
    model.bodies.emplace(node.name, std::move(body));
  }
}

// Reads the constants that models of bodies cannot read from their file later.
void read_constants_of_bodies(const LoadedModel& loaded, const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.body == nullptr) continue;
    for (const Value& v : node.body->values) {
      if (v.constant != nullptr && !PlainWeights::Access::may_go_in_bodies(loaded, *v.constant)) v.constant->bytes();
    }
    read_constants_of_bodies(loaded, *node.body);
  }
}

// Passes that are left out where a model is to be saved again: those that put in what ONNX has no operator for, or that are a
// matter of how fast it runs.
std::vector<const char*> passes_of_running(PlainModel kind) {
  constexpr std::string_view kOfSaving[] = {"eliminate_identity", "fold_constants", "resolve_branches", "fold_batch_norm",
                                            "dead_code"};
  std::vector<const char*> names;
  for (const Pass& p : passes()) {
    const bool is_of_saving = std::find(std::begin(kOfSaving), std::end(kOfSaving), p.name) != std::end(kOfSaving);
    if (!is_of_saving || kind == PlainModel::kUnfolded) names.push_back(p.name);
  }
  return names;
}

// Declarations of a model that contradict what its nodes compute.
struct Wrong {
  std::vector<WrongShape> shapes;
  TypeConflicts types;
};

void check_unchanged(const LoadedModel& loaded, const FileImage& image) {
  if (image.file != nullptr) image.file->check_unchanged();
  if (loaded.external != nullptr) loaded.external->check_unchanged();
}

// Options and further results of a load.
struct ReadOptions {
  std::span<const char* const> disabled = {};   // passes
  std::vector<RemovedNode>* removed = nullptr;  // LoadedModel's; nullable, as all that follows
  std::set<std::uint64_t>* literals = nullptr;  // see validate_model
  std::vector<DefaultReads>* reads = nullptr;   // of the defaults, before the passes
};

// Makes the graph that is run of a model as load_onnx gives it. `loaded` has all that is not the model itself.
void make_runnable(const LoadedModel& loaded, Model& model, std::uint64_t deadline_ns, Wrong* wrong, const ReadOptions& options) {
  const SettingsPtr settings = loaded.runtime->settings();
  const Limits& limits = settings->config.limits;
  for (Node& node : model.graph.nodes) {
    if (loaded.is_own && node.domain == kInternalDomain) node.since_version = 1;  // which no model can import
  }
  validate_model(model, limits, &loaded.runtime->operators(), &wrong->types, options.literals);
  infer_graph(model.graph, &wrong->shapes, &wrong->types);
  std::vector<const char*> left_out(options.disabled.begin(), options.disabled.end());
  for (const std::string& name : settings->config.disabled_passes) left_out.push_back(name.c_str());
  if (options.removed != nullptr) *options.removed = list_nodes(model.graph);
  if (options.reads != nullptr) *options.reads = reads_of_defaults(model);
  optimize_graph(model.graph, {loaded.runtime->cpu().ledger(), limits, deadline_ns}, left_out);
  if (options.removed != nullptr) drop_present(model.graph, options.removed);
}

// Reads bytes and makes the graph that is run.
Model read_model(const LoadedModel& loaded, FileImage image, std::size_t size, std::uint64_t deadline_ns, Wrong* wrong,
                 const ReadOptions& options = {}) {
  const Runtime& runtime = *loaded.runtime;
  const HeapReclaim allowed(true);
  const LoadScope scope(deadline_ns);
  Limits limits = runtime.settings()->config.limits;
  // What a host gives has been held against the limit by now; what the quantizer makes of it may be larger, in one piece.
  limits.model_bytes = std::max<std::uint64_t>(limits.model_bytes, size);
  const LedgerPtr ledger = runtime.cpu().ledger();
  std::shared_ptr<const void> bytes = std::move(image.bytes);
  Model model =
      load_onnx(std::move(bytes), size,
                {ledger, limits, loaded.external.get(), loaded.file_name, deadline_ns, &image, &wrong->types, loaded.open_inputs});
  check_unchanged(loaded, image);
  make_runnable(loaded, model, deadline_ns, wrong, options);
  read_constants_of_bodies(loaded, model.graph);
  check_unchanged(loaded, image);
  return model;
}

std::uint64_t hash_of(const FileImage& image) {
  Hasher hash;
  const char* const bytes = static_cast<const char*>(image.bytes.get());
  std::uint64_t at = 0;
  const auto add = [&](std::uint64_t end) { hash.add(checksum_of(bytes + at, static_cast<std::size_t>(end - at))); };
  for (const Gap& gap : image.gaps) {
    add(gap.offset);
    at = gap.offset + gap.size;
  }
  add(image.file->size());
  return hash.value();
}

// Bodies become models of their own, and the log says what was loaded.
void finish_load(LoadedModel& loaded, const Wrong& wrong, std::size_t size, std::uint64_t begin_ns) {
  for (const WrongShape& w : wrong.shapes) log_wrong_shape(*loaded.runtime, loaded, w);
  for (const TypeConflict& c : wrong.types) log_conflict(*loaded.runtime, loaded, c);
  take_bodies(loaded);
  log_loaded(loaded, size, os::now_ns() - begin_ns);
}

ModelPtr load(std::shared_ptr<Runtime> runtime, FileImage image, std::size_t size, const std::string& file_name,
              std::shared_ptr<ExternalFiles> external, std::uint64_t deadline_ns) {
  const std::uint64_t begin_ns = os::now_ns();
  auto loaded = std::make_shared<LoadedModel>();
  loaded->runtime = std::move(runtime);
  loaded->store.set_owner(loaded->runtime);
  loaded->file_name = file_name;
  loaded->external = std::move(external);
  loaded->file = image.file;
  if (image.file != nullptr) loaded->bytes_hash = hash_of(image);
  std::shared_ptr<const void> bytes = image.file == nullptr ? image.bytes : nullptr;
  Wrong wrong;
  loaded->model = read_model(*loaded, std::move(image), size, deadline_ns, &wrong, {.removed = &loaded->removed});
  if (!loaded->model.defaults.empty()) {
    loaded->bytes = std::move(bytes);
    loaded->byte_count = size;
  }
  finish_load(*loaded, wrong, size, begin_ns);
  return loaded;
}

std::uint64_t load_deadline(const Runtime& runtime) {
  const std::uint64_t limit = runtime.settings()->config.limits.load_time_ns;
  return limit == 0 ? UINT64_MAX : deadline_clock_ns() + limit;
}

}  // namespace

ModelPtr DerivedModels::find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = all_.find(key);
  return it != all_.end() ? it->second.lock() : nullptr;
}

ModelPtr DerivedModels::add(const std::string& key, ModelPtr made) {
  ModelPtr other;  // let go of without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_.prune(all_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const LoadedModel>& entry = all_[key];
  if ((other = entry.lock()) != nullptr) return other;
  entry = made;
  return made;
}

namespace {

struct OpenedModel {
  FileImage image;
  std::size_t size = 0;
  std::string name;
  std::shared_ptr<ExternalFiles> external;
};

OpenedModel read_opened(const Runtime& runtime, std::shared_ptr<const os::File> file, const std::string& path,
                        os::FileAccess access, std::uint64_t deadline) {
  OpenedModel s;
  const std::size_t slash = path.find_last_of('/');
  const bool maps = access.map;
  s.external = std::make_shared<ExternalFiles>(slash == std::string::npos ? "." : (slash == 0 ? "/" : path.substr(0, slash)),
                                               std::move(access));
  s.name = slash == std::string::npos ? path : path.substr(slash + 1);
  s.image = read_image(std::move(file), runtime.cpu().ledger(), deadline);
  if (maps && !s.image.gaps.empty()) s.image.mapping = s.image.file->map();
  s.size = static_cast<std::size_t>(s.image.file->size());
  return s;
}

OpenedModel open_file(const Runtime& runtime, const std::string& path, os::FileAccess access, std::uint64_t deadline) {
  auto file = os::open_for_reading(path, runtime.settings()->config.limits.model_bytes);
  return read_opened(runtime, std::move(file), path, std::move(access), deadline);
}

OpenedModel copy_buffer(const Runtime& runtime, const void* data, std::size_t size, const std::string& external_dir,
                        os::FileAccess access) {
  const std::uint64_t limit = runtime.settings()->config.limits.model_bytes;
  if (size > limit) {
    throw make_error(EVN_ERROR_LIMIT, "the model has %zu bytes, above the limit model_bytes of %llu", size,
                     static_cast<unsigned long long>(limit))
        .with_bytes(size, limit);
  }
  OpenedModel s;
  std::shared_ptr<void> copy = allocate_charged(runtime.cpu().ledger(), size, MemoryClass::kWeights);
  copy_block(copy.get(), data, static_cast<std::int64_t>(size));
  s.image.bytes = std::move(copy);
  s.size = size;
  s.external = std::make_shared<ExternalFiles>(external_dir, std::move(access));
  return s;
}

}  // namespace

os::FileAccess file_access(const Runtime& runtime, os::FileAccess own) {
  const SettingsPtr settings = runtime.settings();
  const os::FileAccess& configured = settings->config.files;
  own.allowed_roots.insert(own.allowed_roots.end(), configured.allowed_roots.begin(), configured.allowed_roots.end());
  own.map |= configured.map;
  // Where the host gives memory of its own nothing is mapped.
  own.map &= runtime.cpu().ledger()->host_memory().host.allocate == nullptr;
  return own;
}

ModelPtr load_model_file(std::shared_ptr<Runtime> runtime, const std::string& path, os::FileAccess own) {
  const std::uint64_t deadline = load_deadline(*runtime);
  const LoadScope scope(deadline);
  OpenedModel s = open_file(*runtime, path, file_access(*runtime, std::move(own)), deadline);
  return load(std::move(runtime), std::move(s.image), s.size, s.name, std::move(s.external), deadline);
}

ModelPtr load_model_beneath(std::shared_ptr<Runtime> runtime, const std::string& folder, const std::string& path) {
  const std::uint64_t deadline = load_deadline(*runtime);
  const LoadScope scope(deadline);
  os::FileAccess access = file_access(*runtime);
  auto file = os::open_for_reading_beneath(folder, path, access.allowed_roots, runtime->settings()->config.limits.model_bytes);
  OpenedModel s = read_opened(*runtime, std::move(file), folder + path, std::move(access), deadline);
  return load(std::move(runtime), std::move(s.image), s.size, s.name, std::move(s.external), deadline);
}

namespace {

FileImage image_again(const LoadedModel& model, std::uint64_t deadline_ns) {
  FileImage image;
  image.bytes = model.bytes;
  if (model.file == nullptr) return image;
  image = read_image(model.file, model.runtime->cpu().ledger(), deadline_ns);
  if (model.external != nullptr && model.external->access().map && !image.gaps.empty()) image.mapping = image.file->map();
  return image;
}

// In the model's order.
std::vector<std::string> check_open_inputs(const LoadedModel& model, std::span<const std::string> names) {
  const NameViewSet wanted = set_of(names);
  NameViewSet found;
  std::vector<std::string> open;
  std::string all;
  for (const InputDefault& d : model.model.defaults) {
    cancellation_point(kNameWork);
    const std::string& name = d.declared.name;
    if (all.size() < 256) all += (all.empty() ? "" : ", ") + name;
    if (!wanted.contains(name)) continue;
    open.push_back(name);
    found.insert(name);
  }
  for (const std::string& name : names) {
    cancellation_point(kNameWork);
    if (found.contains(name)) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is no input \"%.128s\" with a default; there are: %s", name.c_str(),
         all.empty() ? "none" : all.c_str());
  }
  return open;
}

}  // namespace

ModelPtr with_open_inputs(const ModelPtr& model, std::span<const std::string> names) {
  if (model->whole != nullptr) return with_open_inputs(model->whole, names);
  if (model->closed != nullptr) return with_open_inputs(model->closed, names);
  std::vector<std::string> open = check_open_inputs(*model, names);
  if (open.empty()) return model;
  std::string key = "open";
  for (const std::string& name : open) key += " " + std::to_string(name.size()) + ":" + name;
  if (ModelPtr found = model->derived.find(key)) return found;
  const std::uint64_t deadline = load_deadline(*model->runtime);
  const LoadScope scope(deadline);
  auto made = std::make_shared<LoadedModel>();
  made->runtime = model->runtime;
  made->store.set_owner(made->runtime);
  made->file_name = model->file_name;
  made->external = model->external;
  made->is_own = model->is_own;
  made->file = model->file;
  made->bytes_hash = model->bytes_hash;
  made->bytes = model->bytes;
  made->byte_count = model->byte_count;
  made->open_inputs = std::move(open);
  made->closed = model;
  const std::size_t size = model->file != nullptr ? static_cast<std::size_t>(model->file->size()) : model->byte_count;
  Wrong logged_before;
  made->model = read_model(*made, image_again(*model, deadline), size, deadline, &logged_before, {.removed = &made->removed});
  EVN_CHECK(made->model.defaults.size() == model->model.defaults.size());
  for (const InputDefault& d : made->model.defaults) {
    if (d.value != nullptr) d.value->bytes();
  }
  take_bodies(*made);
  return model->derived.add(key, std::move(made));
}

Model read_again(const LoadedModel& model) {
  const std::uint64_t deadline = load_deadline(*model.runtime);
  const LoadScope scope(deadline);
  Wrong logged_before;
  return read_model(model, image_again(model, deadline), static_cast<std::size_t>(model.file->size()), deadline, &logged_before);
}

ModelPtr load_model_buffer(std::shared_ptr<Runtime> runtime, const void* data, std::size_t size, const std::string& external_dir,
                           os::FileAccess own) {
  const std::uint64_t deadline = load_deadline(*runtime);
  const LoadScope scope(deadline);
  OpenedModel s = copy_buffer(*runtime, data, size, external_dir, file_access(*runtime, std::move(own)));
  return load(std::move(runtime), std::move(s.image), size, "", std::move(s.external), deadline);
}

ModelPtr load_model_bytes(std::shared_ptr<Runtime> runtime, std::shared_ptr<const void> bytes, std::size_t size,
                          const std::string& name) {
  const std::uint64_t deadline = load_deadline(*runtime);
  const LoadScope scope(deadline);
  FileImage image;
  image.bytes = std::move(bytes);
  return load(std::move(runtime), std::move(image), size, name, nullptr, deadline);
}

namespace {

// Reads all constants of a graph and its bodies. Returns their bytes.
std::size_t read_constants(const Graph& graph) {
  std::size_t size = 0;
  for (const Value& v : graph.values) {
    if (v.constant == nullptr) continue;
    v.constant->bytes();
    size += v.constant->size_bytes;
  }
  for (const Node& node : graph.nodes) {
    if (node.body != nullptr) size += read_constants(*node.body);
  }
  return size;
}

}  // namespace

ModelPtr take_model(std::shared_ptr<Runtime> runtime, Model model, bool is_own) {
  const std::uint64_t begin_ns = os::now_ns();
  const std::uint64_t deadline = load_deadline(*runtime);
  const HeapReclaim allowed(true);
  const LoadScope scope(deadline);
  auto loaded = std::make_shared<LoadedModel>();
  loaded->runtime = std::move(runtime);
  loaded->store.set_owner(loaded->runtime);
  loaded->is_own = is_own;
  Wrong wrong;
  make_runnable(*loaded, model, deadline, &wrong, {.removed = &loaded->removed});
  loaded->model = std::move(model);
  finish_load(*loaded, wrong, read_constants(loaded->graph()), begin_ns);
  return loaded;
}

Model read_plain_model(const std::shared_ptr<Runtime>& runtime, const ModelSource& source, PlainModel kind,
                       std::vector<RemovedNode>* removed, std::set<std::uint64_t>* literals, std::vector<DefaultReads>* reads) {
  const std::uint64_t deadline = load_deadline(*runtime);
  const LoadScope scope(deadline);
  os::FileAccess access = file_access(*runtime);
  OpenedModel s = source.path.empty() ? copy_buffer(*runtime, source.data, source.size, source.external_dir, std::move(access))
                                      : open_file(*runtime, source.path, std::move(access), deadline);
  LoadedModel loaded;
  loaded.runtime = runtime;
  loaded.file_name = s.name;
  loaded.external = std::move(s.external);
  Wrong logged_before;
  const std::vector<const char*> disabled = passes_of_running(kind);
  return read_model(loaded, std::move(s.image), s.size, deadline, &logged_before, {disabled, removed, literals, reads});
}

}  // namespace evn
