// Row E01 of the list of hostile cases: in a use of every function of the C API, allocation number k fails, once or from then on,
// for each k. The call that met it says EVN_ERROR_OUT_OF_MEMORY and changes nothing; repeated on the same objects it succeeds, the
// results have the same bits, and in the end every block has been given back.
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "base/fault.h"
#include "tests/api/support.h"
#include "tests/support/turn.h"

// The linker sends the library's allocations through here (--wrap).
static std::atomic<std::int64_t> g_live{0};
extern "C" {
void* __real__ZN3evn14allocate_bytesEmm(std::size_t size, std::size_t alignment) noexcept;
void __real__ZN3evn10free_bytesEPv(void* p) noexcept;
void* __wrap__ZN3evn14allocate_bytesEmm(std::size_t size, std::size_t alignment) noexcept;
void __wrap__ZN3evn10free_bytesEPv(void* p) noexcept;

void* __wrap__ZN3evn14allocate_bytesEmm(std::size_t size, std::size_t alignment) noexcept {
  void* p = __real__ZN3evn14allocate_bytesEmm(size, alignment);
  g_live += p != nullptr;
  return p;
}
void __wrap__ZN3evn10free_bytesEPv(void* p) noexcept {
  g_live -= p != nullptr;
  __real__ZN3evn10free_bytesEPv(p);
}
}

namespace evn::test::functions_test {
namespace {

// Functions that have no part in the use below, because they came later: their own tests fail their allocations.
const std::set<std::string> kElsewhere = {"evn_abi_layout",
                                          "evn_batching_options_init",
                                          "evn_calibrate_options_init",
                                          "evn_device_condition",
                                          "evn_device_record_event",
                                          "evn_device_set_cache_policy",
                                          "evn_device_set_memory_limit",
                                          "evn_device_wait_event",
                                          "evn_evaluation_init",
                                          "evn_event_release",
                                          "evn_event_wait",
                                          "evn_loader_batch_count",
                                          "evn_loader_create",
                                          "evn_loader_next",
                                          "evn_loader_options_init",
                                          "evn_loader_release",
                                          "evn_loader_start_epoch",
                                          "evn_model_inspect",
                                          "evn_opencl_attach",
                                          "evn_opencl_attach_options_init",
                                          "evn_opencl_device_objects",
                                          "evn_opencl_export_event",
                                          "evn_opencl_get_buffer",
                                          "evn_opencl_import_event",
                                          "evn_opencl_store_programs",
                                          "evn_opencl_wrap_buffer",
                                          "evn_operator_attribute_float",
                                          "evn_operator_attribute_floats",
                                          "evn_operator_attribute_int",
                                          "evn_operator_attribute_ints",
                                          "evn_operator_attribute_string",
                                          "evn_operator_attribute_string_at",
                                          "evn_operator_attribute_string_count",
                                          "evn_operator_attribute_tensor",
                                          "evn_operator_attribute_type",
                                          "evn_operator_node_name",
                                          "evn_reconfigure_options_init",
                                          "evn_runtime_calibrate",
                                          "evn_runtime_reconfigure",
                                          "evn_runtime_register_operator",
                                          "evn_runtime_session",
                                          "evn_session_compare",
                                          "evn_session_get_memory_stats",
                                          "evn_session_get_trace",
                                          "evn_session_memory_stats_init",
                                          "evn_session_trace_start",
                                          "evn_session_trace_stop",
                                          "evn_step_info_init",
                                          "evn_tensor_copy_async",
                                          "evn_tensor_from_dlpack",
                                          "evn_tensor_to_dlpack",
                                          "evn_trainer_create",
                                          "evn_trainer_describe",
                                          "evn_trainer_evaluate",
                                          "evn_trainer_export",
                                          "evn_trainer_find_input",
                                          "evn_trainer_finish",
                                          "evn_trainer_get_parameter",
                                          "evn_trainer_input_count",
                                          "evn_trainer_note_metric",
                                          "evn_trainer_options_init",
                                          "evn_trainer_parameter_count",
                                          "evn_trainer_parameter_name",
                                          "evn_trainer_release",
                                          "evn_trainer_restore",
                                          "evn_trainer_save",
                                          "evn_trainer_set_learning_rate",
                                          "evn_trainer_step"};

constexpr int64_t kDims[4] = {2, 3, 8, 8};
constexpr std::size_t kOutputs = 20;

// One use of all functions, with fixed memory of its own: it allocates nothing itself.
class Use {
 public:
  Use(const char* path, const std::string& bytes) : path_(path), bytes_(bytes) {
    for (std::size_t i = 0; i < std::size(x_); ++i) x_[i] = 0.01f * static_cast<float>(i % 31) - 0.1f;
  }

