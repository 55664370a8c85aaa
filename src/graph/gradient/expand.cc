// See graph/gradient.h. One Gradient after another, in the order of the nodes, so that one may differentiate what another has left.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "graph/bodies.h"
#include "graph/gradient.h"
#include "graph/gradient/bound.h"
#include "graph/gradient/rules.h"
#include "graph/gradient/tape.h"
#include "graph/inline_if.h"
#include "graph/opsets.h"
#include "graph/subgraphs.h"
#include "kept_features.h"
#include "ops/merge.h"

namespace evn {
namespace {

// Looking at nodes must not take forever where many Gradients look at a large graph: so many times the limit of nodes.
constexpr std::uint64_t kLooksPerNode = 64;

class Expander {
 public:
  Expander(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete)
      : nodes_(std::move(graph.nodes)), tape_(graph, limits, complete), looks_left_(limits.nodes * kLooksPerNode) {}

  void run() {
    auto left = std::count_if(nodes_.begin(), nodes_.end(), is_bound_gradient);
    for (Node& node : nodes_) {
      cancellation_point(kNodeWork);
      if (is_bound_gradient(node)) {
        tape_.set_may_be_differentiated(--left > 0);
        tape_.set_origin(node);
        expand(node);
      } else {
        tape_.add(std::move(node));
      }
    }
  }

 private:
  // The graph between the named tensors and y, for one Gradient.
  struct Path {
    std::vector<ValueId> names;  // xs, then zs
    std::size_t xs = 0;          // how many of them
    ValueId y = kNoValue;
    std::vector<std::size_t> nodes;                       // what y depends on, in order
    std::unordered_set<ValueId> active;                   // what depends on xs differentiably
    std::unordered_map<ValueId, ValueId> moved;           // what stands for a value where another is given for a name
    std::unordered_map<std::size_t, std::size_t> copies;  // the node for one that makes moved values
    std::unordered_map<ValueId, ValueId> adjoints;        // the derivative of y by a value
    std::vector<ValueId> conditions;                      // of the graph's regions
    std::unordered_map<std::int32_t, std::int32_t>
        pairs;  // of regions outside the Gradient's, the number of those that stand for them
  };

  std::vector<Node> nodes_;
  Tape tape_;
  const GradientRuleIndex rules_;
  std::uint64_t looks_left_;

  void look() {
    if (looks_left_-- == 0) tape_.refuse(EVN_ERROR_LIMIT, "the Gradients of the graph have too many nodes before them");
  }

  void expand(const Node& gradient) {
    tape_.set_origin(gradient.name);
    const auto xs = static_cast<std::size_t>(std::get<std::int64_t>(gradient.attributes.at(0).value));
    const std::size_t count = (gradient.inputs.size() - 1) / 2;
    Path path;
    path.names.assign(gradient.inputs.begin() + static_cast<std::ptrdiff_t>(count), gradient.inputs.end() - 1);
    path.xs = xs;
    path.y = gradient.inputs.back();
    refuse_dependent_names(path);
    find_nodes(path);
    find_active(path);
    check_types(gradient, path);
    for (std::size_t i = 0; i < count; ++i) {
      if (gradient.inputs[i] != path.names[i]) path.moved.emplace(path.names[i], gradient.inputs[i]);
    }
    copy_moved(path);
    path.conditions = region_conditions(tape_.graph());
    go_back(path);
    tape_.set_region(gradient.region);
    tape_.set_origin(gradient.name);
    for (std::size_t i = 0; i < gradient.outputs.size(); ++i) {
      if (gradient.outputs[i] == kNoValue) continue;
      const auto it = path.adjoints.find(path.names[i]);
      const ValueId x = here(path, path.names[i]);
      tape_.into(gradient.outputs[i], "Identity", {it != path.adjoints.end() ? it->second : tape_.filled(0, x)});
    }
  }

  static ValueId here(const Path& path, ValueId v) {
    const auto it = path.moved.find(v);
    return it == path.moved.end() ? v : it->second;
  }

  // Calls visit(node number) for all nodes that the values depend on, without going behind those of `ends`, at which it calls
  // end(value).
  template <typename Visit, typename End>
  void walk_back(std::vector<ValueId> open, const std::unordered_set<ValueId>& ends, Visit visit, End end) {
    std::unordered_set<std::size_t> seen;
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      look();
      if (ends.contains(v)) {
        end(v);
        continue;
      }
      const std::int64_t producer = tape_.producer(v);
      if (producer < 0 || !seen.insert(static_cast<std::size_t>(producer)).second) continue;
      const Node& node = tape_.node(static_cast<std::size_t>(producer));
      visit(static_cast<std::size_t>(producer));
      for (const ValueId input : node.inputs) {
        if (input != kNoValue) open.push_back(input);
      }
    }
  }

