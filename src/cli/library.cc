#include "cli/library.h"

#include <cstdio>
#include <iterator>

namespace evn::cli {
namespace {

void print_log(void*, evn_log_level level, const char* message) {
  std::fprintf(stderr, "evener: %s: %s\n", level == EVN_LOG_ERROR ? "error" : "warning", message);
}

evn_numerics parse_numerics(std::string_view text) {
  if (text == "fast") return EVN_NUMERICS_FAST;
  if (text == "strict") return EVN_NUMERICS_STRICT;
  fail_usage("--numerics is fast or strict, not \"%s\"", std::string(text).c_str());
}

evn_products parse_products(std::string_view text) {
  constexpr std::string_view kWords[] = {"own", "openblas", "clblast", "auto", "measured"};
  for (std::size_t i = 0; i < std::size(kWords); ++i) {
    if (text == kWords[i]) return static_cast<evn_products>(EVN_PRODUCTS_OWN + i);
  }
  fail_usage("--products is own, openblas, clblast, auto or measured, not \"%s\"", std::string(text).c_str());
}

evn_memory_plan parse_memory_plan(std::string_view text) {
  if (text == "fast") return EVN_MEMORY_PLAN_FAST;
  if (text == "small") return EVN_MEMORY_PLAN_SMALL;
  fail_usage("--memory is fast or small, not \"%s\"", std::string(text).c_str());
}

}  // namespace

evn_precision parse_precision(std::string_view text) {
  constexpr std::string_view kWords[] = {"fp32", "bf16", "fp16", "auto"};
  for (std::size_t i = 0; i < std::size(kWords); ++i) {
    if (text == kWords[i]) return static_cast<evn_precision>(EVN_PRECISION_FP32 + i);
  }
  fail_usage("--precision is fp32, bf16, fp16 or auto, not \"%s\"", std::string(text).c_str());
}

evn_runtime_options default_options() {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.log_callback = print_log;
  options.log_level = EVN_LOG_WARNING;
  return options;
}

Runtime open_runtime(const Arguments& arguments, evn_runtime_options options) {
  options.config_path = arguments.get("--config");
  if (const char* threads = arguments.get("--threads")) options.thread_count = parse_count("--threads", threads, 0, 1024);
  Runtime runtime;
  Call call(options.config_path != nullptr ? kExitConfig : kExitFailure);
  call.check(evn_runtime_create(&options, runtime.out(), call));
  return runtime;
}

Model load_model(const Runtime& runtime, const std::string& path) {
  Model model;
  Call call(kExitModel);
  call.check(evn_model_load_file(runtime.get(), path.c_str(), nullptr, model.out(), call));
  return model;
}

Session open_session(const Arguments& arguments, const Runtime& runtime, const Model& model) {
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.device = arguments.get("--device");
  options.cache_file = arguments.get("--cache");
  if (arguments.has("--map-cache")) {
    if (options.cache_file == nullptr) fail_usage("--map-cache needs --cache");
    options.cache_flags = EVN_CACHE_MAP;
  }
  if (const char* precision = arguments.get("--precision")) options.precision = parse_precision(precision);
  if (const char* numerics = arguments.get("--numerics")) options.numerics = parse_numerics(numerics);
  if (const char* products = arguments.get("--products")) options.products = parse_products(products);
  if (const char* memory = arguments.get("--memory")) options.memory = parse_memory_plan(memory);
  const std::vector<std::string> keep = arguments.all("--keep-fp32");
  std::vector<const char*> patterns;
  for (const std::string& k : keep) patterns.push_back(k.c_str());
  options.keep_fp32 = patterns.data();
  options.keep_fp32_count = static_cast<std::uint32_t>(patterns.size());
  const std::vector<std::string> disabled = arguments.all("--disable-pass");
  std::vector<const char*> names;
  for (const std::string& name : disabled) names.push_back(name.c_str());
  options.disabled_passes = names.data();
  options.disabled_pass_count = static_cast<std::uint32_t>(names.size());
  if (options.device != nullptr) {
    Device device;  // an OpenCL device that the configuration does not name is opened by being looked for
    Call find(kExitDevice);
    find.check(evn_runtime_device_find(runtime.get(), options.device, device.out(), find));
  }
  Session session;
  Call call;
  call.check(evn_session_create(runtime.get(), model.get(), &options, session.out(), call));
  return session;
}

std::string milliseconds(double ns) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f ms", ns / 1e6);
  return text;
}

evn_format text_format(const Arguments& arguments) { return arguments.has("--json") ? EVN_FORMAT_JSON : EVN_FORMAT_TEXT; }

void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

}  // namespace evn::cli
