#include "runtime/placement/placement_rules.h"

#include <algorithm>

#include "base/text.h"

namespace evn {

static bool matches_any(const std::vector<std::string>& globs, const std::string& text) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& g) { return glob_match(g, text); });
}

bool matches(const PlacementRule& rule, const Node& node, const std::string& model) {
  const bool op = rule.ops.empty() || std::any_of(rule.ops.begin(), rule.ops.end(), [&](const std::string& word) {
                    return names_operator(word, node.domain, node.op_type) ||
                           (!node.model_op.empty() && parse_operator(word).name == node.model_op);
                  });
  const std::string& name = node.part_of.empty() ? node.name : node.part_of;
  return op && matches_any(rule.names, name) && matches_any(rule.models, model);
}

bool matches_fused(const PlacementRule& rule, const Node& node, const std::string& model) {
  if (!rule.ops.empty() || !matches_any(rule.models, model)) return false;
  return std::any_of(node.fused.begin(), node.fused.end(), [&](const std::string& name) { return matches_any(rule.names, name); });
}

bool fits_model(const PlacementRule& rule, const std::string& model) { return matches_any(rule.models, model); }

bool matches_removed(const PlacementRule& rule, const RemovedNode& node) {
  const auto named = [&](const std::string& word) { return names_operator(word, node.domain, node.op_type); };
  return (rule.ops.empty() || std::any_of(rule.ops.begin(), rule.ops.end(), named)) && matches_any(rule.names, node.name);
}

const char* policy_name(Policy policy) {
  return policy == Policy::kRequire ? "require" : (policy == Policy::kPrefer ? "prefer" : "forbid");
}

std::string rule_label(const PlacementRule& rule) {
  const bool splits = !rule.split.empty();
  std::string label = "rule at line " + std::to_string(rule.line) + " (" + policy_name(rule.policy) + (splits ? " split" : "");
  const std::vector<std::string>& names = splits ? rule.split : rule.devices;
  for (const std::string& name : names) label += (&name == &names[0] ? " " : ", ") + name;
  return label + ")";
}

}  // namespace evn
