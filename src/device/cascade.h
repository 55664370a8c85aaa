// Cascades: nodes that follow each other and run as one step, some lines of an image at a time, so that what lies between them
// stays in the caches of a thread and is never written as a whole. The planner asks which nodes these are; a kernel runs them.
#pragma once

#include "device/kernel.h"

namespace evn {

inline constexpr int kMaxStages = 8;  // of a step

// How a device runs cascades. Each stage but the first reads what the one before it makes, as its input 0, and nobody else does.
struct Cascades {
  // Whether a node that this kernel of the device runs may be a stage, by KernelFusion::stages. Asked when the session is made;
  // dims may be -1.
  bool (*takes)(const Kernel& kernel, const OpDesc& desc);
  // Whether the node that reads what the last of these makes should be a stage too. All dims are known.
  bool (*joins)(std::span<const OpDesc> stages);
  // Its `plan` and `run` are asked with OpDesc::nodes. These are its stages, and `plan` looks at them and at OpDesc::threads.
  Kernel kernel;
};

}  // namespace evn
