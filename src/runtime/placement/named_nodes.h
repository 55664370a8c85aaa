// Rules and patterns of a configuration, of session options and of the quantizer against the nodes of a model: names of operators
// that there are not, and rules and patterns that match nothing.
#pragma once

#include <string>
#include <vector>

#include "ops/operator_names.h"
#include "runtime/placement/placement.h"

namespace evn {

// Throws EVN_ERROR_CONFIG for names of operators in rules and patterns that nobody knows. `model_file`: the file name of a model
// whose rules alone are looked at; null: all are.
void check_config_names(const Config& config, const OperatorRegistry& host, NameCheck check, const std::string* model_file);
// Messages of all names that check_config_names would refuse.
std::vector<std::string> unknown_config_names(const Config& config, const OperatorRegistry& host, NameCheck check);

// A rule, or a pattern of keep_fp32, that is for a model.
struct NodeSelection {
  int line = 0;      // of the configuration; 0: the session's options, or the configuration's session
  std::string text;  // "the rule at line 4 (op Conv)"
  bool matched = false;
  bool own = false;  // a pattern of the session's options or of its entry under `models`; other sessions do not have it
};

// The rules that fit the model, and the patterns of keep_fp32, each with what is so of the nodes of the model and its bodies. Nodes
// that rewrites have removed count.
std::vector<NodeSelection> select_nodes(const LoadedModel& model, const SessionRequest& request);

// The patterns that match no node.
std::vector<std::string> unmatched_patterns(const std::vector<std::string>& patterns, const Graph& graph,
                                            const std::vector<RemovedNode>& removed);

// Checks the names that a session is made with, and gives what select_nodes finds. `warns`: a line of the log for each that matches
// nothing.
std::vector<NodeSelection> check_session_names(const LoadedModel& model, const SessionRequest& request, bool warns);

}  // namespace evn
