#include "cli/tune.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cli/failure.h"
#include "cli/outputs.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

// A product or a convolution whose kernels were measured, as the log tells it.
struct Tuned {
  std::string device, family, chosen, otherwise;
  unsigned long long m = 0, n = 0, k = 0, products = 0;
  std::uint64_t chosen_ns = 0, otherwise_ns = 0;
};

struct Log {
  std::mutex mutex;
  std::vector<Tuned> tuned;
};

void take_record(void* user, const evn_log_record* record) {
  if (record->level <= EVN_LOG_WARNING) std::fprintf(stderr, "evener: %s\n", record->message);
  if (std::strcmp(record->event, "kernel.tuned") != 0) return;
  Tuned t;
  t.device = record->device;
  for (std::uint32_t i = 0; i < record->field_count; ++i) {
    const std::string_view key = record->fields[i].key;
    const char* const value = record->fields[i].value;
    if (key == "family") t.family = value;
    else if (key == "chosen") t.chosen = value;
    else if (key == "default") t.otherwise = value;
    else if (key == "chosen_ns") t.chosen_ns = std::strtoull(value, nullptr, 10);
    else if (key == "default_ns") t.otherwise_ns = std::strtoull(value, nullptr, 10);
    else if (key == "sizes") std::sscanf(value, "%llu %llu %llu %llu", &t.m, &t.n, &t.k, &t.products);
  }
  Log& log = *static_cast<Log*>(user);
  const std::lock_guard<std::mutex> lock(log.mutex);
  log.tuned.push_back(std::move(t));
}

// Number N of opencl:N.
std::uint64_t device_number(const char* text) {
  constexpr std::string_view kPrefix = "opencl:";
  const std::string_view device = text;
  if (!device.starts_with(kPrefix)) fail_usage("--device is opencl:N, not \"%s\"", text);
  return static_cast<std::uint64_t>(parse_count("--device opencl:", text + kPrefix.size(), 0, 255));
}

void print_json(const std::vector<Tuned>& all) {
  std::printf("{\"kernels\":[");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tuned& t =
        all[i];  // names are the library's own: letters, digits, blanks, '_'; a device's are checked by the configuration
    std::printf(
        "%s\n{\"device\":\"%s\",\"family\":\"%s\",\"m\":%llu,\"n\":%llu,\"k\":%llu,\"products\":%llu,\"kernel\":\"%s\",\"ns\":%llu,"
        "\"default\":\"%s\",\"default_ns\":%llu}",
        i == 0 ? "" : ",", t.device.c_str(), t.family.c_str(), t.m, t.n, t.k, t.products, t.chosen.c_str(), wide(t.chosen_ns),
        t.otherwise.c_str(), wide(t.otherwise_ns));
  }
  std::printf("]}\n");
}

void print_table(const std::vector<Tuned>& all) {
  if (all.empty()) {
    std::printf("nothing to measure: no node of the model has kernels to choose from on such a device, or all are known already\n");
    return;
  }
  std::printf("%-10s %-18s %10s %8s %8s %6s  %-20s %10s  %-20s %10s\n", "device", "family", "m", "n", "k", "of", "fastest", "us",
              "without tuning", "us");
  std::uint64_t chosen = 0, otherwise = 0;
  for (const Tuned& t : all) {
    std::printf("%-10s %-18s %10llu %8llu %8llu %6llu  %-20s %10.1f  %-20s %10.1f\n", t.device.c_str(), t.family.c_str(), t.m, t.n,
                t.k, t.products, t.chosen.c_str(), static_cast<double>(t.chosen_ns) / 1e3, t.otherwise.c_str(),
                static_cast<double>(t.otherwise_ns) / 1e3);
    chosen += t.chosen_ns;
    otherwise += t.otherwise_ns;
  }
  std::printf("%zu shapes: %.1f us by the fastest kernels, %.1f us without tuning\n", all.size(), static_cast<double>(chosen) / 1e3,
              static_cast<double>(otherwise) / 1e3);
}

}  // namespace

int run_tune(const Arguments& arguments) {
  const char* const config = arguments.get("--config");
  const char* const device = arguments.get("--device");
  if (config != nullptr && device != nullptr) fail_usage("--config and --device exclude each other");
  const std::string number = std::to_string(device != nullptr ? device_number(device) : 0);
  const std::string text =
      "devices: {tuned: {type: opencl, match: {index: " + number + "}, tuning: measure}}\nplacement: {default: [tuned, cpu]}\n";
  Log log;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.log_sink = take_record;
  options.log_sink_user = &log;
  options.log_level = EVN_LOG_INFO;
  options.config_path = config;
  if (config == nullptr) {
    options.config_text = text.data();
    options.config_size = text.size();
  }
  Runtime runtime;
  Call call(config != nullptr ? kExitConfig : kExitDevice);
  call.check(evn_runtime_create(&options, runtime.out(), call));
  const Model model = load_model(runtime, arguments.operand(0));
  evn_session_options session_options = EVN_SESSION_OPTIONS_INIT;
  if (const char* precision = arguments.get("--precision")) session_options.precision = parse_precision(precision);
  Session session;
  Call create;
  create.check(evn_session_create(runtime.get(), model.get(), &session_options, session.out(), create));
  run_once(session, make_inputs(arguments, runtime, session, false), 0);
  if (arguments.has("--json")) print_json(log.tuned);
  else print_table(log.tuned);
  return kExitOk;
}

}  // namespace evn::cli
