// Nodes that several devices share, as rules with `split` say: a session of such a configuration runs a model in which these nodes
// are in parts (graph/cut_node.h). docs/decisions/0078-split-operators.md
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/loaded/model.h"
#include "runtime/placement/placement.h"

namespace evn {

// The units of one node among devices: so that the last of them ends as early as it can, where device i takes fixed_ns[i] and
// unit_ns[i] for each unit. Every device gets one at least; there are as many units as devices, or more.
std::vector<std::int64_t> share_units(std::int64_t units, std::span<const double> unit_ns, std::span<const double> fixed_ns);

// When the last device ends.
double end_of(std::span<const std::int64_t> units, std::span<const double> unit_ns, std::span<const double> fixed_ns);

// Nodes are cut at multiples of so many units where they have enough of them: tiles of kernels.
std::int64_t units_together(std::int64_t units, std::size_t devices);

// Why nodes are whole that a rule would have split, by their names.
using WholeNodes = std::map<std::string, std::string>;

struct SplitModel {
  ModelPtr model;
  std::shared_ptr<const WholeNodes> whole;  // nullable
};

// The model that a session with these options runs: with nodes in parts, or as it is where no rule splits one. Shares are by what
// the session has measured (SessionIdentity), else by what the node takes on each device alone, which is measured where the
// configuration allows, else even. Throws EVN_ERROR_UNSUPPORTED, with file, line and node, where a node of a rule that requires it
// cannot be split; EVN_ERROR_DEVICE_UNAVAILABLE.
SplitModel split_operators(const ModelPtr& model, const SessionRequest& request);

}  // namespace evn
