// Calibration: fills the cost tables of a runtime's devices, with the steps of a model or with those of a suite of operators.
#pragma once

#include <string>
#include <vector>

#include "runtime/loaded/model.h"
#include "runtime/objects/cost_table.h"

namespace evn {

struct DeviceCalibration {
  std::string device;
  std::string refused;    // why it could not be measured; ""
  std::size_t steps = 0;  // of kernels, whose times are known now
  double run_ns = 0;      // a run, with the CPU for what the device does not take
  double steps_ns = 0;    // what its steps and copies are predicted to take together
  CopyCost upload, download;
  double submission_ns = 0;
};

// Measures the model on each device of the runtime alone, with zeros for inputs, and keeps what its steps took in the tables, and
// in their files where there is a folder for caches. null: the suite. Throws EVN_ERROR_CANCELLED, EVN_ERROR_TIMEOUT; what else
// stands in a device's way is its `refused`.
std::vector<DeviceCalibration> calibrate(const std::shared_ptr<Runtime>& runtime, const ModelPtr& model);

// As evn_runtime_calibrate writes it.
std::string render_calibration(const std::vector<DeviceCalibration>& devices, evn_format format);

// Operators of networks in sizes that networks have, each by itself.
ModelPtr calibration_suite(const std::shared_ptr<Runtime>& runtime);

// Small steps, each of which reads what the one before it makes: a run of them takes the time of submitting them.
ModelPtr calibration_chain(const std::shared_ptr<Runtime>& runtime);

}  // namespace evn
