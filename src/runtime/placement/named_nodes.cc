#include "runtime/placement/named_nodes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "core/name_map.h"
#include "runtime/placement/placement_rules.h"

namespace evn {
namespace {

std::string list_text(const char* key, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 80;
  if (names.empty()) return "";
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return std::string(key) + " " + shorten(text, kMost);
}

std::string match_text(const PlacementRule& rule) {
  std::string text = list_text("op", rule.ops);
  for (const std::string& more : {list_text("name", rule.names), list_text("model", rule.models)})
    if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
  return text;
}

bool is_pattern_of(const std::string& pattern, const Node& node) {
  return matches_node(pattern, node.name, node.domain, node.op_type) ||
         (!node.model_op.empty() && matches_node(pattern, node.name, "", node.model_op)) ||
         std::any_of(node.fused.begin(), node.fused.end(), [&](const std::string& name) { return glob_match(pattern, name); });
}

// Something that selects nodes: a rule, or else a pattern.
struct Selector {
  const PlacementRule* rule = nullptr;
  const std::string* pattern = nullptr;
  bool matched = false;

  bool fits(const Node& node, const std::string& file) const {
    return rule != nullptr ? matches(*rule, node, file) || matches_fused(*rule, node, file) : is_pattern_of(*pattern, node);
  }
  bool fits(const RemovedNode& node) const {
    return rule != nullptr ? matches_removed(*rule, node) : matches_node(*pattern, node.name, node.domain, node.op_type);
  }
};

// Finds which of the selectors match; looks no further when all have. Patterns that are names are looked up.
class Matching {
 public:
  Matching(std::vector<Selector>& selectors, const std::string& file) : file_(file) {
    for (Selector& s : selectors) {
      cancellation_point(kNameWork);
      if (s.pattern != nullptr && is_node_name(*s.pattern)) names_.emplace(*s.pattern, &s);
      else others_.push_back(&s);
    }
  }

  void look_at(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      if (is_done()) return;
      mark_name(node.name);
      for (const std::string& name : node.fused) mark_name(name);
      mark_others([&](const Selector& s) { return s.fits(node, file_); });
      if (node.body != nullptr) look_at(*node.body);
    }
  }
  void look_at(const std::vector<RemovedNode>& nodes) {
    for (const RemovedNode& node : nodes) {
      if (is_done()) return;
      mark_name(node.name);
      mark_others([&](const Selector& s) { return s.fits(node); });
    }
  }

 private:
  const std::string& file_;
  // Selectors that have not matched.
  std::unordered_multimap<std::string_view, Selector*, KeyedHash> names_;
  std::vector<Selector*> others_;

  bool is_done() const { return names_.empty() && others_.empty(); }

  void mark_name(const std::string& name) {
    cancellation_point(kNameWork);
    const auto [begin, end] = names_.equal_range(name);
    for (auto it = begin; it != end; ++it) it->second->matched = true;
    names_.erase(begin, end);
  }

  template <typename F>
  void mark_others(F&& fits) {
    std::erase_if(others_, [&](Selector* s) {
      cancellation_point(kNodeWork);
      return s->matched = fits(*s);
    });
  }
};

// Calls check(function, names, where) for each list of names or patterns that the configuration has, with the function of
// ops/operator_names.h that checks it.
template <typename F>
void for_each_list(const Config& config, const std::string* model_file, F&& check) {
  const auto at = [&](int line) { return shorten(config.source, 120) + (line > 0 ? ":" + std::to_string(line) : ""); };
  for (const PlacementRule& rule : config.rules) {
    if (model_file != nullptr && !fits_model(rule, *model_file)) continue;
    check(&check_operator_names, rule.ops, at(rule.line));
  }
  check(&check_operator_patterns, config.session.keep_fp32, at(0) + ": session.keep_fp32");
  if (model_file != nullptr) return;  // what is said of a model by its name is checked with its session's request
  for (const ModelConfig& model : config.models)
    check(&check_operator_patterns, model.session.keep_fp32, at(model.line) + ": keep_fp32");
}

}  // namespace