  // ONNX: what can be computed from other tensors of xs and zs cannot be one of them.
  void refuse_dependent_names(const Path& path) {
    const std::unordered_set<ValueId> names(path.names.begin(), path.names.end());
    std::vector<ValueId> before;
    for (const ValueId v : path.names) {
      if (tape_.producer(v) < 0) continue;
      for (const ValueId input : tape_.node(static_cast<std::size_t>(tape_.producer(v))).inputs) {
        if (input != kNoValue) before.push_back(input);
      }
    }
    walk_back(
        before, names, [](std::size_t) {},
        [&](ValueId v) {
          tape_.refuse(EVN_ERROR_INVALID_MODEL, "attributes 'xs' and 'zs' of Gradient name '%.128s' and what is computed from it",
                       tape_.name(v).c_str());
        });
  }

  void find_nodes(Path& path) {
    const std::unordered_set<ValueId> names(path.names.begin(), path.names.end());
    const auto xs_end = path.names.begin() + static_cast<std::ptrdiff_t>(path.xs);
    const bool is_x = std::find(path.names.begin(), xs_end, path.y) != xs_end;
    if (!is_x && (names.contains(path.y) || tape_.producer(path.y) < 0)) {
      tape_.refuse(EVN_ERROR_INVALID_MODEL, "'%.128s', attribute 'y' of Gradient, is computed by no node here",
                   tape_.name(path.y).c_str());
    }
    walk_back(
        {path.y}, names, [&](std::size_t n) { path.nodes.push_back(n); }, [](ValueId) {});
    std::sort(path.nodes.begin(), path.nodes.end());
  }

