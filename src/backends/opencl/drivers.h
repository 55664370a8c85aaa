// The drivers that OpenCL's loader would load.
#pragma once

#include <vector>

#include "device/backend.h"

namespace evn {

// One set for each driver that the loader finds by its files and by the variables of the environment. Loads none of them.
std::vector<DriverSet> opencl_drivers();

}  // namespace evn
