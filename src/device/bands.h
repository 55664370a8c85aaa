// Nodes that follow each other and run as one step, a band of lines of an image at a time, so that what lies between them stays in
// the caches of a thread and is never written as a whole. The planner asks which nodes these are; a kernel runs them.
#pragma once

#include "device/kernel.h"

namespace evn {

inline constexpr int kMostParts = 8;  // of a step

// What a device says of it. Each part but the first reads what the one before it makes, as its input 0, and nobody else does.
struct Bands {
  // Whether a node that this kernel of the device runs may be a part. Asked when the session is made; dims may be -1.
  bool (*takes)(const Kernel& kernel, const OpDesc& desc);
  // Whether the node that reads what the last of these makes should be a part too. All dims are known.
  bool (*joins)(std::span<const OpDesc> parts);
  // Its `plan` and `run` are asked with OpDesc::parts. `plan` looks at these only, and at OpDesc::threads.
  Kernel kernel;
};

}  // namespace evn