  void find_active(Path& path) {
    path.active.insert(path.names.begin(), path.names.begin() + static_cast<std::ptrdiff_t>(path.xs));
    for (const std::size_t n : path.nodes) {
      cancellation_point(kNodeWork);
      const Node& node = tape_.node(n);
      const GradientRule* rule = rules_.find(node);
      if (rule != nullptr && rule->emit == nullptr) continue;
      const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return path.active.contains(v); });
      for (const ValueId v : node.outputs) {
        if (any && v != kNoValue && tape_.may_be_float(v)) path.active.insert(v);
      }
    }
  }

  void check_types(const Node& gradient, const Path& path) {
    const auto require_float = [&](ValueId v, const char* attribute) {
      if (tape_.may_be_float(v)) return;
      tape_.refuse(EVN_ERROR_INVALID_MODEL, "'%.128s' of attribute '%s' of Gradient is %s, not floating point",
                   tape_.name(v).c_str(), attribute, dtype_name(tape_.dtype(v)));
    };
    require_float(path.y, "y");
    for (std::size_t i = 0; i < gradient.outputs.size(); ++i) {
      if (gradient.outputs[i] != kNoValue) require_float(path.names[i], "xs");
    }
    for (std::size_t i = 0; i < path.names.size(); ++i) {
      const DType named = tape_.dtype(path.names[i]), given = tape_.dtype(gradient.inputs[i]);
      if (named == given || named == DType::kUndefined || given == DType::kUndefined) continue;
      tape_.refuse(EVN_ERROR_INVALID_MODEL, "input %zu of Gradient is %s for '%.128s', which is %s", i, dtype_name(given),
                   tape_.name(path.names[i]).c_str(), dtype_name(named));
    }
  }

  // ----------------------------------------------------------------------------------------------------- other values --

  // Copies the nodes whose results are others because another value is given for a name.
  void copy_moved(Path& path) {
    if (path.moved.empty()) return;
    for (const std::size_t n : path.nodes) {
      cancellation_point(kNodeWork);
      const auto is_moved = [&](ValueId v) { return path.moved.contains(v); };
      const std::vector<ValueId>& inputs = tape_.node(n).inputs;
      if (std::none_of(inputs.begin(), inputs.end(), is_moved)) continue;
      look();
      path.copies.emplace(n, copy(path, Node(tape_.node(n))));
    }
  }

  std::size_t copy(Path& path, Node node) {
    if (is_merge(node))
      throw make_error(EVN_ERROR_UNSUPPORTED, "the If of node '%.96s' would have to run for other values", node.name.c_str())
          .with_node(node.name.c_str());
    tape_.set_origin(bounded_path(tape_.gradient_name() + "/") + node.name);
    node.name = tape_.fresh_name("copy");
    for (ValueId& v : node.inputs) {
      if (v != kNoValue) v = here(path, v);
    }
    for (ValueId& v : node.outputs) {
      if (v == kNoValue) continue;
      const ValueId moved = tape_.add_value_like(v);
      // A tensor of xs or zs that the node makes beside others keeps what is given for it.
      path.moved.emplace(v, moved);
      v = moved;
    }
    node.region = tape_.region();
    if (node.body != nullptr) node.body = std::make_shared<Graph>(*node.body);
    return tape_.add(std::move(node));
  }

  // ------------------------------------------------------------------------------------------------------------- back --

  void go_back(Path& path) {
    path.adjoints.emplace(path.y, tape_.filled(1, here(path, path.y)));
    for (auto n = path.nodes.rbegin(); n != path.nodes.rend(); ++n) {
      cancellation_point(kNodeWork);
      Node node = tape_.node(*n);
      const auto is_active = [&](ValueId v) { return path.active.contains(v); };
      const auto has_adjoint = [&](ValueId v) { return path.active.contains(v) && path.adjoints.contains(v); };
      if (std::none_of(node.inputs.begin(), node.inputs.end(), is_active)) continue;
      if (std::none_of(node.outputs.begin(), node.outputs.end(), has_adjoint)) continue;
      look();
      tape_.set_origin(bounded_path(tape_.gradient_name() + "/") + node.name);
      tape_.set_region(region_inside(path, node.region));
      is_merge(node) ? go_back_into_branches(path, node) : go_back(path, std::move(node), *n);
    }
  }

  // The derivatives of what a branch makes are computed in the branch. Where the Gradient stands in another If's, it is in branches
  // of the same condition there.
  std::int32_t region_inside(Path& path, std::int32_t region) {
    Graph& graph = tape_.graph();
    const std::int32_t own = tape_.gradient_region();
    if (region_contains(graph, own, region)) return region;
    if (region_contains(graph, region, own)) return own;
    const auto [it, is_new] = path.pairs.emplace(region / 2, static_cast<std::int32_t>(graph.regions.size() / 2));
    const std::int32_t number = it->second;
    if (is_new) {
      graph.regions.resize(graph.regions.size() + 2);
      path.conditions.resize(graph.regions.size(), path.conditions[static_cast<std::size_t>(region)]);
      const std::int32_t around = region_inside(path, graph.regions[static_cast<std::size_t>(region)].parent);
      for (std::int32_t k = 0; k < 2; ++k) graph.regions[static_cast<std::size_t>(2 * number + k)].parent = around;
    }
    return 2 * number + region % 2;
  }

  // What an If hands on comes from the branch that is taken.
  void go_back_into_branches(Path& path, const Node& merge) {
    const ValueId dy = path.adjoints.at(merge.outputs[0]);
    const std::int32_t first = 2 * merge_number(merge);
    for (int branch = 0; branch < 2; ++branch) {
      const ValueId v = merge.inputs[static_cast<std::size_t>(1 + branch)];
      if (path.active.contains(v)) add_adjoint(path, v, dy, region_inside(path, first + branch));
    }
  }

  // `region`: where it is computed. Behind the branches between there and where v stands, it is 0 unless they are taken.
  void add_adjoint(Path& path, ValueId v, ValueId dx, std::int32_t region) {
    const std::int64_t producer = tape_.producer(v);
    const std::int32_t where = region_inside(path, producer < 0 ? -1 : tape_.node(static_cast<std::size_t>(producer)).region);
    while (region != where) {
      cancellation_point();
      tape_.set_region(region ^ 1);
      const ValueId zeros = tape_.filled(0, here(path, v));
      const bool is_then = (region & 1) == 0;
      const ValueId condition = path.conditions[static_cast<std::size_t>(region)];
      const std::int64_t number = region / 2;
      region = tape_.graph().regions[static_cast<std::size_t>(region)].parent;
      tape_.set_region(region);
      dx = tape_.own("Merge", {condition, is_then ? dx : zeros, is_then ? zeros : dx}, {{"if", number, {}}});
    }
    tape_.set_region(where);
    const auto [it, first] = path.adjoints.emplace(v, dx);
    if (!first) it->second = tape_.add(it->second, dx);
  }

  void go_back(Path& path, Node node, std::size_t number) {
    const GradientRule* rule = rules_.find(node);
    const auto copied = path.copies.find(number);
    Backward b(tape_, copied == path.copies.end() ? number : copied->second, std::move(node));
    if (rule == nullptr) b.refuse("it has no rule");
    for (std::size_t i = 0; i < b.node.outputs.size(); ++i) {
      const ValueId v = b.node.outputs[i];
      const auto it = v == kNoValue ? path.adjoints.end() : path.adjoints.find(v);
      b.outputs.push_back(v == kNoValue ? kNoValue : here(path, v));
      b.dys.push_back(it == path.adjoints.end() ? kNoValue : it->second);
      if (b.dys.back() != kNoValue && static_cast<int>(i) >= rule->outputs) b.refuse("only its first outputs have a rule");
    }
    for (const ValueId v : b.node.inputs) {
      b.inputs.push_back(v == kNoValue ? kNoValue : here(path, v));
      b.wanted.push_back(v != kNoValue && path.active.contains(v));
    }
    b.given.assign(b.node.inputs.size(), kNoValue);
    rule->emit(b);
    const std::int32_t region = tape_.region();
    for (std::size_t i = 0; i < b.given.size(); ++i) {
      if (b.given[i] != kNoValue && b.wanted[i]) add_adjoint(path, b.node.inputs[i], b.given[i], region);
    }
  }
};

}  // namespace

bool expand_gradients(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete) {
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_bound_gradient);
  if (first == graph.nodes.end()) return false;
  if (!kHas_training) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "this build of the library leaves Gradient out (EVN_TRAINING=OFF)")
        .with_node(first->name.c_str());
  }
  Expander(graph, limits, complete).run();
  return true;
}

}  // namespace evn
