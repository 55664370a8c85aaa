// Random sequences of calls of the C API with good, stale, foreign and random arguments. Every call gives a documented status and
// never EVN_ERROR_INTERNAL; what fails changes no output; handles that are live can be released exactly once; the device's ledger
// is back where it was after each sequence. A failing sequence is named by its seed.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "tests/api/support.h"
#include "tests/support/sanitized.h"

namespace evn::test {
namespace {

constexpr std::uint64_t kSeed = 20250101;

constexpr std::size_t kFull = kIsSanitized ? 100'000 : 1'000'000;  // sanitizers are some 15 times slower

std::size_t sequences() {
  const char* full = std::getenv("EVN_TEST_FULL");
  return full != nullptr && std::strcmp(full, "1") == 0 ? kFull : 10'000;
}

// What all sequences of a thread share: a runtime, so that not every one makes threads and pools anew.
struct World {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  std::string good = small_network().serialize();

  World() {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    options.cpu_memory_limit_bytes = 1 << 20;
    EXPECT_EQ(evn_runtime_create(&options, &runtime, nullptr), EVN_OK);
    EXPECT_EQ(evn_runtime_device_at(runtime, 0, &cpu, nullptr), EVN_OK);
  }
  ~World() {
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
};

// Live handles of one kind, and some that were released.
template <typename Handle>
struct Shelf {
  std::vector<Handle> live;
  std::vector<Handle> stale;
};

class Sequence {
 public:
  Sequence(World& world, std::uint64_t seed) : world_(world), random_(seed) {}

  void play() {
    const int calls = 4 + static_cast<int>(below(28));
    for (int i = 0; i < calls && ok_; ++i) one_call();
    release_all(tensors_, evn_tensor_release);
    release_all(sessions_, evn_session_release);
    release_all(models_, evn_model_release);
    release_all(devices_, evn_device_release);
    release_all(runtimes_, evn_runtime_release);
    release_all(cancels_, evn_cancel_release);
  }
  bool ok() const { return ok_; }
  int runs() const { return runs_; }  // that succeeded
  const std::string& what() const { return what_; }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

  void expect(bool condition, const char* call, evn_status status) {
    if (condition || !ok_) return;
    ok_ = false;
    what_ = std::string(call) + " gave " + evn_status_name(status) + ": " + error_.message;
  }
  void check(const char* call, evn_status status) {
    expect(status >= EVN_OK && status < EVN_ERROR_INTERNAL, call, status);
    expect(std::memchr(error_.message, 0, sizeof error_.message) != nullptr, call, status);
    expect(status == EVN_OK || error_null_ || error_.status == status, call, status);
  }
  // The error argument: mostly there.
  evn_error* error() {
    error_ = EVN_ERROR_INIT;
    error_null_ = chance(10);
    return error_null_ ? nullptr : &error_;
  }

  // Not one of the handles that all sequences share, which must stay.
  template <typename Handle>
  Handle random_handle() {
    while (true) {
      auto* const h = reinterpret_cast<void*>(random_() & (chance(50) ? ~0ull : 0xff000000ffull));
      if (h != static_cast<void*>(world_.cpu) && h != static_cast<void*>(world_.runtime)) return static_cast<Handle>(h);
    }
  }
  // A handle: mostly a live one of the right kind, else NULL, stale, random or of another kind.
  template <typename Handle>
  Handle pick(Shelf<Handle>& shelf) {
    const std::uint64_t way = below(100);
    if (way < 84 && !shelf.live.empty()) return shelf.live[below(shelf.live.size())];
    if (way < 88 && !shelf.stale.empty()) return shelf.stale[below(shelf.stale.size())];
    if (way < 92) return nullptr;
    if (way < 96) return random_handle<Handle>();
    if constexpr (std::is_same_v<Handle, evn_device>) return reinterpret_cast<Handle>(world_.runtime);
    return reinterpret_cast<Handle>(world_.cpu);
  }
  evn_runtime runtime() { return chance(70) ? world_.runtime : pick(runtimes_); }
  evn_device device() { return chance(60) ? world_.cpu : pick(devices_); }

