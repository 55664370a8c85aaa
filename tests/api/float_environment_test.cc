// Floating-point environment of the host: results and statuses do not depend on the rounding mode, the traps and the treatment of
// subnormal numbers that a host has set for its thread; each is as it was after every call, and in force in each callback.
#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/dlpack.h"
#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/train.h"
#include "tests/api/operator_fixture.h"
#include "tests/api/state_fixture.h"

namespace evn::test {
namespace {

// State that a host can set: rounding, traps, and on x86 also the bits by which small numbers become 0.
struct Mode {
  const char* name;
  int rounding = FE_TONEAREST;
  int traps = 0;
  bool flushes = false;
};

constexpr Mode kModes[] = {{"upward", FE_UPWARD},
                           {"downward", FE_DOWNWARD},
                           {"towards zero", FE_TOWARDZERO},
                           {"trap invalid", FE_TONEAREST, FE_INVALID},
                           {"trap inexact", FE_TONEAREST, FE_INEXACT},
                           {"trap all", FE_UPWARD, FE_ALL_EXCEPT},
                           {"flush", FE_TONEAREST, 0, true}};

struct State {
  int rounding;
  int traps;
  int flags;
  unsigned int small_numbers;
  bool operator==(const State&) const = default;
};

State state_of_thread() {
  State s{fegetround(), fegetexcept(), fetestexcept(FE_ALL_EXCEPT), 0};
#if defined(__x86_64__)
  s.small_numbers = __builtin_ia32_stmxcsr() & 0x8040;
#endif
  return s;
}

// Sets a mode for the lifetime of the object.
class HostMode {
 public:
  explicit HostMode(const Mode& mode) {
    fegetenv(&before_);
    feclearexcept(FE_ALL_EXCEPT);
    fesetround(mode.rounding);
    feenableexcept(mode.traps);
#if defined(__x86_64__)
    if (mode.flushes) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
  }
  ~HostMode() { fesetenv(&before_); }

 private:
  fenv_t before_;
};

// What callbacks of the host compare with: the state that the test has set, or on threads of the library the default one.
struct Expected {
  State host{}, plain{};
  std::thread::id thread;
  std::atomic<int> calls{0}, wrong{0};

  void look() {
    ++calls;
    State now = state_of_thread();
    const State& want = std::this_thread::get_id() == thread ? host : plain;
    if (want == plain) now.flags = 0;  // of what the library has computed there
    if (now != want) ++wrong;
  }
};
Expected* g_expected;

void* allocate(void*, size_t size, size_t alignment) {
  g_expected->look();
  void* p = nullptr;
  return posix_memalign(&p, std::max<size_t>(alignment, sizeof(void*)), size) == 0 ? p : nullptr;
}
void release_memory(void*, void* memory, size_t) {
  g_expected->look();
  free(memory);
}
void log_line(void*, evn_log_level, const char*) { g_expected->look(); }
void run_tasks(void*, uint32_t count, evn_task task, void* context) {
  g_expected->look();
  for (uint32_t i = 0; i < count; ++i) task(context, i);
  g_expected->look();
}
// A thread begins with the floating-point environment of the one that made it.
evn_status post_task(void*, evn_task task, void* context) {
  std::thread([=] {
    fesetenv(FE_DFL_ENV);
    task(context, 0);
  }).detach();
  return EVN_OK;
}
void run_done(void*, evn_request) { g_expected->look(); }
void take_back(void*) { g_expected->look(); }
void delete_data(void*, void*) { g_expected->look(); }
int32_t progress(void*, const char*, uint64_t, uint64_t) {
  g_expected->look();
  return 0;
}

// Floats of 0.5 times the number of the sample, which is exact.
evn_status produce(void*, const uint64_t* samples, uint32_t count, void* const* buffers, uint32_t*, evn_error*) {
  g_expected->look();
  for (uint32_t i = 0; i < count; ++i) {
    const float value = 0.5f * static_cast<float>(samples[i]);
    for (uint32_t k = 0; k < 2; ++k) std::memcpy(static_cast<char*>(buffers[0]) + (2 * i + k) * sizeof value, &value, sizeof value);
  }
  return EVN_OK;
}

// Doubles finite numbers as whole numbers are, whatever the environment does to small ones.
template <typename Bits, int kMantissa>
void double_numbers(void* data, uint64_t count) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1), kLeastNormal = Bits{1} << kMantissa;
  for (uint64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<char*>(data) + i * sizeof bits, sizeof bits);
    const Bits size = bits & ~kSign;
    bits = (bits & kSign) | (size < kLeastNormal ? size << 1 : size + kLeastNormal);
    std::memcpy(static_cast<char*>(data) + i * sizeof bits, &bits, sizeof bits);
  }
}

