#include "tests/api_fuzz/options.h"

#include <time.h>

#include <atomic>
#include <cstdlib>

#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/state.h"
#include "evener/train.h"
#include "tests/api_fuzz/models.h"

namespace evn::fuzz {
namespace {

std::string g_folder;

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// None, soon, past, or odd.
std::uint64_t some_deadline(Random& random) {
  if (random.chance(60)) return 0;
  if (random.chance(70)) return now_ns() + random.below(50'000'000);
  return random.chance(50) ? 1 + random.below(100) : random.odd();
}

evn_cancel some_token(Random& random, int percent) { return random.chance(percent) ? pick<evn_cancel>(random) : nullptr; }

constexpr const char* kConfigurations[] = {
    "version: 1\nlimits: {run_time: 2s, load_time: 2s}\ndevices: {cpu: {type: cpu, threads: 2, memory_limit: 64MiB}}\n",
    "limits: {queued_requests: 4, tensor_bytes: 1MiB}\ndevices: {cpu: {type: cpu, threads: 1, memory_limit: 16MiB, trim: idle}}\n",
    "session: {share_arenas: true, batching: {max_batch: 8, max_delay: 100us}}\ndevices: {cpu: {type: cpu, threads: 2}}\n",
    "devices: [",
    "",
    "numerics: strict\n",
    "devices: {cpu: {type: cpu, threads: 2, precision: bf16}}\nplacement: {default: cpu}\n",
    "devices: {gpu: {type: opencl, optional: true}, cpu: {type: cpu, threads: 2}}\nplacement: {default: [gpu, cpu]}\n"};

// A file of the fuzzer's folder that names models, with and without batching.
const char* some_config_path(Random& random) {
  return guarded_text(g_folder + (random.chance(50) ? "models.yaml" : "batching.yaml"));
}

void some_config(Random& random, const char** text, std::size_t* size) {
  const std::string chosen = random.one_of(kConfigurations);
  char* const copy = static_cast<char*>(guarded_copy(chosen.data(), chosen.size()));
  if (random.chance(5) && !chosen.empty()) copy[random.below(chosen.size())] = static_cast<char>(random.next());
  *text = copy;
  *size = chosen.size();
}

void* allocate(void*, std::size_t size, std::size_t alignment) {
  if (size > std::size_t{256} << 20) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment < 16 ? 16 : alignment, size) == 0 ? memory : nullptr;
}
void free_memory(void*, void* memory, std::size_t) { free(memory); }
void run_tasks(void*, std::uint32_t count, evn_task task, void* context) {
  for (std::uint32_t i = 0; i < count; ++i) task(context, i);
}
std::atomic<std::size_t> g_sink;
void read_message(void*, evn_log_level, const char* message) { g_sink = std::strlen(message); }
void take_back(void*) { g_sink = 0; }
std::int32_t see_progress(void*, const char* what, std::uint64_t, std::uint64_t) {
  g_sink = std::strlen(what);
  return 0;
}
void see_end(void*, evn_request request) {
  bool done = false;
  evn_request_wait(request, 0, &done, nullptr);
}

evn_status infer_same(void*, evn_operator_node node, const evn_tensor_view* inputs, std::uint32_t input_count,
                      evn_tensor_view* outputs, std::uint32_t output_count, evn_error* error) {
  if (input_count < 1 || output_count < 1) return EVN_ERROR_INVALID_ARGUMENT;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  std::memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
  std::int64_t number = 0;
  evn_operator_attribute_int(node, "a", &number, error);
  char name[8];
  std::size_t size = 0;
  evn_operator_node_name(node, name, sizeof name, &size, nullptr);
  return EVN_OK;
}
evn_status copy_input(void*, evn_operator_node node, const evn_tensor_view* inputs, std::uint32_t, const evn_tensor_view* outputs,
                      std::uint32_t, evn_error*) {
  if (outputs[0].size_bytes > 0) std::memcpy(outputs[0].data, inputs[0].data, outputs[0].size_bytes);
  const std::int64_t* list = nullptr;
  std::size_t count = 0;
  evn_operator_attribute_ints(node, "d", &list, &count, nullptr);
  return EVN_OK;
}
evn_status make_samples(void*, const std::uint64_t*, std::uint32_t count, void* const* buffers, std::uint32_t*, evn_error*) {
  if (buffers[0] != nullptr) std::memset(buffers[0], 0, count * std::size_t{4});
  return EVN_OK;
}

constexpr const char* kGlobs[] = {"*", "type:Softmax", "g1", "type:", "[", "?*?"};
constexpr std::int64_t kBuckets[] = {8, 16, 32};
constexpr std::int64_t kSmallDims[] = {2, 4, 2, 2, 2, 2, 2, 2};
constexpr std::uint8_t kSkipped[16] = {0, 1, 0, 1};

}  // namespace