  // Takes what a creating call gave (a reference: the call may stand in the same argument list); one that failed left the sentinel.
  template <typename Handle>
  void took(Shelf<Handle>& shelf, const char* call, evn_status status, const Handle& got) {
    check(call, status);
    const Handle sentinel = reinterpret_cast<Handle>(kSentinel);
    expect((status == EVN_OK) == (got != sentinel && got != nullptr), call, status);
    if (status == EVN_OK && got != sentinel) shelf.live.push_back(got);
  }
  template <typename Handle>
  static Handle sentinel() {
    return reinterpret_cast<Handle>(kSentinel);
  }
  template <typename Handle>
  void release_one(Shelf<Handle>& shelf, evn_status (*release)(Handle)) {
    const Handle h = pick(shelf);
    const auto it = std::find(shelf.live.begin(), shelf.live.end(), h);
    const bool live = it != shelf.live.end();
    const evn_status status = release(h);
    expect(status == (h == nullptr || live ? EVN_OK : EVN_ERROR_INVALID_HANDLE), "a release", status);
    if (!live) return;
    shelf.stale.push_back(h);
    shelf.live.erase(it);
  }
  template <typename Handle>
  void release_all(Shelf<Handle>& shelf, evn_status (*release)(Handle)) {
    for (Handle h : shelf.live) {
      const evn_status status = release(h);
      expect(status == EVN_OK, "the last release", status);
    }
    shelf.live.clear();
  }

  // Dimensions that mostly fit the model; sometimes negative, huge or of another rank.
  std::uint32_t dims(std::array<std::int64_t, 10>* d) {
    *d = {static_cast<std::int64_t>(1 + below(3)), 3, 8, 8, 1, 1, 1, 1, 1, 1};
    if (chance(75)) return 4;
    if (chance(30)) (*d)[below(4)] = std::array<std::int64_t, 5>{-1, 0, INT64_MAX, INT64_MIN, 1 << 20}[below(5)];
    if (chance(30)) *d = {static_cast<std::int64_t>(1 + below(3)), 10};
    return static_cast<std::uint32_t>(below(11));
  }
  evn_dtype dtype() { return chance(85) ? EVN_DTYPE_FLOAT32 : static_cast<evn_dtype>(below(20)) - 1; }

  void one_call() {
    static constexpr void (Sequence::*kCalls[])() = {&Sequence::runtime_create, &Sequence::find_device,   &Sequence::ask_device,
                                                     &Sequence::tensor_create,  &Sequence::tensor_create, &Sequence::tensor_wrap,
                                                     &Sequence::tensor_wrap,    &Sequence::tensor_map,    &Sequence::tensor_copy,
                                                     &Sequence::model_load,     &Sequence::ask_model,     &Sequence::session_create,
                                                     &Sequence::session_run,    &Sequence::session_run,   &Sequence::session_run,
                                                     &Sequence::ask_session,    &Sequence::release_any,   &Sequence::release_any};
    (this->*kCalls[below(std::size(kCalls))])();
  }