// The sum over two ranks that have the same numbers.
evn_status sum_over_ranks(void*, void* data, uint64_t count, evn_dtype dtype, evn_error*) {
  g_expected->look();
  if (dtype == EVN_DTYPE_FLOAT32) {
    double_numbers<uint32_t, 23>(data, count);
  } else {
    double_numbers<uint64_t, 52>(data, count);
  }
  return EVN_OK;
}

// x [n, 3] -> Double (of the host) -> Div by a product that is folded when the model is loaded -> Exp -> y
std::string model_of_host_operator() {
  OnnxWriter w(17);
  w.import("mine", 2);
  w.add_input("x", kF32, {"n", 3}).add_output("y", kF32);
  w.add_initializer("a", {3}, std::vector<float>{0.1f, 0.3f, 0.7f})
      .add_initializer("b", {3}, std::vector<float>{0.9f, 1.1f, 1e-20f});
  w.add_node("Double", {"x"}, {"d"}, {}, "double_1", "mine").add_node("Mul", {"a", "b"}, {"k"});
  w.add_node("Div", {"d", "k"}, {"q"}).add_node("Exp", {"q"}, {"y"});
  return w.serialize();
}

// Models, made before a test sets an environment: their weights are computed.
const std::string& host_model() {
  static const std::string bytes = model_of_host_operator();
  return bytes;
}
const std::string& network() {
  static const std::string bytes = small_network().serialize();
  return bytes;
}
const std::string& decoder() {
  static const std::string bytes = state_test::decoder();
  return bytes;
}

// Calls the library in many ways, and returns the bytes of all results.
class Scenario {
 public:
  explicit Scenario(Expected& expected) : expected_(expected) {}

  std::string run() {
    behaviour_.infer = nullptr;
    behaviour_.run = [this](evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                            evn_error*) {
      expected_.look();
      std::memcpy(out[0].data, in[0].data, in[0].size_bytes);
      return EVN_OK;
    };
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    options.config_text = "version: 1\nlimits: {run_time: 1500ms}\ndevices: {cpu: {type: cpu, threads: 2, memory_limit: 64MiB}}\n";
    options.config_size = std::strlen(options.config_text);
    options.allocator = {&allocate, &release_memory, nullptr};
    options.log_callback = &log_line;
    options.log_level = EVN_LOG_DEBUG;
    options.parallel_for = &run_tasks;
    options.parallel_release = &take_back;
    options.post = &post_task;
    call([&](evn_error* e) { return evn_runtime_create(&options, &runtime_, e); });
    const evn_operator op = make_operator(&behaviour_);
    call([&](evn_error* e) { return evn_runtime_register_operator(runtime_, &op, e); });
    run_model(host_model(), {64, 3});
    run_model(network(), {16, 3, 8, 8});
    quantize(network(), {2, 3, 8, 8});
    share_by_dlpack();
    run_with_state();
    read_loader();
    train();
    call([&](evn_error*) { return evn_runtime_release(runtime_); });
    return results_;
  }

 private:
  void call(const std::function<evn_status(evn_error*)>& f) {
    evn_error error = EVN_ERROR_INIT;
    const State before = state_of_thread();
    const evn_status status = f(&error);
    const State after = state_of_thread();
    EXPECT_EQ(status, EVN_OK) << error.message;
    EXPECT_TRUE(before == after) << "the call changed the floating-point environment";
  }