void set_folder(const std::string& folder) { g_folder = folder; }
const std::string& folder() { return g_folder; }

const char* text_argument(Random& random, const char* name) {
  if (random.chance(3)) return nullptr;
  const std::string what = name;
  if (what == "path" && random.chance(60)) return guarded_text(g_folder + models()[random.below(models().size())].name);
  if (what == "path" || what == "folder") {
    switch (random.below(4)) {
      case 0: return guarded_text(g_folder + (what == "path" ? "out.bin" : "out"));
      case 1: return "/dev/null";
      case 2: return "/nonexistent/file";
      default: return guarded_text(g_folder);
    }
  }
  static const std::string kLong(199'999, 'A');
  if (random.chance(2)) return guarded_text(kLong);
  static constexpr const char* kWords[] = {"",
                                           "x",
                                           "y",
                                           "cpu",
                                           "gpu",
                                           "opencl:0",
                                           "mlp",
                                           "cnn",
                                           "past",
                                           "h0",
                                           "k",
                                           "evn_error",
                                           "message",
                                           "tensor(float32)",
                                           "seq(tensor(float32))",
                                           "map(string,tensor(float32))",
                                           "optional(tensor(int64))",
                                           "seq(seq(seq(seq(seq(seq(tensor(float32)))))))",
                                           "\xff\xfe",
                                           "w1",
                                           "nobody",
                                           "cpu,cpu",
                                           "auto"};
  return guarded_text(random.one_of(kWords));
}

ModelBytes::ModelBytes(Random& random) {
  if (random.chance(3)) return;
  const std::string& bytes = models()[random.below(models().size())].bytes;
  size = bytes.size();
  if (size > 200'000) {
    data = bytes.data();
    return;
  }
  char* const copy = static_cast<char*>(guarded_copy(bytes.data(), size));
  data = copy;
  for (std::uint64_t left = random.chance(15) ? 1 + random.below(4) : 0; left > 0; --left)
    copy[random.below(size)] = static_cast<char>(random.next());
  if (random.chance(3)) size = random.below(size + 1);
}

StateBytes::StateBytes(Random& random) {
  const auto state = pick<evn_state>(random);
  std::string saved;
  std::size_t needed = 0;
  if (evn_state_save(state, nullptr, 0, &needed, nullptr) == EVN_OK && needed < 200'000) {
    saved.resize(needed);
    if (evn_state_save(state, saved.data(), saved.size(), &needed, nullptr) != EVN_OK) saved.clear();
  }
  if (saved.empty()) {
    saved.resize(random.below(300));
    for (char& c : saved) c = static_cast<char>(random.next());
  }
  for (std::uint64_t left = random.chance(60) && !saved.empty() ? 1 + random.below(5) : 0; left > 0; --left) {
    const std::size_t most = random.chance(50) && saved.size() > 200 ? 200 : saved.size();
    saved[random.below(most)] = static_cast<char>(random.chance(50) ? random.next() : random.chance(50) ? 255 : 0);
  }
  size = random.chance(15) ? random.below(saved.size() + 1) : saved.size();
  data = guarded_copy(saved.data(), size);
}

void fill(Random& random, evn_runtime_options& o) {
  o.thread_count = random.mostly<std::int32_t>(static_cast<std::int32_t>(random.below(3)), 85);
  if (o.thread_count > 64) o.thread_count = 2;
  if (random.chance(40)) o.config_path = some_config_path(random);
  else if (random.chance(60)) some_config(random, &o.config_text, &o.config_size);
  o.cache_dir = random.chance(80) ? "" : guarded_text(g_folder + "cache");
  if (random.chance(70)) o.cpu_memory_limit_bytes = (1 + random.below(64)) << 20;
  if (random.chance(20)) o.parallel_for = run_tasks;
  if (random.chance(20)) {
    o.allocator.allocate = allocate;
    o.allocator.free = random.chance(95) ? free_memory : nullptr;
  }
  if (random.chance(30)) o.log_callback = read_message;
  o.log_level = random.mostly<evn_log_level>(EVN_LOG_DEBUG);
  if (random.chance(20)) o.ended = take_back;
  if (random.chance(2)) o.reserved = 1;
}

void fill(Random& random, evn_reconfigure_options& o) {
  if (random.chance(75)) some_config(random, &o.config_text, &o.config_size);
  else o.config_path = some_config_path(random);
  o.cancel = some_token(random, 15);
  o.deadline_ns = some_deadline(random);
}

void fill(Random& random, evn_operator& o) {
  o.domain = random.chance(80) ? "my.domain" : text_argument(random, "domain");
  o.name = random.chance(80) ? "Twice" : text_argument(random, "name");
  o.min_inputs = random.mostly<std::uint32_t>(1, 85);
  o.max_inputs = random.mostly<std::uint32_t>(1, 85);
  o.infer = random.chance(95) ? infer_same : nullptr;
  o.run = copy_input;
  o.since_version = random.mostly<std::int32_t>(1);
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(4)), 80);
  o.value_inputs = random.mostly<std::uint64_t>(0);
}

