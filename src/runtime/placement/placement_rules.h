// Whether a rule of the configuration is about a node.
#pragma once

#include <string>

#include "config/config.h"
#include "core/graph.h"
#include "runtime/loaded/removed_nodes.h"

namespace evn {

// `model`: the model's file name.
bool matches(const PlacementRule& rule, const Node& node, const std::string& model);

// A node that was fused into this one: nothing but its name is left of it.
bool matches_fused(const PlacementRule& rule, const Node& node, const std::string& model);

// True if the rule is about the model of this file name at all.
bool fits_model(const PlacementRule& rule, const std::string& model);

// True if the rule is about a node that a rewrite has removed, in a model that the rule fits.
bool matches_removed(const PlacementRule& rule, const RemovedNode& node);

const char* policy_name(Policy policy);

// "rule at line 7 (prefer npu, gpu)".
std::string rule_label(const PlacementRule& rule);

}  // namespace evn