  // Plays all steps. A step that fails is repeated without the fault and must then succeed.
  void play(Seam seam) {
    seam_ = seam;
    inits();
    made();
    tensors();
    values();
    ran();
    texts();
    ended();
  }
  int refused() const { return refused_; }
  bool good() const { return good_; }
  const evn_error& error() const { return error_; }
  const char* where() const { return where_; }
  const float* result() const { return y_; }

 private:
  template <typename Call>
  void step(const char* name, Call call) {
    if (!good_) return;
    error_ = EVN_ERROR_INIT;
    evn_status status = call();
    if (status == EVN_ERROR_OUT_OF_MEMORY) {
      ++refused_;
      fault_arm(seam_, 0, false);
      error_ = EVN_ERROR_INIT;
      status = call();
    }
    if (status == EVN_OK) return;
    good_ = false;
    where_ = name;
  }
  // The same for a call that gives a handle, which must be untouched while it fails.
  template <typename Handle, typename Call>
  void make(const char* name, Handle* handle, Call call) {
    step(name, [&] {
      const evn_status status = call(handle);
      if (status != EVN_OK && *handle != nullptr) good_ = false;
      return status;
    });
  }

  // Cannot fail.
  void inits() {
    evn_error error;
    evn_runtime_options runtime;
    evn_operator op;
    evn_device_info device;
    evn_memory_stats stats;
    evn_tensor_info tensor;
    evn_model_options model;
    evn_inspect_options inspect;
    evn_value_info value;
    evn_session_options session;
    evn_run_options run;
    evn_error_init(&error, sizeof error);
    evn_runtime_options_init(&runtime, sizeof runtime);
    evn_operator_init(&op, sizeof op);
    evn_device_info_init(&device, sizeof device);
    evn_memory_stats_init(&stats, sizeof stats);
    evn_tensor_info_init(&tensor, sizeof tensor);
    evn_model_options_init(&model, sizeof model);
    evn_inspect_options_init(&inspect, sizeof inspect);
    evn_value_info_init(&value, sizeof value);
    evn_session_options_init(&session, sizeof session);
    evn_run_options_init(&run, sizeof run);
    good_ = runtime.struct_size == sizeof runtime && run.struct_size == sizeof run && good_;
  }
  void made() {
    static const char kYaml[] =
        "limits: {nodes: 1000}\ndevices:\n  cpu: {type: cpu}\nplacement:\n  rules:\n    - {match: {op: Conv}, device: cpu, policy: "
        "prefer}\n";
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.cache_dir = "";
    o.thread_count = 2;
    o.config_text = kYaml;
    o.config_size = sizeof kYaml - 1;
    make("evn_runtime_create", &runtime_, [&](evn_runtime* h) { return evn_runtime_create(&o, h, &error_); });
    make("evn_runtime_device_at", &at_, [&](evn_device* h) { return evn_runtime_device_at(runtime_, 0, h, &error_); });
    make("evn_runtime_device_find", &cpu_, [&](evn_device* h) { return evn_runtime_device_find(runtime_, "cpu", h, &error_); });
    uint32_t count = 0;
    step("evn_runtime_device_count", [&] { return evn_runtime_device_count(runtime_, &count, &error_); });
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    step("evn_device_get_info", [&] { return evn_device_get_info(cpu_, &info, &error_); });
    make("evn_model_load_file", &model_, [&](evn_model* h) { return evn_model_load_file(runtime_, path_, nullptr, h, &error_); });
    make("evn_model_load_buffer", &second_,
         [&](evn_model* h) { return evn_model_load_buffer(runtime_, bytes_.data(), bytes_.size(), nullptr, h, &error_); });
    make("evn_session_create", &session_,
         [&](evn_session* h) { return evn_session_create(runtime_, model_, nullptr, h, &error_); });
  }
  void tensors() {
    make("evn_tensor_create", &in_,
         [&](evn_tensor* h) { return evn_tensor_create(cpu_, EVN_DTYPE_FLOAT32, kDims, 4, 0, h, &error_); });
    make("evn_tensor_wrap", &wrapped_, [&](evn_tensor* h) {
      return evn_tensor_wrap(runtime_, x_, sizeof x_, EVN_DTYPE_FLOAT32, kDims, 4, nullptr, nullptr, h, &error_);
    });
    step("evn_tensor_copy", [&] { return evn_tensor_copy(wrapped_, in_, &error_); });
    make("evn_tensor_copy_to", &copy_, [&](evn_tensor* h) { return evn_tensor_copy_to(in_, cpu_, h, &error_); });
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    step("evn_tensor_get_info", [&] { return evn_tensor_get_info(copy_, &info, &error_); });
    const int64_t two = 2;
    const char* const words[] = {"one", "two"};
    make("evn_tensor_create of strings", &words_,
         [&](evn_tensor* h) { return evn_tensor_create(cpu_, EVN_DTYPE_STRING, &two, 1, 0, h, &error_); });
    step("evn_tensor_set_strings", [&] { return evn_tensor_set_strings(words_, words, nullptr, 2, &error_); });
    size_t size = 0;
    step("evn_tensor_get_strings", [&] { return evn_tensor_get_strings(words_, text_, sizeof text_, nullptr, 2, &size, &error_); });
    make("evn_tensor_create_view", &view_,
         [&](evn_tensor* h) { return evn_tensor_create_view(in_, 192, kDims + 1, 3, h, &error_); });
  }
  void values() {
    make("evn_value_from_tensor", &part_, [&](evn_value* h) { return evn_value_from_tensor(words_, h, &error_); });
    make("evn_value_create", &list_,
         [&](evn_value* h) { return evn_value_create(runtime_, "seq(tensor(string))", &part_, 1, h, &error_); });
    uint32_t count = 0;
    step("evn_value_part_count", [&] { return evn_value_part_count(list_, &count, &error_); });
    make("evn_value_part_at", &first_, [&](evn_value* h) { return evn_value_part_at(list_, 0, h, &error_); });
    make("evn_value_get_tensor", &back_, [&](evn_tensor* h) { return evn_value_get_tensor(first_, h, &error_); });
    make("evn_value_from_tensor of numbers", &x_value_, [&](evn_value* h) { return evn_value_from_tensor(copy_, h, &error_); });
    make("evn_session_run_values", &y_value_,
         [&](evn_value* h) { return evn_session_run_values(session_, &x_value_, 1, h, 1, nullptr, &error_); });
  }
  void ran() {
    make("evn_session_run", &out_, [&](evn_tensor* h) { return evn_session_run(session_, &copy_, 1, h, 1, nullptr, &error_); });
    void* data = nullptr;
    step("evn_tensor_map", [&] { return evn_tensor_map(out_, EVN_MAP_READ, &data, nullptr, &error_); });
    if (data != nullptr) std::memcpy(y_, data, sizeof y_);
    step("evn_tensor_unmap", [&] { return evn_tensor_unmap(out_, &error_); });
    step("evn_session_run again", [&] { return evn_session_run(session_, &in_, 1, &out_, 1, nullptr, &error_); });
    make("evn_cancel_create", &cancel_, [&](evn_cancel* h) { return evn_cancel_create(h, &error_); });
    step("evn_cancel_request", [&] { return evn_cancel_request(cancel_); });
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    step("evn_device_get_memory_stats", [&] { return evn_device_get_memory_stats(cpu_, &stats, &error_); });
    step("evn_device_reset_memory_peak", [&] { return evn_device_reset_memory_peak(cpu_, &error_); });
    step("evn_device_trim_memory", [&] { return evn_device_trim_memory(cpu_, &error_); });
    uint32_t n = 0;
    evn_value_info info = EVN_VALUE_INFO_INIT;
    step("evn_session_input_count", [&] { return evn_session_input_count(session_, &n, &error_); });
    step("evn_session_default_count", [&] { return evn_session_default_count(session_, &n, &error_); });
    step("evn_session_output_count", [&] { return evn_session_output_count(session_, &n, &error_); });
    step("evn_session_get_input_info", [&] { return evn_session_get_input_info(session_, 0, &info, &error_); });
    step("evn_session_get_output_info", [&] { return evn_session_get_output_info(session_, 0, &info, &error_); });
    step("evn_session_find_input", [&] { return evn_session_find_input(session_, "x", &n, &error_); });
    step("evn_session_find_output", [&] { return evn_session_find_output(session_, "y", &n, &error_); });
    step("evn_model_input_count", [&] { return evn_model_input_count(model_, &n, &error_); });
    step("evn_model_default_count", [&] { return evn_model_default_count(model_, &n, &error_); });
    step("evn_model_output_count", [&] { return evn_model_output_count(model_, &n, &error_); });
    step("evn_model_metadata_count", [&] { return evn_model_metadata_count(model_, &n, &error_); });
    step("evn_model_get_input_info", [&] { return evn_model_get_input_info(model_, 0, &info, &error_); });
    step("evn_model_get_output_info", [&] { return evn_model_get_output_info(model_, 0, &info, &error_); });
  }
  void texts() {
    const auto text = [&](const char* name, auto call) {
      size_t size = 0;
      step(name, [&] { return call(nullptr, size_t{0}, &size); });
      step(name, [&] { return call(text_, sizeof text_, &size); });
    };
    text("evn_runtime_describe_devices",
         [&](char* b, size_t c, size_t* s) { return evn_runtime_describe_devices(runtime_, EVN_FORMAT_JSON, b, c, s, &error_); });
    text("evn_describe_passes",
         [&](char* b, size_t c, size_t* s) { return evn_describe_passes(EVN_FORMAT_JSON, b, c, s, &error_); });
    text("evn_model_describe",
         [&](char* b, size_t c, size_t* s) { return evn_model_describe(second_, EVN_FORMAT_TEXT, b, c, s, &error_); });
    text("evn_model_get_metadata",
         [&](char* b, size_t c, size_t* s) { return evn_model_get_metadata(model_, "author", b, c, s, &error_); });
    text("evn_model_metadata_key",
         [&](char* b, size_t c, size_t* s) { return evn_model_metadata_key(model_, 0, b, c, s, &error_); });
    text("evn_model_input_name", [&](char* b, size_t c, size_t* s) { return evn_model_input_name(model_, 0, b, c, s, &error_); });
    text("evn_model_output_name", [&](char* b, size_t c, size_t* s) { return evn_model_output_name(model_, 0, b, c, s, &error_); });
    text("evn_model_input_symbol",
         [&](char* b, size_t c, size_t* s) { return evn_model_input_symbol(model_, 0, 0, b, c, s, &error_); });
    text("evn_model_output_symbol",
         [&](char* b, size_t c, size_t* s) { return evn_model_output_symbol(model_, 0, 0, b, c, s, &error_); });
    text("evn_session_input_name",
         [&](char* b, size_t c, size_t* s) { return evn_session_input_name(session_, 0, b, c, s, &error_); });
    text("evn_session_output_name",
         [&](char* b, size_t c, size_t* s) { return evn_session_output_name(session_, 0, b, c, s, &error_); });
    text("evn_device_description", [&](char* b, size_t c, size_t* s) { return evn_device_description(cpu_, b, c, s, &error_); });
    text("evn_device_driver", [&](char* b, size_t c, size_t* s) { return evn_device_driver(cpu_, b, c, s, &error_); });
    text("evn_tensor_get_string", [&](char* b, size_t c, size_t* s) { return evn_tensor_get_string(back_, 1, b, c, s, &error_); });
    text("evn_value_get_type", [&](char* b, size_t c, size_t* s) { return evn_value_get_type(list_, b, c, s, &error_); });
    text("evn_session_explain",
         [&](char* b, size_t c, size_t* s) { return evn_session_explain(session_, EVN_FORMAT_TEXT, b, c, s, &error_); });
  }
  // Cannot fail; all but the last have no error to give.
  void ended() {
    for (evn_value v : {part_, list_, first_, x_value_, y_value_}) good_ = evn_value_release(v) == EVN_OK && good_;
    for (evn_tensor t : {in_, wrapped_, copy_, out_, words_, view_, back_}) good_ = evn_tensor_release(t) == EVN_OK && good_;
    good_ = evn_cancel_release(cancel_) == EVN_OK && good_;
    good_ = evn_session_release(session_) == EVN_OK && good_;
    for (evn_model m : {model_, second_}) good_ = evn_model_release(m) == EVN_OK && good_;
    for (evn_device d : {at_, cpu_}) good_ = evn_device_release(d) == EVN_OK && good_;
    good_ = evn_runtime_release(runtime_) == EVN_OK && good_;
    good_ = evn_status_name(EVN_OK) != nullptr && evn_version() != nullptr && evn_version_number() != 0 && good_;
  }

