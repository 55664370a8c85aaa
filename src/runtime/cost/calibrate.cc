#include "runtime/cost/calibrate.h"

#include <cstdio>

#include "base/error.h"
#include "base/json_writer.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/plan_cost.h"

namespace evn {
namespace {

// All nodes on the device that it takes, the others on the CPU.
SessionRequest alone_on(const ModelPtr& model, Device& device) {
  auto alone = std::make_shared<Assignment>();
  alone->devices.assign(model->graph().nodes.size(), &device);
  SessionRequest request("");
  request.role.assigned = std::move(alone);
  return request;
}

std::vector<RunValue> zeros_for(const ModelPtr& model) {
  const CompiledGraph compiled = compile_unpacked(model, alone_on(model, model->runtime->cpu()));
  return zeros_of(model->runtime, fitting_inputs(*model->runtime, model->graph(), {}, [&](const std::vector<TensorDesc>& inputs) {
                    make_plan(compiled, signature_of_zeros(compiled, inputs));
                  }));
}

DeviceCalibration calibrate_on(const ModelPtr& model, Device& device, bool is_suite) {
  Runtime& runtime = *model->runtime;
  DeviceCalibration c;
  c.device = device.name();
  measure_copies(device, runtime.costs());
  if (is_suite) calibrate_on(calibration_chain(model->runtime), device, false);
  const std::shared_ptr<Session> session = make_plain_session(model, alone_on(model, device));
  c.run_ns = measure_steps(*session, zeros_for(model), runtime.costs(), !is_suite);
  for (const auto& plan : session->plans().latest()) {
    const PlanCost cost = cost_of(session->compiled(), *plan, runtime.costs());
    c.steps_ns += cost.total_ns;
    for (const PlanStep& step : plan->steps) c.steps += step.kernel != nullptr && session->compiled().devices[step.slot] == &device;
  }
  runtime.costs().with(device, [&](const CostTable& t) {
    c.upload = t.upload;
    c.download = t.download;
    c.submission_ns = t.submission_ns;
  });
  return c;
}

double gigabytes_per_second(const CopyCost& c) { return c.ns_per_byte > 0 ? 1 / c.ns_per_byte : 0; }

}  // namespace

std::vector<DeviceCalibration> calibrate(const std::shared_ptr<Runtime>& runtime, const ModelPtr& model) {
  const ModelPtr measured = model != nullptr ? model : calibration_suite(runtime);
  zeros_for(measured);  // what is wrong with the model is no device's
  std::vector<DeviceCalibration> rows;
  for (std::size_t i = 0; i < runtime->device_count(); ++i) {
    Device& device = *runtime->device_at(i);
    try {
      rows.push_back(calibrate_on(measured, device, model == nullptr));
    } catch (const Error& e) {
      if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT) throw;
      rows.push_back({.device = device.name(), .refused = e.message, .upload = {}, .download = {}});
    }
    runtime->costs().save(device);
  }
  return rows;
}

std::string render_calibration(const std::vector<DeviceCalibration>& devices, evn_format format) {
  JsonWriter json;
  std::string text;
  json.begin_object();
  json.key("devices");
  json.begin_array();
  for (const DeviceCalibration& d : devices) {
    json.begin_object();
    json.field("device", d.device);
    json.field("refused", d.refused);
    json.field("steps", std::uint64_t{d.steps});
    json.field("run_ns", static_cast<std::uint64_t>(d.run_ns));
    json.field("steps_ns", static_cast<std::uint64_t>(d.steps_ns));
    json.field("submission_ns", static_cast<std::uint64_t>(d.submission_ns));
    for (const auto& [name, cost] : {std::pair{"upload", d.upload}, std::pair{"download", d.download}}) {
      json.key(name);
      json.begin_object();
      json.field("latency_ns", static_cast<std::uint64_t>(cost.latency_ns));
      json.field("ns_per_mib", static_cast<std::uint64_t>(cost.ns_per_byte * (1 << 20)));
      json.end_object();
    }
    json.end_object();
    char line[256];
    if (!d.refused.empty()) {
      text += d.device + ": not measured: " + d.refused + "\n";
      continue;
    }
    std::snprintf(line, sizeof line, ": %zu steps, a run %.1f us, %.2f us between steps", d.steps, d.run_ns / 1e3,
                  d.submission_ns / 1e3);
    text += d.device + line;
    if (d.upload.latency_ns > 0) {
      std::snprintf(line, sizeof line, "; copies to it %.1f us and %.1f GB/s, from it %.1f us and %.1f GB/s",
                    d.upload.latency_ns / 1e3, gigabytes_per_second(d.upload), d.download.latency_ns / 1e3,
                    gigabytes_per_second(d.download));
      text += line;
    }
    text += "\n";
  }
  json.end_array();
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