void fill(Random& random, evn_model_options& o) {
  if (random.chance(20)) o.external_dir = guarded_text(g_folder);
  o.cancel = some_token(random, 15);
  o.deadline_ns = some_deadline(random);
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(2)), 95);
  if (random.chance(20)) {
    o.allowed_roots = kGlobs;
    o.allowed_root_count = static_cast<std::uint32_t>(random.below(3));
  }
}

void fill(Random& random, evn_inspect_options& o) {
  static const evn_input_shape kShapes[] = {{"x", kSmallDims, 2, 0}, {"past", kSmallDims, 3, 0}};
  const ModelBytes model(random);
  o.data = model.data;
  o.size = model.size;
  if (random.chance(60)) return;
  o.shapes = kShapes;
  o.shape_count = static_cast<std::uint32_t>(1 + random.below(2));
}

void fill(Random& random, evn_session_options& o) {
  const std::uint64_t way = random.below(10);
  o.device = way < 6 ? nullptr : way < 8 ? "cpu" : way < 9 ? "auto" : text_argument(random, "device");
  o.precision = random.mostly(static_cast<evn_precision>(random.below(5)), 80);
  o.numerics = random.mostly(static_cast<evn_numerics>(random.below(3)));
  o.products = random.mostly(static_cast<decltype(o.products)>(random.below(6)), 80);
  o.memory = static_cast<decltype(o.memory)>(random.below(3));
  o.arenas = static_cast<decltype(o.arenas)>(random.below(3));
  o.concurrency = random.mostly(static_cast<decltype(o.concurrency)>(random.below(4)), 80);
  if (random.chance(20)) {
    o.keep_fp32 = kGlobs;
    o.keep_fp32_count = static_cast<std::uint32_t>(random.below(7));
  }
  if (random.chance(10)) {
    o.disabled_passes = kGlobs;
    o.disabled_pass_count = static_cast<std::uint32_t>(random.below(3));
  }
  if (random.chance(5)) {
    o.overridable = kGlobs;
    o.overridable_count = static_cast<std::uint32_t>(random.below(3));
  }
  o.cancel = some_token(random, 10);
  if (random.chance(20)) o.deadline_ns = some_deadline(random);
  if (random.chance(20)) {
    evn_batching_options batching = EVN_BATCHING_OPTIONS_INIT;
    batching.max_batch = random.mostly(static_cast<std::int32_t>(2 + random.below(8)), 80);
    batching.max_delay_ns = random.mostly<std::uint64_t>(random.below(2'000'000), 80);
    if (random.chance(10)) {
      batching.mask = "x";
      batching.buckets = kBuckets;
      batching.bucket_count = static_cast<std::uint32_t>(random.below(4));
    }
    o.batching = static_cast<const evn_batching_options*>(guarded_copy(&batching, sizeof batching));
  }
  if (random.chance(20)) o.idle_arena_bytes = random.odd();
  if (random.chance(10)) o.arena_limit = random.odd();
  if (random.chance(15)) {
    o.cache_file = guarded_text(g_folder + (random.chance(50) ? "weights/" : "weights.bin"));
    o.cache_flags = static_cast<std::uint32_t>(random.below(5));
  }
  if (random.chance(20)) o.name = text_argument(random, "name");
}