  evn_tensor tensor(const std::vector<int64_t>& dims) {
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    data_.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < data_.back().size(); ++i)
      data_.back()[i] = static_cast<float>(static_cast<int>(i % 37) - 18) * 0x1p-5f;  // exact in each rounding mode
    if (data_.back().size() > 8) data_.back()[7] = 1e-40f;
    evn_tensor t = nullptr;
    call([&](evn_error* e) {
      return evn_tensor_wrap(runtime_, data_.back().data(), data_.back().size() * 4, EVN_DTYPE_FLOAT32, dims.data(),
                             static_cast<uint32_t>(dims.size()), &delete_data, nullptr, &t, e);
    });
    return t;
  }

  void read(evn_tensor t) {
    void* data = nullptr;
    size_t size = 0;
    call([&](evn_error* e) { return evn_tensor_map(t, EVN_MAP_READ, &data, &size, e); });
    results_.append(static_cast<const char*>(data), size);
    call([&](evn_error* e) { return evn_tensor_unmap(t, e); });
  }
  void keep(evn_tensor t) {
    read(t);
    call([&](evn_error*) { return evn_tensor_release(t); });
  }

  void run_session(evn_model model, const std::vector<int64_t>& dims) {
    evn_session session = nullptr;
    call([&](evn_error* e) { return evn_session_create(runtime_, model, nullptr, &session, e); });
    evn_tensor x = tensor(dims), y = nullptr;
    call([&](evn_error* e) { return evn_session_run(session, &x, 1, &y, 1, nullptr, e); });
    keep(y);
    evn_request request = nullptr;
    evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
    submit.done = &run_done;
    submit.release = &take_back;
    call([&](evn_error* e) { return evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &submit, &request, e); });
    call([&](evn_error* e) {
      bool ended = false;
      return evn_request_wait(request, UINT64_MAX, &ended, e);
    });
    y = nullptr;
    call([&](evn_error* e) { return evn_request_take(request, &y, 1, e); });
    keep(y);
    call([&](evn_error*) { return evn_request_release(request); });
    call([&](evn_error*) { return evn_tensor_release(x); });
    call([&](evn_error*) { return evn_session_release(session); });
  }

  void run_model(const std::string& bytes, const std::vector<int64_t>& dims) {
    evn_model model = nullptr;
    call([&](evn_error* e) { return evn_model_load_buffer(runtime_, bytes.data(), bytes.size(), nullptr, &model, e); });
    run_session(model, dims);
    call([&](evn_error*) { return evn_model_release(model); });
  }

  void quantize(const std::string& bytes, const std::vector<int64_t>& dims) {
    evn_quantizer_options options = EVN_QUANTIZER_OPTIONS_INIT;
    options.data = bytes.data();
    options.size = bytes.size();
    options.progress = &progress;
    evn_quantizer quantizer = nullptr;
    call([&](evn_error* e) { return evn_quantizer_create(runtime_, nullptr, &options, &quantizer, e); });
    const evn_tensor x = tensor(dims);
    call([&](evn_error* e) { return evn_quantizer_add_batch(quantizer, &x, 1, e); });
    evn_model model = nullptr;
    call([&](evn_error* e) { return evn_quantizer_finish(quantizer, &model, e); });
    run_session(model, dims);
    call([&](evn_error*) { return evn_tensor_release(x); });
    call([&](evn_error*) { return evn_model_release(model); });
    call([&](evn_error*) { return evn_quantizer_release(quantizer); });
  }

  void share_by_dlpack() {
    const evn_tensor x = tensor({3, 5});
    evn_tensor y = nullptr;
    void* managed = nullptr;
    call([&](evn_error* e) { return evn_tensor_to_dlpack(x, 0, &managed, e); });
    call([&](evn_error* e) { return evn_tensor_from_dlpack(runtime_, managed, 0, &y, e); });
    call([&](evn_error*) { return evn_tensor_release(x); });
    keep(y);
    // Memory of another library, whose deleter is a callback of the host.
    float numbers[4] = {1, 0.5f, -2, 3};
    int64_t shape[1] = {4};
    dlpack::Managed foreign = {};
    foreign.view = {numbers, dlpack::kCpu, 0, 1, {dlpack::kFloat, 32, 1}, shape, nullptr, 0};
    foreign.deleter = [](dlpack::Managed*) { g_expected->look(); };
    call([&](evn_error* e) { return evn_tensor_from_dlpack(runtime_, &foreign, EVN_DLPACK_LEGACY, &y, e); });
    keep(y);
  }

  // Pages of 8 bits are rounded when they are written.
  void run_with_state() {
    evn_model model = nullptr;
    evn_session session = nullptr;
    evn_state state = nullptr, copy = nullptr;
    call([&](evn_error* e) { return evn_model_load_buffer(runtime_, decoder().data(), decoder().size(), nullptr, &model, e); });
    call([&](evn_error* e) { return evn_session_create(runtime_, model, nullptr, &session, e); });
    const int64_t h[] = {1, 4};
    const evn_input_shape dims[] = {{"h", h, 2, 0}};
    evn_state_options options = EVN_STATE_OPTIONS_INIT;
    options.flags = EVN_STATE_INT8;
    options.dims = dims;
    options.dim_count = 1;
    call([&](evn_error* e) { return evn_state_create(session, state_test::StateTest::pairs(), 3, &options, &state, e); });
    evn_run_options run = EVN_RUN_OPTIONS_INIT;
    run.state = state;
    for (int i = 0; i < 2; ++i) {
      const std::vector<int64_t> rows = {1, state_test::kHeads, 2, state_test::kDepth};
      evn_tensor in[5] = {tensor(rows), tensor(rows)}, out[5] = {};
      call([&](evn_error* e) { return evn_session_run(session, in, 5, out, 5, &run, e); });
      keep(out[0]);
      keep(out[4]);
      for (int k = 0; k < 2; ++k) call([&](evn_error*) { return evn_tensor_release(in[k]); });
    }
    call([&](evn_error* e) { return evn_state_fork(state, &copy, e); });
    size_t size = 0;
    call([&](evn_error* e) { return evn_state_save(copy, nullptr, 0, &size, e); });
    std::string saved(size, '\0');
    call([&](evn_error* e) { return evn_state_save(copy, saved.data(), saved.size(), &size, e); });
    results_ += saved;
    call([&](evn_error* e) { return evn_state_truncate(state, 1, e); });
    call([&](evn_error* e) { return evn_state_restore(state, saved.data(), saved.size(), e); });
    int64_t positions = 0;
    call([&](evn_error* e) { return evn_state_length(state, 0, &positions, e); });
    EXPECT_EQ(positions, 4);
    call([&](evn_error* e) { return evn_state_describe(state, EVN_FORMAT_JSON, nullptr, 0, &size, e); });
    call([&](evn_error* e) { return evn_state_reset(state, e); });
    for (const evn_state s : {state, copy}) call([&](evn_error*) { return evn_state_release(s); });
    call([&](evn_error*) { return evn_session_release(session); });
    call([&](evn_error*) { return evn_model_release(model); });
  }

  void read_loader() {
    constexpr int64_t kDims[] = {2};
    const std::vector<int64_t> labels = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const evn_loader_array arrays[] = {{"x", kDims, nullptr, EVN_DTYPE_FLOAT32, 1},
                                       {"labels", nullptr, labels.data(), EVN_DTYPE_INT64, 0}};
    evn_loader_options options = EVN_LOADER_OPTIONS_INIT;
    options.arrays = arrays;
    options.array_count = 2;
    options.sample_count = labels.size();
    options.batch = 4;
    options.flags = EVN_LOADER_SHUFFLE;
    options.produce = &produce;
    options.produce_release = &take_back;
    evn_loader loader = nullptr;
    call([&](evn_error* e) { return evn_loader_create(runtime_, &options, &loader, e); });
    uint64_t batches = 0;
    call([&](evn_error* e) { return evn_loader_batch_count(loader, &batches, e); });
    EXPECT_EQ(batches, 3u);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      call([&](evn_error* e) { return evn_loader_start_epoch(loader, epoch, 0, e); });
      for (uint64_t i = 0; i < batches; ++i) {
        evn_tensor tensors[2] = {};
        uint32_t samples = 0;
        call([&](evn_error* e) { return evn_loader_next(loader, tensors, 2, &samples, e); });
        EXPECT_EQ(samples, i < 2 ? 4u : 2u);
        for (const evn_tensor t : tensors) read(t);
      }
    }
    call([&](evn_error*) { return evn_loader_release(loader); });
  }

  void train() {
    evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;
    options.data = network().data();
    options.size = network().size();
    options.rank_count = 2;
    options.reduce = &sum_over_ranks;
    evn_trainer trainer = nullptr;
    call([&](evn_error* e) { return evn_trainer_create(runtime_, nullptr, &options, &trainer, e); });
    int64_t classes[4] = {1, 3, 5, 9};
    const int64_t count[1] = {4};
    evn_tensor labels = nullptr;
    call([&](evn_error* e) {
      return evn_tensor_wrap(runtime_, classes, sizeof classes, EVN_DTYPE_INT64, count, 1, &delete_data, nullptr, &labels, e);
    });
    const evn_tensor x = tensor({4, 3, 8, 8});
    for (int i = 0; i < 3; ++i) {
      evn_step_info info = EVN_STEP_INFO_INIT;
      call([&](evn_error* e) { return evn_trainer_step(trainer, &x, 1, labels, &info, e); });
      EXPECT_EQ(info.skipped, 0u);
      results_.append(reinterpret_cast<const char*>(&info.loss), sizeof info.loss);
    }
    evn_evaluation evaluation = EVN_EVALUATION_INIT;
    call([&](evn_error* e) { return evn_trainer_evaluate(trainer, &x, 1, labels, &evaluation, e); });
    results_.append(reinterpret_cast<const char*>(&evaluation.loss), sizeof evaluation.loss);
    uint32_t parameters = 0;
    call([&](evn_error* e) { return evn_trainer_parameter_count(trainer, &parameters, e); });
    for (uint32_t i = 0; i < parameters; ++i) {
      evn_tensor t = nullptr;
      call([&](evn_error* e) { return evn_trainer_get_parameter(trainer, i, EVN_PARAMETER_VALUE, &t, e); });
      keep(t);
    }
    size_t size = 0;
    call([&](evn_error* e) { return evn_trainer_describe(trainer, EVN_FORMAT_TEXT, nullptr, 0, &size, e); });
    call([&](evn_error* e) { return evn_trainer_note_metric(trainer, 0.5, e); });
    call([&](evn_error* e) { return evn_trainer_set_learning_rate(trainer, 0.25, e); });
    evn_model model = nullptr;
    call([&](evn_error* e) { return evn_trainer_finish(trainer, &model, e); });
    run_session(model, {2, 3, 8, 8});
    call([&](evn_error*) { return evn_model_release(model); });
    call([&](evn_error*) { return evn_trainer_release(trainer); });
    for (const evn_tensor t : {x, labels}) call([&](evn_error*) { return evn_tensor_release(t); });
  }

  Expected& expected_;
  Behaviour behaviour_;
  evn_runtime runtime_ = nullptr;
  std::list<std::vector<float>> data_;
  std::string results_;
};

