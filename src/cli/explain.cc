#include "cli/explain.h"

#include <cstdio>

#include "cli/assertion.h"
#include "cli/file.h"
#include "cli/outputs.h"
#include "cli/page.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

constexpr std::uint32_t kEvents = 65536;

evn_format explain_format(const Arguments& arguments) {
  if (arguments.has("--json") + arguments.has("--dot") + arguments.has("--svg") + arguments.has("--html") > 1) {
    fail_usage("explain: --json, --dot, --svg and --html exclude each other");
  }
  return arguments.has("--dot") ? EVN_FORMAT_DOT : arguments.has("--svg") ? EVN_FORMAT_SVG : text_format(arguments);
}

std::string explanation(const Session& session, evn_format format) {
  return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_session_explain(session.get(), format, buffer, capacity, size, error);
  });
}

// The trace of two runs: what a device makes for the first one that is traced takes time in it.
std::string trace_of_run(const Session& session, const std::vector<Tensor>& inputs) {
  Call call;
  call.check(evn_session_trace_start(session.get(), kEvents, call));
  for (int i = 0; i < 2; ++i) run_once(session, inputs, 0);
  call.check(evn_session_trace_stop(session.get(), call));
  return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_session_get_trace(session.get(), EVN_FORMAT_JSON, buffer, capacity, size, error);
  });
}

// The name by which explanations call a device that an assertion names.
std::string name_of_device(const Runtime& runtime, const std::string& wanted) {
  Device device;
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  Call call(kExitDevice);
  call.check(evn_runtime_device_find(runtime.get(), wanted.c_str(), device.out(), call));
  call.check(evn_device_get_info(device.get(), &info, call));
  return info.name;
}

void check_assertions(const std::vector<Assertion>& assertions, const std::vector<std::string>& devices, const Session& session) {
  if (assertions.empty()) return;
  const Json json = parse_json(explanation(session, EVN_FORMAT_JSON));
  std::string wrong;
  for (std::size_t i = 0; i < assertions.size(); ++i) {
    const std::string found = contradictions(assertions[i], devices[i], json);
    if (!found.empty()) wrong += (wrong.empty() ? "" : "\n") + found;
  }
  if (!wrong.empty()) throw Failure{kExitFailure, wrong};
}

}  // namespace

int run_explain(const Arguments& arguments) {
  const evn_format format = explain_format(arguments);
  std::vector<Assertion> assertions;
  for (const std::string& text : arguments.all("--assert")) assertions.push_back(parse_assertion(text));
  const Runtime runtime = open_runtime(arguments);
  std::vector<std::string> devices;
  for (const Assertion& assertion : assertions) devices.push_back(name_of_device(runtime, assertion.device));
  const Model model = load_model(runtime, arguments.operand(0));
  const Session session = open_session(arguments, runtime, model);
  std::string trace;
  // The bytes of copies are known once a run has planned them.
  if (arguments.has("--shape") || arguments.has("--run")) {
    const std::vector<Tensor> inputs = make_inputs(arguments, runtime, session, false);
    run_once(session, inputs, 0);
    if (arguments.has("--run") && arguments.has("--html")) trace = trace_of_run(session, inputs);
  }
  if (const char* const path = arguments.get("--html")) {
    write_file(path, make_page(explanation(session, EVN_FORMAT_JSON), trace), nullptr, 0);
    std::printf("written to %s\n", path);
  } else {
    print_text(explanation(session, format));
  }
  check_assertions(assertions, devices, session);
  return kExitOk;
}

}  // namespace evn::cli