void check_config_names(const Config& config, const OperatorRegistry& host, NameCheck check, const std::string* model_file) {
  for_each_list(config, model_file, [&](auto* function, const std::vector<std::string>& names, const std::string& where) {
    function(names, host, check, EVN_ERROR_CONFIG, where);
  });
}

std::vector<std::string> unknown_config_names(const Config& config, const OperatorRegistry& host, NameCheck check) {
  std::vector<std::string> messages;
  for_each_list(config, nullptr, [&](auto* function, const std::vector<std::string>& names, const std::string& where) {
    for (const std::string& name : names) {
      try {
        function({name}, host, check, EVN_ERROR_CONFIG, where);
      } catch (const Error& e) {
        if (e.status != EVN_ERROR_CONFIG) throw;
        messages.emplace_back(e.message);
      }
    }
  });
  return messages;
}

std::vector<NodeSelection> select_nodes(const LoadedModel& model, const SessionRequest& request) {
  const LoadedModel& whole = model.whole != nullptr ? *model.whole : model;
  const Config& config = request.settings->config;
  std::vector<Selector> selectors;
  std::vector<NodeSelection> found;
  for (const PlacementRule& rule : config.rules) {
    if (!fits_model(rule, whole.file_name)) continue;
    selectors.push_back({&rule, nullptr});
    found.push_back({rule.line, "the rule at line " + std::to_string(rule.line) + " (" + match_text(rule) + ")"});
  }
  for (const auto* patterns : {&config.session.keep_fp32, &request.keep_fp32}) {
    for (const std::string& pattern : *patterns) {
      selectors.push_back({nullptr, &pattern});
      found.push_back({0, "keep_fp32 \"" + shorten(pattern, 80) + "\"", false, patterns == &request.keep_fp32});
    }
  }
  Matching matching(selectors, whole.file_name);
  matching.look_at(whole.graph());
  matching.look_at(whole.removed);
  for (std::size_t i = 0; i < found.size(); ++i) found[i].matched = selectors[i].matched;
  return found;
}

std::vector<std::string> unmatched_patterns(const std::vector<std::string>& patterns, const Graph& graph,
                                            const std::vector<RemovedNode>& removed) {
  std::vector<Selector> selectors;
  for (const std::string& pattern : patterns) selectors.push_back({nullptr, &pattern});
  const std::string no_file;
  Matching matching(selectors, no_file);
  matching.look_at(graph);
  matching.look_at(removed);
  std::vector<std::string> unmatched;
  for (const Selector& s : selectors) {
    if (!s.matched) unmatched.push_back(*s.pattern);
  }
  return unmatched;
}

std::vector<NodeSelection> check_session_names(const LoadedModel& model, const SessionRequest& request, bool warns) {
  const Config& config = request.settings->config;
  const OperatorRegistry& host = model.runtime->operators();
  check_config_names(config, host, NameCheck::kAll, &model.file_name);
  check_operator_patterns(request.keep_fp32, host, NameCheck::kAll, EVN_ERROR_INVALID_ARGUMENT, "keep_fp32");
  if (model.is_own) return {};  // its nodes have other names than those of the model that it was made of
  std::vector<NodeSelection> found = select_nodes(model, request);
  const std::string name = model.file_name.empty() ? "a model from a buffer" : shorten(model.file_name, 80);
  for (const NodeSelection& s : found) {
    if (s.matched || !warns) continue;
    LogEvent(model.runtime->log(), EVN_LOG_WARNING, "placement.unmatched")
        .field("file", model.file_name.c_str())
        .field("config", config.source.c_str())
        .field("line", static_cast<std::uint64_t>(s.line))
        .write("%s matches no node of %s", s.text.c_str(), name.c_str());
  }
  return found;
}

}  // namespace evn