void fill(Random& random, evn_run_options& o) {
  o.allow_copies = random.mostly(static_cast<std::uint32_t>(random.below(2)), 95);
  if (random.chance(40)) o.timeout_ns = random.mostly<std::uint64_t>(random.below(30'000'000), 80);
  o.random_seed = random.below(3);
  o.cancel = some_token(random, 25);
  o.deadline_ns = some_deadline(random);
  o.priority = random.mostly(static_cast<std::int32_t>(random.below(15)) - 7);
  if (random.chance(20)) o.flags = random.mostly(static_cast<std::uint32_t>(random.below(4)), 80);
  if (random.chance(40)) o.state = pick<evn_state>(random);
  if (random.chance(10)) o.skipped_outputs = kSkipped;
}

void fill(Random& random, evn_calibrate_options& o) {
  o.deadline_ns = now_ns() + random.below(20'000'000);
  o.cancel = some_token(random, 15);
}

void fill(Random& random, evn_quantizer_options& o) {
  o.mode = random.mostly(static_cast<evn_quantize_mode>(random.below(5)));
  o.calibration = random.mostly(static_cast<evn_calibration>(random.below(4)));
  o.activation = random.mostly<evn_dtype>(random.chance(50) ? EVN_DTYPE_UINT8 : EVN_DTYPE_INT8, 80);
  if (random.chance(40)) o.flags = random.mostly(static_cast<std::uint32_t>(random.below(256)), 80);
  o.weight_bits = random.mostly(static_cast<std::uint32_t>(4 * random.below(3)), 80);
  o.block_size = random.mostly(16u << random.below(4), 80);
  if (random.chance(20)) {
    o.keep = kGlobs;
    o.keep_count = static_cast<std::uint32_t>(random.below(6));
  }
  if (random.chance(30)) o.progress = see_progress;
  const ModelBytes model(random);
  o.data = model.data;
  o.size = model.size;
  o.cancel = some_token(random, 10);
  if (random.chance(20)) o.deadline_ns = some_deadline(random);
  o.percentile = random.chance(80) ? 0 : 99;
}

void fill(Random& random, evn_guard_options& o) {
  o.flags = static_cast<std::uint32_t>(random.below(4));
  o.min_cosine = random.chance(80) ? 0 : 2;
}

void fill(Random& random, evn_submit_options& o) {
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(2)), 95);
  if (random.chance(50)) o.queue = pick<evn_queue>(random);
  if (random.chance(40)) o.done = see_end;
  if (random.chance(30)) o.release = take_back;
}

void fill(Random& random, evn_state_options& o) {
  static const evn_input_shape kShapes[] = {{"past", kSmallDims + 5, 3, 0}, {"h0", kSmallDims, 3, 0}};
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(8)), 80);
  if (random.chance(70)) return;
  o.dims = kShapes;
  o.dim_count = static_cast<std::uint32_t>(1 + random.below(2));
}

void fill(Random& random, evn_opencl_attach_options& o) { o.name = text_argument(random, "name"); }