  const char* path_;
  const std::string& bytes_;
  Seam seam_ = Seam::kAlloc;
  float x_[2 * 3 * 8 * 8];
  float y_[kOutputs] = {};
  char text_[65536];
  evn_error error_ = EVN_ERROR_INIT;
  const char* where_ = "";
  int refused_ = 0;
  bool good_ = true;
  evn_runtime runtime_ = nullptr;
  evn_device at_ = nullptr;
  evn_device cpu_ = nullptr;
  evn_model model_ = nullptr;
  evn_model second_ = nullptr;
  evn_session session_ = nullptr;
  evn_tensor in_ = nullptr;
  evn_tensor wrapped_ = nullptr;
  evn_tensor copy_ = nullptr;
  evn_tensor out_ = nullptr;
  evn_tensor words_ = nullptr;
  evn_tensor view_ = nullptr;
  evn_tensor back_ = nullptr;
  evn_value part_ = nullptr;
  evn_value list_ = nullptr;
  evn_value first_ = nullptr;
  evn_value x_value_ = nullptr;
  evn_value y_value_ = nullptr;
  evn_cancel cancel_ = nullptr;
};

struct AllFunctions : testing::TestWithParam<bool> {
  std::string path;
  std::string bytes = small_network().serialize();
  float want[kOutputs];

