// How a node is to be computed: what the configuration with its rules and a session's options ask for.
#pragma once

#include <string>

#include "core/node_patterns.h"
#include "runtime/placement/placement.h"

namespace evn {

// Where sessions move off lost devices, such a device is as one that is optional and absent; elsewhere it refuses its nodes.
bool is_absent(const Settings& settings, const Device* device, std::string* why);

// The device that a rule names; nullptr: it is absent, and *why may say why.
Device* device_for_rule(const Runtime& runtime, const SessionRequest& request, const std::string& name, std::string* why);

inline constexpr char kNoMemoryLeft[] = "it has no memory left for the model";

// True if the request says that the device has no memory left for the model.
bool is_full(const SessionRequest& request, const Device& device);

enum class NodeSetting : std::uint8_t { kPrecision, kNumerics, kProducts };

struct WantedSetting {
  std::int32_t value;  // a Precision, Numerics or Products, never kDefault
  std::string reason;
  const PlacementRule* rule = nullptr;  // that says so; null: another authority does

  template <typename T>
  T as() const {
    return static_cast<T>(value);
  }
};

// Setting of the first authority that has one: rules, the session's options, the configuration's session, the device (not of
// numerics). At the end: float32, fast, auto.
WantedSetting wanted_setting(NodeSetting setting, const LoadedModel& model, const SessionRequest& request, const Node& node,
                             const Device* device);

// Nodes that stay float32: patterns of keep_fp32, of the configuration and then of the request, which outlives it.
class KeptNodes {
 public:
  explicit KeptNodes(const SessionRequest& request);

  // The pattern that is for the node; nullptr: none.
  const std::string* find(const Node& node) const;

 private:
  const NodePatterns configured_, requested_;
};

// The precision: keep_fp32 stands above what wanted_setting finds.
WantedSetting wanted_precision(const KeptNodes& kept, const LoadedModel& model, const SessionRequest& request, const Node& node,
                               const Device* device);

// Adds to the reason of the precision why the kernel does not have the one that it may have.
void explain_precision(const Node& node, NodePlacement* p);

// Sets what NodePlacement says of products once the node has its kernel: why that is of another library than the one that is
// asked for, or which is measured against it. Throws EVN_ERROR_UNSUPPORTED where a rule requires a library that does not run the
// node. `ranks_known`: of the desc's shapes.
void settle_products(const LoadedModel& model, const SessionRequest& request, const OpDesc& desc, bool ranks_known,
                     NodePlacement* p);

}  // namespace evn