void fill(Random& random, evn_trainer_options& o) {
  static constexpr const char* kReplicas[] = {"cpu", "cpu", "gpu"};
  const std::string& bytes = models()[random.chance(70) ? 0 : random.below(models().size())].bytes;
  if (bytes.size() < 200'000) {
    o.data = guarded_copy(bytes.data(), bytes.size());
    o.size = bytes.size();
  }
  o.loss = random.mostly(static_cast<evn_loss>(random.below(5)));
  o.optimizer = random.mostly(static_cast<evn_optimizer>(random.below(5)));
  o.schedule = random.mostly(static_cast<evn_schedule>(random.below(5)));
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(4)), 80);
  o.precision = random.mostly(static_cast<evn_precision>(random.below(4)), 80);
  if (random.chance(20)) o.output = text_argument(random, "output");
  if (random.chance(10)) {
    o.frozen = kGlobs;
    o.frozen_count = static_cast<std::uint32_t>(random.below(3));
  }
  if (random.chance(10)) {
    o.trainable = kGlobs;
    o.trainable_count = static_cast<std::uint32_t>(random.below(3));
  }
  o.accumulate = random.mostly(static_cast<std::uint32_t>(random.below(3)));
  o.momentum = random.chance(50) ? 0 : 0.9;
  o.clip_norm = random.chance(50) ? 0 : 1;
  o.schedule_steps = random.mostly<std::uint64_t>(random.below(10), 80);
  o.warmup_steps = random.mostly<std::uint64_t>(random.below(3), 80);
  if (random.chance(20)) o.loss_scale = 1e10;
  if (random.chance(20)) o.memory_limit = random.odd();
  if (random.chance(20)) o.prune_share = 0.5;
  o.prune_steps = random.below(5);
  if (random.chance(10)) {
    o.replicas = kReplicas;
    o.replica_count = static_cast<std::uint32_t>(random.below(4));
  }
  o.cancel = some_token(random, 10);
  o.rank = random.mostly<std::uint32_t>(0, 95);
  o.rank_count = static_cast<std::uint32_t>(random.chance(95) ? 0 : random.below(2));
  if (random.chance(10)) o.learning_rate = -1;
  if (random.chance(10)) o.beta1 = 2;
}

void fill(Random& random, evn_loader_options& o) {
  static constexpr std::int64_t kDims[] = {4, 1};
  static const float kData[4096] = {};
  evn_loader_array arrays[2] = {};
  const bool produces = random.chance(30);
  arrays[0] = {random.chance(50) ? "x" : nullptr, kDims, produces ? nullptr : kData, EVN_DTYPE_FLOAT32,
               static_cast<std::uint32_t>(random.chance(90) ? 1 : random.below(3))};
  if (produces && random.chance(10)) arrays[0].dtype = static_cast<evn_dtype>(random.below(28));
  arrays[1] = {nullptr, nullptr, kData, EVN_DTYPE_FLOAT32, 0};
  o.arrays = static_cast<const evn_loader_array*>(guarded_copy(arrays, sizeof arrays));
  o.array_count = static_cast<std::uint32_t>(random.chance(95) ? 1 + random.below(2) : 0);
  o.sample_count = random.below(100);
  if (produces && random.chance(20)) {
    o.sample_count = random.odd();
    o.array_count = 1;
  }
  o.batch = random.mostly(static_cast<std::uint32_t>(random.below(20)));
  o.flags = random.mostly(static_cast<std::uint32_t>(random.below(8)));
  if (o.sample_count > 100) o.flags &= ~static_cast<std::uint32_t>(EVN_LOADER_SHUFFLE);
  o.prefetch = random.mostly(static_cast<std::uint32_t>(random.below(4)));
  o.rank = random.mostly<std::uint32_t>(0);
  o.rank_count = static_cast<std::uint32_t>(random.chance(90) ? 0 : random.below(5));
  if (produces || random.chance(20)) o.produce = make_samples;
  if (random.chance(10)) o.device = random.chance(70) ? "cpu" : text_argument(random, "device");
}

StatePairs::StatePairs(Random& random) {
  static constexpr const char* kOutputs[] = {"present", "h1", "c1", "y", "nobody", ""};
  static constexpr const char* kInputs[] = {"past", "h0", "c0", "x", "nobody", ""};
  for (evn_state_pair& p : pairs) {
    p = {};
    p.output = random.chance(3) ? nullptr : random.one_of(kOutputs);
    p.input = random.chance(3) ? nullptr : random.one_of(kInputs);
    p.capacity = random.mostly(static_cast<std::int64_t>(random.below(30)), 80);
  }
  count = static_cast<std::uint32_t>(random.below(9));
  const std::uint64_t way = random.below(5);
  if (way < 2) {
    pairs[0] = {"present", "past", static_cast<std::int64_t>(1 + random.below(20))};
    count = 1;
  } else if (way == 2) {
    pairs[0] = {"h1", "h0", 0};
    pairs[1] = {"c1", "c0", 0};
    count = 2;
  }
}