  void SetUp() override {
    ::setenv("OCL_ICD_VENDORS", "/nonexistent", 1);  // what drivers allocate is not the library's
    path = (std::filesystem::temp_directory_path() / ("evener_functions_" + std::to_string(getpid()) + ".onnx")).string();
    std::ofstream(path, std::ios::binary) << bytes;
    Use first(path.c_str(), bytes);
    first.play(Seam::kAlloc);
    ASSERT_TRUE(first.good()) << first.where() << ": " << first.error().message;
    std::memcpy(want, first.result(), sizeof want);
  }
  void TearDown() override {
    fault_arm(Seam::kAlloc, 0, false);
    std::filesystem::remove(path);
  }
};

TEST_P(AllFunctions, E01_EachFailingAllocationIsAStatusAndTheCallSucceedsWhenRepeated) {
  const InTurn allocations(3);
  int refused = 0;
  int k = allocations.first;
  for (; k < 100000; k += allocations.step) {
    const std::int64_t before = g_live;
    auto use = std::make_unique<Use>(path.c_str(), bytes);
    fault_arm(Seam::kAlloc, k, GetParam());
    use->play(Seam::kAlloc);
    const bool reached = fault_count(Seam::kAlloc) >= k || use->refused() > 0;
    fault_arm(Seam::kAlloc, 0, false);
    ASSERT_TRUE(use->good()) << "allocation " << k << ", " << use->where() << ": " << use->error().message;
    ASSERT_EQ(std::memcmp(use->result(), want, sizeof want), 0) << "allocation " << k;
    refused += use->refused();
    use.reset();
    ASSERT_EQ(g_live, before) << "allocation " << k << ": blocks were lost";
    if (!reached) break;
  }
  std::printf("%d allocations, %d calls refused and repeated\n", k - 1, refused);
  EXPECT_GT(refused, 500 / allocations.step);
}

INSTANTIATE_TEST_SUITE_P(OnceAndForever, AllFunctions, testing::Bool());

TEST(FaultCoverage, E01_TheUseHasEveryFunctionOfTheHeader) {
  const auto read = [](const std::string& path) {
    std::ifstream in(std::string(EVN_SOURCE_DIR) + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string header = read("/include/evener/evener.h");
  const std::string here = read("/tests/fault/functions_test.cc");
  int count = 0;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = 0; (at = header.find("\nEVN_API ", at)) != std::string::npos; ++count) {
    const std::size_t end = header.find('(', at);
    std::size_t begin = end;
    while (is_word(header[begin - 1])) --begin;
    const std::string name = header.substr(begin, end - begin);
    EXPECT_EQ(name.rfind("evn_", 0), 0u) << name;
    EXPECT_NE(here.find(name + "(") == std::string::npos, kElsewhere.count(name) == 0) << name;
    at = end;
  }
  EXPECT_GT(count, 35);
}

}  // namespace
}  // namespace evn::test::functions_test
