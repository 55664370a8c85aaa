// Which device and kernel runs each node, and why: a value that explain prints and tests compare.
#pragma once

#include <string>
#include <vector>

#include "runtime/model.h"

namespace evn {

enum class NodeMode : std::uint8_t {
  kKernel,   // a kernel of the device runs it
  kMerge,    // no work: the output is the bytes of what the branch that was taken made
  kView,     // no work: the output is the input's bytes
  kHost,     // between the parts of a plan (ops/host.h)
  kPlanned,  // shape arithmetic: evaluated on the host when a run is planned
};

struct NodePlacement {
  NodeMode mode = NodeMode::kKernel;
  Device* device = nullptr;
  const Kernel* kernel = nullptr;  // kKernel only
  std::string reason;              // "rule 2: op Conv requires gpu"
  int rule_line = 0;               // line of the configuration, 0: none
  std::string refused;             // "gpu: conv_1x1: weights must be constant", or ""
  bool may_move = false;           // a rank is not known yet; if the device refuses what a run brings, the CPU takes the node
};

struct Placement {
  std::vector<NodePlacement> nodes;  // per graph node
};

// Values whose bytes must be known to plan on, because a shape or the branch of an If depends on them; per value.
std::vector<bool> values_needed_for_shapes(const Graph& graph);

// Values that can be told before anything runs: constants, shapes, small inputs, and what is computed from these; per value.
std::vector<bool> values_known_before_run(const Graph& graph);

// `default_device` overrides the configuration's `default`; "" does not. Throws EVN_ERROR_UNSUPPORTED with every device's reason
// for a node that its rule's device, or no allowed device, can run; EVN_ERROR_DEVICE_UNAVAILABLE for a device that is not there.
Placement place(const LoadedModel& model, const std::string& default_device);

}  // namespace evn