namespace {

// Inputs of a session as its graph declares them.
bool make_session_inputs(Random& random, evn_session session, evn_device device, evn_tensor* tensors) {
  std::uint32_t count = 0;
  if (evn_session_input_count(session, &count, nullptr) != EVN_OK) return false;
  for (std::uint32_t i = 0; i < count && i < kMostArguments; ++i) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    if (evn_session_get_input_info(session, i, &info, nullptr) != EVN_OK) return true;
    std::int64_t dims[EVN_MAX_RANK] = {};
    if (info.rank > EVN_MAX_RANK) info.rank = 1;
    for (std::uint32_t k = 0; k < info.rank; ++k)
      dims[k] = info.dims[k] >= 0 && info.dims[k] < 2000 ? info.dims[k] : static_cast<std::int64_t>(1 + random.below(4));
    const std::string name = info.name;
    if (random.chance(30) && (name == "past" || name == "h0" || name == "c0")) continue;  // given by a state
    if (evn_tensor_create(device, info.dtype, dims, info.rank, 0, &tensors[i], nullptr) != EVN_OK) continue;
    void* data = nullptr;
    std::size_t size = 0;
    if (info.dtype == EVN_DTYPE_INT64 && evn_tensor_map(tensors[i], EVN_MAP_WRITE, &data, &size, nullptr) == EVN_OK) {
      const std::int64_t number = random.mostly(static_cast<std::int64_t>(random.below(20)), 95);
      if (size >= sizeof number) std::memcpy(data, &number, sizeof number);
      evn_tensor_unmap(tensors[i], nullptr);
    }
    keep(random, tensors[i]);
  }
  return true;
}

}  // namespace

void fill_inputs(Random& random, evn_tensor* tensors, void* user, Kind kind) {
  if (user == nullptr || random.chance(25)) {
    for (std::size_t i = 0; i < kMostArguments; ++i) tensors[i] = random.chance(80) ? pick<evn_tensor>(random) : nullptr;
    return;
  }
  for (std::size_t i = 0; i < kMostArguments; ++i) tensors[i] = nullptr;
  evn_device device = nullptr;
  if (runtime_of_call() == nullptr || evn_runtime_device_at(runtime_of_call(), 0, &device, nullptr) != EVN_OK) return;
  if (kind != kind_evn_session || !make_session_inputs(random, static_cast<evn_session>(user), device, tensors)) {
    const std::int64_t dims[] = {static_cast<std::int64_t>(random.chance(80) ? 2 : 1 + random.below(4)), 4};
    if (evn_tensor_create(device, EVN_DTYPE_FLOAT32, dims, 2, 0, &tensors[0], nullptr) == EVN_OK) keep(random, tensors[0]);
  }
  evn_device_release(device);
}

void fill_inputs(Random& random, evn_value* values, void* user, Kind kind) {
  for (std::size_t i = 0; i < kMostArguments; ++i) values[i] = random.chance(95) ? pick<evn_value>(random) : nullptr;
  if (user == nullptr) return;
  evn_tensor tensors[kMostArguments];
  fill_inputs(random, tensors, user, kind);
  for (std::size_t i = 0; i < kMostArguments; ++i) {
    evn_value value = nullptr;
    if (tensors[i] == nullptr || evn_value_from_tensor(tensors[i], &value, nullptr) != EVN_OK) continue;
    values[i] = value;
    keep(random, value);
  }
}

std::uint32_t argument_count(Random& random, void* user, Kind kind, bool inputs) {
  std::uint32_t count = 0;
  evn_status status = EVN_ERROR_INVALID_HANDLE;
  if (kind == kind_evn_session && inputs) status = evn_session_input_count(static_cast<evn_session>(user), &count, nullptr);
  if (kind == kind_evn_session && !inputs) status = evn_session_output_count(static_cast<evn_session>(user), &count, nullptr);
  if (kind == kind_evn_quantizer) status = evn_quantizer_input_count(static_cast<evn_quantizer>(user), &count, nullptr);
  if (kind == kind_evn_trainer) status = evn_trainer_input_count(static_cast<evn_trainer>(user), &count, nullptr);
  if (status != EVN_OK || random.chance(12)) return static_cast<std::uint32_t>(random.below(kMostArguments));
  return count < kMostArguments ? count : kMostArguments - 1;
}

}  // namespace evn::fuzz
