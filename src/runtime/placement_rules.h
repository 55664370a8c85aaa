// Whether a rule of the configuration is about a node.
#pragma once

#include <string>

#include "config/config.h"
#include "core/graph.h"

namespace evn {

// `model`: the model's file name.
bool matches(const PlacementRule& rule, const Node& node, const std::string& model);

// A node that was fused into this one: nothing but its name is left of it.
bool matches_fused(const PlacementRule& rule, const Node& node, const std::string& model);

const char* policy_name(Policy policy);

// "rule at line 7 (prefer npu, gpu)".
std::string rule_label(const PlacementRule& rule);

}  // namespace evn