std::string results_in(const Mode* mode) {
  Expected expected;
  expected.plain = state_of_thread();
  expected.plain.flags = 0;
  expected.thread = std::this_thread::get_id();
  g_expected = &expected;
  std::string results;
  {
    feclearexcept(FE_ALL_EXCEPT);
    std::optional<HostMode> host;
    if (mode != nullptr) host.emplace(*mode);
    expected.host = state_of_thread();
    results = Scenario(expected).run();
  }
  EXPECT_GT(expected.calls, 20);
  EXPECT_EQ(expected.wrong, 0) << "of " << expected.calls << " callbacks";
  return results;
}

TEST(FloatEnvironment, OfTheHostChangesNoResultAndIsInForceInCallbacks) {
  const std::string want = results_in(nullptr);
  ASSERT_FALSE(want.empty());
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.name);
    EXPECT_TRUE(results_in(&mode) == want);
  }
}

std::vector<std::pair<evn_task, void*>> g_posted;

// Three requests wait before the first task of the host runs, which joins them.
TEST(FloatEnvironment, IsInForceInCallbacksOfRequestsThatATaskOfTheHostJoins) {
  g_posted.clear();
  evn_error error = EVN_ERROR_INIT;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 1;
  options.post = [](void*, evn_task task, void* context) -> evn_status {
    g_posted.emplace_back(task, context);
    return EVN_OK;
  };
  evn_batching_options batching = EVN_BATCHING_OPTIONS_INIT;
  batching.max_batch = 8;
  evn_session_options session_options = EVN_SESSION_OPTIONS_INIT;
  session_options.batching = &batching;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor x = nullptr;
  std::vector<float> in(3 * 8 * 8, 0.5f);
  const int64_t dims[] = {1, 3, 8, 8};
  ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  ASSERT_OK(evn_model_load_buffer(runtime, network().data(), network().size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, &session_options, &session, &error));
  ASSERT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error));
  std::vector<int> roundings;
  evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
  submit.user = &roundings;
  submit.done = [](void* user, evn_request) { static_cast<std::vector<int>*>(user)->push_back(fegetround()); };
  for (int i = 0; i < 3; ++i) EXPECT_OK(evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &submit, nullptr, &error));
  for (std::size_t i = 0; i < g_posted.size(); ++i) {
    const HostMode mode(kModes[0]);
    g_posted[i].first(g_posted[i].second, 0);
  }
  EXPECT_EQ(roundings, std::vector<int>(3, FE_UPWARD));
  evn_tensor_release(x);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
}

