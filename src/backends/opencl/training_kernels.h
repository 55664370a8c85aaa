// The kernels of OpenCL devices that only training needs, training/*.cc with their sources training/*.cl. They use the device by
// what is virtual in a Launcher, as its driver is known to the library alone.
#pragma once

#include "backends/opencl/launcher.h"
#include "backends/opencl/source.h"
#include "device/training_kernels.h"

namespace evn {

// Opens the module. From any thread; later calls do nothing.
void open_opencl_training_kernels();
// Takes these in the place of the module's, for programs that have them linked in (tests). Before anything is opened.
void take_opencl_training_kernels(std::span<const KernelFamily* const> families, std::span<const OpenClSource> sources);
// Adds to the reason why no kernel takes a node that the module is not there.
void explain_opencl_training_kernels(const Node& node, std::string* reason);

// All kernels of OpenCL devices, those of the module among them once it is open.
std::span<const KernelFamily* const> opencl_kernels();
// The module's sources; none before it is open.
std::span<const OpenClSource> opencl_training_sources();

// What the module exports under this name is a TrainingKernelsFunction; it writes its sources into what it shares, a
// std::span<const OpenClSource>.
#define EVN_OPENCL_TRAINING_KERNELS_SYMBOL "evn_opencl_training_kernels"

inline constexpr std::uint64_t kOpenClTrainingBuild =
    (kTrainingBuild * 4099 + sizeof(Launcher)) * 4099 + sizeof(OpenClFound) + sizeof(OpenClFunction);

}  // namespace evn
