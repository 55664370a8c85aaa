// Which device and kernel runs each node, and why: a value that explain prints and tests compare.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/loaded/model.h"
#include "runtime/placement/segments.h"

namespace evn {

enum class NodeMode : std::uint8_t {
  kKernel,   // a kernel of the device runs it
  kSegment,  // a kernel of the device runs it together with others (Placement::segments)
  kMerge,    // no work: the output is the bytes of what the branch that was taken made
  kView,     // no work: the output is the input's bytes
  kHost,     // between the parts of a plan (ops/host.h)
  kPlanned,  // shape arithmetic: evaluated on the host when a run is planned
};

// The reason where nothing says anything of a precision, or of numerics.
inline constexpr char kDefaultPrecision[] = "the default";

struct NodePlacement {
  NodeMode mode = NodeMode::kKernel;
  Device* device = nullptr;
  const Kernel* kernel = nullptr;             // kKernel and kSegment only
  std::string reason;                         // "rule 2: op Conv requires gpu"
  int rule_line = 0;                          // line of the configuration, 0: none
  std::string refused;                        // "gpu: conv_1x1: weights must be constant", or ""
  Precision precision = Precision::kFloat32;  // that its kernel may have for operands
  std::string precision_reason;               // "the session's options", "Softmax stays fp32: it is no product"
  Numerics numerics = Numerics::kFast;        // never kDefault
  std::string numerics_reason;                // as of the precision
  Products products = Products::kAuto;        // never kDefault
  std::string products_reason;                // as of the precision
  const Kernel* rival = nullptr;              // kMeasured: OpenBLAS's kernel, which a plan may have in place of the node's own
  std::int32_t segment = -1;                  // kSegment: index into Placement::segments
  bool may_move = false;  // a rank is not known yet; if the device refuses what a run brings, the CPU takes the node
};

struct Placement {
  std::vector<NodePlacement> nodes;  // per graph node
  std::vector<PlacedSegment> segments;
};

// Values whose bytes must be known to plan on, because a shape or the branch of an If depends on them; per value.
std::vector<bool> values_needed_for_shapes(const Graph& graph);

// Values that can be told before anything runs: constants, shapes, small inputs, and what is computed from these; per value.
std::vector<bool> values_known_before_run(const Graph& graph);

struct Assignment;
struct SessionIdentity;

// A device that has no memory left for a model.
struct FullDevice {
  const Device* device;
  std::string why;  // message of the error
};

// Options of a session that its host chooses.
struct SessionOptions {
  // Devices of nodes that no rule places, with commas between them: the first that can. "auto": searched for by measured costs
  // (cost/placement_search.h). "": the configuration's `default`.
  std::string device;
  Precision precision = Precision::kDefault;   // of nodes for which no rule has one
  std::vector<std::string> keep_fp32;          // beside the configuration's
  Numerics numerics = Numerics::kDefault;      // of nodes for which no rule has one
  Products products = Products::kDefault;      // of nodes for which no rule has one
  std::vector<std::string> disabled_passes;    // beside the configuration's
  int concurrency = 0;                         // runs that compute at a time; 0: as many as there are cores
  BatchingConfig batching;                     // of requests; max_batch 0: they are not joined
  std::uint64_t idle_arena_bytes = 0;          // kept for runs to come; 0: the configuration's
  MemoryPlan memory = MemoryPlan::kDefault;    // kDefault: the configuration's
  std::uint64_t arena_limit = 0;               // of each run's intermediate values; 0: none (lower/plan_recompute.h)
  std::optional<bool> share_arenas;            // with other sessions of the runtime; none: as the configuration says
  std::string name;                            // in statistics; "": the model's file
  std::vector<WarmRun::Input> assumed_inputs;  // dims by which a search measures, where the model leaves them open
};

// Role of a session within the runtime.
struct SessionRole {
  bool is_of_batches = false;    // the session is a body's of one with batching
  bool listed = true;            // among the sessions of the runtime's statistics, of which others are parts
  bool raw_outputs = false;      // outputs may come in the order of elements in which kernels make them, for who only counts
  std::vector<FullDevice> full;  // devices that get no nodes; rules may not require them
  std::shared_ptr<const Assignment> assigned;                             // nullable: in the place of SessionOptions::device
  std::shared_ptr<const std::map<std::string, std::string>> whole_nodes;  // nullable: why nodes are not split, by their names
  std::shared_ptr<SessionIdentity> identity;                              // nullable: of the session in whose place it comes
};

// Options and role with which a session is made.
struct SessionRequest : SessionOptions {
  SessionRequest(std::string default_device) { device = std::move(default_device); }  // NOLINT: most ask for no more
  SessionRequest(const char* default_device) { device = default_device; }             // NOLINT

  SessionRole role;
  SettingsPtr settings;  // that it is placed by; null: the runtime's of now

  bool joins_requests() const { return role.is_of_batches || batching.max_batch != 0; }
};

// The request, with the runtime's settings of now where it has none.
SessionRequest with_settings(SessionRequest request, const Runtime& runtime);

// Where nodes that no rule places go if they can: in the place of the default devices.
struct Assignment {
  std::vector<Device*> devices;      // per node of the model's graph; null: none
  std::vector<std::string> reasons;  // per node, or empty
  std::string summary;               // what it was chosen from
};

// Throws EVN_ERROR_UNSUPPORTED with every device's reason for a node that its rule's devices, or no allowed device, can run;
// EVN_ERROR_DEVICE_UNAVAILABLE for a device that is not there.
Placement place(const LoadedModel& model, const SessionRequest& request);

// How a node runs where that does not depend on a device: kKernel where it does. `needed`, `known`: values_needed_for_shapes,
// values_known_before_run.
NodeMode settled_mode(const Graph& graph, const Node& node, const std::vector<bool>& needed, const std::vector<bool>& known);

// All nodes on one device, in float32, whatever rules there are. NodeMode::kHost: no kernel of it takes the node.
Placement place_on(const Graph& graph, Device& device);

}  // namespace evn