// Producer of samples that runs a session in a mode of its own.
struct RunningProducer {
  const Mode& mode;
  evn_session session;
  evn_tensor x, y;
  State before{}, after{};

  static evn_status produce(void* context, const uint64_t*, uint32_t, void* const* buffers, uint32_t*, evn_error* error) {
    auto& self = *static_cast<RunningProducer*>(context);
    const HostMode host(self.mode);
    self.before = state_of_thread();
    const evn_status status = evn_session_run(self.session, &self.x, 1, &self.y, 1, nullptr, error);
    self.after = state_of_thread();
    std::memset(buffers[0], 0, sizeof(float));
    return status;
  }
};

TEST(FloatEnvironment, OfAProducerOfSamplesChangesNoResultOfASessionThatItRuns) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 1;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor x = nullptr, y = nullptr;
  std::vector<float> in(3 * 8 * 8), out(10);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = 0.1f * static_cast<float>(i % 37);
  const int64_t in_dims[] = {1, 3, 8, 8}, out_dims[] = {1, 10};
  ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  ASSERT_OK(evn_model_load_buffer(runtime, network().data(), network().size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  ASSERT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, in_dims, 4, nullptr, nullptr, &x, &error));
  ASSERT_OK(evn_tensor_wrap(runtime, out.data(), out.size() * 4, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &y, &error));
  ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  const std::vector<float> want = out;
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.name);
    std::fill(out.begin(), out.end(), 0.0f);
    RunningProducer producer{mode, session, x, y};
    const evn_loader_array array = {"x", nullptr, nullptr, EVN_DTYPE_FLOAT32, 0};
    evn_loader_options of_loader = EVN_LOADER_OPTIONS_INIT;
    of_loader.arrays = &array;
    of_loader.array_count = of_loader.batch = 1;
    of_loader.sample_count = 1;
    of_loader.produce = &RunningProducer::produce;
    of_loader.produce_context = &producer;
    evn_loader loader = nullptr;
    evn_tensor batch = nullptr;
    uint32_t samples = 0;
    ASSERT_OK(evn_loader_create(runtime, &of_loader, &loader, &error));
    EXPECT_OK(evn_loader_next(loader, &batch, 1, &samples, &error));
    EXPECT_EQ(evn_loader_release(loader), EVN_OK);
    EXPECT_EQ(out, want);
    EXPECT_TRUE(producer.before == producer.after) << "the run changed the floating-point environment";
  }
  evn_tensor_release(x);
  evn_tensor_release(y);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
}

}  // namespace
}  // namespace evn::test