  void runtime_create() {
    if (!chance(30)) return;
    struct {
      evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
      std::uint64_t tail[32] = {};  // for sizes of later versions
    } room;
    evn_runtime_options& o = room.options;
    o.cache_dir = "";
    o.thread_count = static_cast<std::int32_t>(below(4)) - (chance(5) ? 10 : 0);
    static constexpr const char* kTexts[] = {"", "devices: {cpu: {type: cpu, threads: 1}}", "devices: {cpu: {threads: 0}}", "[",
                                             "limits: {nodes: 3}"};
    const char* text = kTexts[below(std::size(kTexts))];
    if (chance(40)) {
      o.config_text = text;
      o.config_size = std::strlen(text);
    }
    if (chance(5)) o.struct_size = static_cast<std::uint32_t>(below(sizeof room));
    if (chance(5)) o.log_level = 99;
    evn_runtime r = sentinel<evn_runtime>();
    took(runtimes_, "evn_runtime_create", evn_runtime_create(chance(10) ? nullptr : &o, &r, error()), r);
  }
  void find_device() {
    evn_device d = sentinel<evn_device>();
    evn_error* e = error();
    if (chance(50)) {
      took(devices_, "evn_runtime_device_at", evn_runtime_device_at(runtime(), static_cast<std::uint32_t>(below(3)), &d, e), d);
    } else {
      static constexpr const char* kNames[] = {"cpu", "cpu:0", "cpu", "cpu:0"};
      took(devices_, "evn_runtime_device_find", evn_runtime_device_find(runtime(), kNames[below(4)], &d, e), d);
    }
  }
  void ask_device() {
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    if (chance(5)) info.struct_size = static_cast<std::uint32_t>(below(400));
    check("evn_device_get_info", evn_device_get_info(device(), &info, error()));
    check("evn_device_get_memory_stats", evn_device_get_memory_stats(device(), &stats, error()));
    if (chance(30)) check("evn_device_trim_memory", evn_device_trim_memory(device(), error()));
    if (chance(30)) check("evn_device_reset_memory_peak", evn_device_reset_memory_peak(device(), error()));
    std::uint32_t count = 0;
    check("evn_runtime_device_count", evn_runtime_device_count(runtime(), &count, error()));
  }
  void tensor_create() {
    std::array<std::int64_t, 10> d;
    const std::uint32_t rank = dims(&d);
    evn_tensor t = sentinel<evn_tensor>();
    const std::uint32_t flags = chance(90) ? 0 : static_cast<std::uint32_t>(below(4));
    took(tensors_, "evn_tensor_create", evn_tensor_create(device(), dtype(), d.data(), rank, flags, &t, error()), t);
  }
  void tensor_wrap() {
    std::array<std::int64_t, 10> d;
    const std::uint32_t rank = dims(&d);
    std::size_t size = 4;
    for (std::uint32_t i = 0; i < std::min(rank, 8u); ++i) size *= static_cast<std::size_t>(d[i]);
    if (chance(10)) size = random_();
    const std::size_t at = below(4096) & (chance(20) ? ~std::size_t{0} : ~std::size_t{3});
    // A size that does not fit the memory is refused because it does not fit dtype and dims.
    if (at + size > memory_.size() || size > memory_.size()) size = 5;
    evn_tensor t = sentinel<evn_tensor>();
    took(tensors_, "evn_tensor_wrap",
         evn_tensor_wrap(runtime(), memory_.data() + at, size, EVN_DTYPE_FLOAT32, d.data(), rank, nullptr, nullptr, &t, error()),
         t);
  }
  void tensor_map() {
    evn_tensor t = pick(tensors_);
    void* data = memory_.data();
    std::size_t size = 1;
    const evn_status status = evn_tensor_map(t, static_cast<std::uint32_t>(below(chance(90) ? 4 : 99)), &data, &size, error());
    check("evn_tensor_map", status);
    expect(status == EVN_OK || (data == memory_.data() && size == 1), "evn_tensor_map", status);
    if (status == EVN_OK && size > 0) std::memset(data, 0x3c, size);
    if (chance(85)) check("evn_tensor_unmap", evn_tensor_unmap(t, error()));
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    check("evn_tensor_get_info", evn_tensor_get_info(pick(tensors_), &info, error()));
  }
  void tensor_copy() {
    if (chance(50)) {
      check("evn_tensor_copy", evn_tensor_copy(pick(tensors_), pick(tensors_), error()));
      return;
    }
    evn_tensor t = sentinel<evn_tensor>();
    const evn_status status = evn_tensor_copy_to(pick(tensors_), device(), &t, error());
    took(tensors_, "evn_tensor_copy_to", status, t);
  }
  void model_load() {
    std::string bytes = world_.good;
    if (chance(30)) bytes.resize(below(bytes.size()));
    if (chance(30) && !bytes.empty()) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
    evn_model m = sentinel<evn_model>();
    evn_error* e = error();
    const evn_status status = chance(3) ? evn_model_load_file(runtime(), "/nonexistent/model.onnx", nullptr, &m, e)
                                        : evn_model_load_buffer(runtime(), bytes.data(), bytes.size(), nullptr, &m, e);
    took(models_, "evn_model_load", status, m);
  }
  // Text in two calls, the second sometimes with too little room.
  template <typename Call>
  void ask_text(const char* name, Call call) {
    std::size_t size = 0;
    const evn_status status = call(nullptr, std::size_t{0}, &size);
    check(name, status);
    if (status != EVN_OK) return;
    std::vector<char> text(chance(20) ? below(size + 1) : size);
    check(name, call(text.data(), text.size(), &size));
  }
  void ask_model() {
    const evn_model m = pick(models_);
    const evn_format format = static_cast<evn_format>(below(3));
    ask_text("evn_describe_passes",
             [&](char* b, std::size_t c, std::size_t* s) { return evn_describe_passes(format, b, c, s, error()); });
    ask_text("evn_model_describe",
             [&](char* b, std::size_t c, std::size_t* s) { return evn_model_describe(m, format, b, c, s, error()); });
    const char* key = chance(70) ? "author" : "nobody";
    ask_text("evn_model_get_metadata",
             [&](char* b, std::size_t c, std::size_t* s) { return evn_model_get_metadata(m, key, b, c, s, error()); });
  }
  void session_create() {
    evn_session s = sentinel<evn_session>();
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    if (chance(20)) o.device = "cpu";
    took(sessions_, "evn_session_create", evn_session_create(runtime(), pick(models_), chance(50) ? nullptr : &o, &s, error()), s);
  }
  void session_run() {
    evn_tensor in[3] = {pick(tensors_), pick(tensors_), nullptr};
    evn_tensor out[3] = {chance(60) ? nullptr : pick(tensors_), nullptr, nullptr};
    const evn_tensor given = out[0];
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    if (chance(20)) o.allow_copies = static_cast<std::uint32_t>(below(3));
    if (chance(10)) o.timeout_ns = random_() >> below(64);
    if (chance(10)) o.deadline_ns = random_() >> below(64);
    if (chance(20)) o.cancel = a_token();
    const std::uint32_t inputs = chance(90) ? 1 : static_cast<std::uint32_t>(below(4));
    const std::uint32_t outputs = chance(90) ? 1 : static_cast<std::uint32_t>(below(4));
    const evn_status status = evn_session_run(pick(sessions_), in, inputs, out, outputs, chance(50) ? nullptr : &o, error());
    check("evn_session_run", status);
    expect(status == EVN_OK ? out[0] != nullptr && (given == nullptr || out[0] == given) : out[0] == given, "evn_session_run",
           status);
    if (status == EVN_OK && given == nullptr) tensors_.live.push_back(out[0]);
    runs_ += status == EVN_OK;
  }
  // A token, live or not, some of which have been requested.
  evn_cancel a_token() {
    evn_cancel c = sentinel<evn_cancel>();
    if (chance(50)) took(cancels_, "evn_cancel_create", evn_cancel_create(&c, error()), c);
    c = pick(cancels_);
    if (chance(30)) {
      const evn_status status = evn_cancel_request(c);
      expect(status == EVN_OK || status == EVN_ERROR_INVALID_HANDLE, "evn_cancel_request", status);
    }
    return c;
  }
  void ask_session() {
    const evn_session s = pick(sessions_);
    std::uint32_t n = 0;
    evn_value_info info = EVN_VALUE_INFO_INIT;
    const auto index = static_cast<std::uint32_t>(below(3));
    check("evn_session_input_count", evn_session_input_count(s, &n, error()));
    check("evn_session_output_count", evn_session_output_count(s, &n, error()));
    check("evn_session_get_input_info", evn_session_get_input_info(s, index, &info, error()));
    check("evn_session_get_output_info", evn_session_get_output_info(s, index, &info, error()));
    check("evn_session_find_input", evn_session_find_input(s, chance(50) ? "x" : "?", &n, error()));
    check("evn_session_find_output", evn_session_find_output(s, chance(50) ? "y" : "?", &n, error()));
    const evn_format format = static_cast<evn_format>(below(3));
    if (chance(30))
      ask_text("evn_session_explain",
               [&](char* b, std::size_t c, std::size_t* z) { return evn_session_explain(s, format, b, c, z, error()); });
  }
  void release_any() {
    switch (below(7)) {
      case 0: return release_one(runtimes_, evn_runtime_release);
      case 1: return release_one(devices_, evn_device_release);
      case 2: return release_one(models_, evn_model_release);
      case 3: return release_one(sessions_, evn_session_release);
      case 4: return release_one(cancels_, evn_cancel_release);
      default: return release_one(tensors_, evn_tensor_release);
    }
  }

  static constexpr std::uintptr_t kSentinel = 0x5e5e5e5e5e5e5e5e;

  World& world_;
  std::mt19937_64 random_;
  Shelf<evn_runtime> runtimes_;
  Shelf<evn_device> devices_;
  Shelf<evn_tensor> tensors_;
  Shelf<evn_model> models_;
  Shelf<evn_session> sessions_;
  Shelf<evn_cancel> cancels_;
  std::vector<unsigned char> memory_ = std::vector<unsigned char>(16384);
  evn_error error_ = EVN_ERROR_INIT;
  bool error_null_ = false;
  bool ok_ = true;
  std::string what_;
  int runs_ = 0;
};

// Without the heap of the runtime.
std::uint64_t bytes_in_use(const World& world) {
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  EXPECT_EQ(evn_device_get_memory_stats(world.cpu, &stats, nullptr), EVN_OK);
  return stats.current - stats.by_class[EVN_MEMORY_HEAP];
}

TEST(CallSequence, RandomCallsGiveAStatusAndLeaveNothingBehind) {
  World world;
  std::int64_t runs = 0;
  const std::size_t count = sequences();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence s(world, kSeed + i);
    s.play();
    ASSERT_TRUE(s.ok()) << "seed " << kSeed + i << ": " << s.what();
    ASSERT_EQ(bytes_in_use(world), 0u) << "seed " << kSeed + i;
    runs += s.runs();
  }
  EXPECT_GT(runs, static_cast<std::int64_t>(count / 100));  // it gets as far as running
}

TEST(CallSequence, ThreadsThatShareARuntimeDoNotDisturbEachOther) {
  World world;
  std::atomic<std::uint64_t> failed{0};
  const auto body = [&](std::uint64_t first) {
    for (std::uint64_t i = 0; i < sequences() / 20; ++i) {
      Sequence s(world, first + i);
      s.play();
      if (!s.ok()) failed = first + i;
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 4; ++t) threads.emplace_back(body, kSeed + t * 10'000'000);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 0u) << "seed " << failed;
  EXPECT_EQ(bytes_in_use(world), 0u);
}

}  // namespace
}  // namespace evn::test
