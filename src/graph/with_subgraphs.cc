// See subgraphs.h. A unit is what is one node of a saved graph: a node, or all Merge nodes of one If with its branches. Units of a
// region are put in an order in which each follows what it, or a graph in it, reads.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/bodies.h"
#include "graph/subgraphs.h"
#include "graph/unique_names.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int32_t kNowhere = -2;  // as a region: nobody reads it

// A graph that is being made.
struct MadeGraph {
  Graph graph;
  std::map<ValueId, ValueId> ids;  // by value of the flat graph
};

class Outliner {
 public:
  Outliner(const Graph& flat, bool weights_outside) : flat_(flat), weights_outside_(weights_outside) {}

  Graph run() {
    find_units();
    place_constants();
    name_values();
    sort_units();
    MadeGraph main;
    main.graph.name = flat_.name;
    fill(main, -1);
    for (const ValueId v : flat_.inputs) main.graph.inputs.push_back(id_in(main, v));
    for (const ValueId v : flat_.outputs) main.graph.outputs.push_back(id_in(main, v));
    return std::move(main.graph);
  }

 private:
  struct Unit {
    std::int32_t region = -1;
    std::vector<std::size_t> nodes;       // one, or the Merge nodes of an If
    std::vector<std::int32_t> followers;  // units of the same region
    std::int32_t waits = 0;
  };

  const Graph& flat_;
  const bool weights_outside_;
  std::vector<Unit> units_;
  std::vector<std::int32_t> unit_of_;            // by node; -1: an Enter
  std::vector<std::int32_t> owner_;              // by region: the unit whose graph it is; -1: it is nobody's, and goes
  std::vector<std::int64_t> enter_;              // by region: its Enter, or -1
  std::vector<std::int64_t> producer_;           // by value
  std::vector<std::int32_t> constant_region_;    // by value
  std::vector<std::vector<ValueId>> constants_;  // by region + 1
  std::vector<std::string> names_;               // by value
  UniqueNames taken_;
  std::vector<std::vector<std::int32_t>> order_;  // by region + 1: its units

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  const Node& node(std::size_t i) const { return flat_.nodes[i]; }
  std::int32_t parent(std::int32_t region) const { return flat_.regions[at(region)].parent; }
  bool is_in(std::int32_t outer, std::int32_t inner) const { return region_contains(flat_, outer, inner); }

  // Calls visit(value, region): what a node reads, and where it is read. What comes out of a branch or body is read in there.
  template <typename F>
  void for_each_read(const Node& n, F&& visit) const {
    cancellation_point(kNodeWork);
    const std::int32_t body = body_region(n);
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      cancellation_point();
      if (n.inputs[k] == kNoValue) continue;
      std::int32_t region = n.region;
      if (is_merge(n) && k > 0) region = 2 * merge_number(n) + static_cast<std::int32_t>(k) - 1;
      if (body >= 0 && k + static_cast<std::size_t>(n.captures) >= n.inputs.size()) region = body;
      visit(n.inputs[k], region);
    }
  }

  void find_units() {
    unit_of_.assign(flat_.nodes.size(), -1);
    owner_.assign(flat_.regions.size(), -1);
    enter_.assign(flat_.regions.size(), -1);
    producer_.assign(flat_.values.size(), -1);
    for (std::size_t i = 0; i < flat_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const Node& n = node(i);
      for (const ValueId v : n.outputs) {
        cancellation_point();
        if (v != kNoValue) producer_[at(v)] = static_cast<std::int64_t>(i);
      }
      if (is_enter(n)) {
        enter_[at(n.region)] = static_cast<std::int64_t>(i);
        continue;
      }
      const std::int32_t first = is_merge(n) ? 2 * merge_number(n) : body_region(n);
      if (is_merge(n) && owner_[at(first)] >= 0) {
        unit_of_[i] = owner_[at(first)];
      } else {
        unit_of_[i] = static_cast<std::int32_t>(units_.size());
        units_.emplace_back().region = n.region;
      }
      units_[at(unit_of_[i])].nodes.push_back(i);
      if (first >= 0) owner_[at(first)] = unit_of_[i];
      if (is_merge(n)) owner_[at(first + 1)] = unit_of_[i];
    }
  }

  // The unit in `region`, which is around, that has the other region in it; -1: that region goes.
  std::int32_t lifted(std::int32_t from, std::int32_t region) const {
    std::int32_t unit = -1;
    for (; from != region; from = parent(from)) {
      cancellation_point();
      unit = owner_[at(from)];
    }
    return unit;
  }

  void sort_units() {
    for (std::size_t i = 0; i < flat_.nodes.size(); ++i) {
      if (unit_of_[i] < 0) continue;
      for_each_read(node(i), [&](ValueId v, std::int32_t region) {
        const std::int64_t p = producer_[at(v)];
        if (p < 0) return;
        const std::int32_t made = node(static_cast<std::size_t>(p)).region;
        if (!is_in(made, region)) {
          throw make_error(EVN_ERROR_INTERNAL, "value \"%.128s\" is read outside of the branch or body that makes it",
                           flat_.values[at(v)].name.c_str())
              .with_node(node(i).name.c_str());
        }
        const std::int32_t from = unit_of_[static_cast<std::size_t>(p)];
        const std::int32_t to = region == made && node(i).region == made ? unit_of_[i] : region == made ? -1 : lifted(region, made);
        if (from < 0 || to < 0 || from == to) return;
        units_[at(from)].followers.push_back(to);
        ++units_[at(to)].waits;
      });
    }
    order_.resize(flat_.regions.size() + 1);
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].waits == 0) ready.push(static_cast<std::int32_t>(u));
    }
    std::size_t done = 0;
    for (; !ready.empty(); ++done) {
      cancellation_point(kNodeWork);
      const std::int32_t u = ready.top();
      ready.pop();
      order_[at(units_[at(u)].region + 1)].push_back(u);
      for (const std::int32_t f : units_[at(u)].followers) {
        cancellation_point();
        if (--units_[at(f)].waits == 0) ready.push(f);
      }
    }
    if (done < units_.size()) fail(EVN_ERROR_INTERNAL, "the branches of the graph need each other");
  }

  void place_constants() {
    constant_region_.assign(flat_.values.size(), kNowhere);
    const auto read = [&](ValueId v, std::int32_t region) {
      std::int32_t& where = constant_region_[at(v)];
      if (where == kNowhere) where = region;
      while (!is_in(where, region)) where = parent(where);
    };
    for (std::size_t i = 0; i < flat_.nodes.size(); ++i) for_each_read(node(i), read);
    for (const ValueId v : flat_.outputs) read(v, -1);
    if (weights_outside_) take_weights_outside();
    constants_.resize(flat_.regions.size() + 1);
    for (std::size_t v = 0; v < flat_.values.size(); ++v) {
      cancellation_point();
      if (flat_.values[v].constant == nullptr || constant_region_[v] == kNowhere) continue;
      constants_[at(constant_region_[v] + 1)].push_back(static_cast<ValueId>(v));
    }
  }

  // Moves constants out of bodies, but not the scales of a Resize, on which its shape depends.
  void take_weights_outside() {
    std::set<ValueId> settings;
    for (const Node& n : flat_.nodes) {
      cancellation_point(kNodeWork);
      const bool sizes = n.op_type == "Resize" || n.op_type == "Upsample";
      for (std::size_t i = 1; sizes && i < n.inputs.size(); ++i) {
        cancellation_point(kNameWork);
        settings.insert(n.inputs[i]);
      }
    }
    for (std::size_t v = 0; v < flat_.values.size(); ++v) {
      cancellation_point(kNameWork);
      const WeightPtr& weight = flat_.values[v].constant;
      if (weight == nullptr || constant_region_[v] == kNowhere || settings.contains(static_cast<ValueId>(v))) continue;
      if (weight->desc.dtype == DType::kFloat32 && weight->desc.shape.rank() > 0) constant_region_[v] = -1;
    }
  }

  // -------------------------------------------------------------------------------------------------------- names --

  // What loading puts before the names in a region.
  std::string prefix_of(std::int32_t region) const {
    if (region < 0 || owner_[at(region)] < 0) return "";
    const Node& n = node(units_[at(owner_[at(region)])].nodes[0]);
    return bounded_path(n.name + (!is_merge(n) ? "/body/" : region % 2 == 0 ? "/then/" : "/else/"));
  }

  static std::string without(const std::string& name, const std::string& prefix) {
    return name.size() > prefix.size() && name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
  }

  void name_values() {
    names_.resize(flat_.values.size());
    const auto take = [&](ValueId v) {
      std::string& name = names_[at(v)];
      if (name.empty()) name = taken_.make(flat_.values[at(v)].name);
    };
    for (const ValueId v : flat_.inputs) take(v);
    for (const ValueId v : flat_.outputs) take(v);
    std::vector<std::string> prefixes;
    for (std::size_t r = 0; r < flat_.regions.size(); ++r) {
      cancellation_point(kNameWork);
      prefixes.push_back(prefix_of(static_cast<std::int32_t>(r)));
    }
    for (std::size_t v = 0; v < names_.size(); ++v) {
      cancellation_point();
      if (!names_[v].empty()) continue;
      const std::int32_t region = producer_[v] >= 0 ? node(static_cast<std::size_t>(producer_[v])).region : constant_region_[v];
      const std::string& old = flat_.values[v].name;
      names_[v] = taken_.make(old.empty() ? "value" : region < 0 ? old : without(old, prefixes[at(region)]));
    }
  }

  // ------------------------------------------------------------------------------------------------------- graphs --

  ValueId id_in(MadeGraph& made, ValueId v) {
    cancellation_point(kNameWork);
    const auto [it, is_new] = made.ids.try_emplace(v, static_cast<ValueId>(made.graph.values.size()));
    if (is_new) {
      Value value = flat_.values[at(v)];
      value.name = names_[at(v)];
      value.constant = nullptr;
      made.graph.values.push_back(std::move(value));
    }
    return it->second;
  }

  void fill(MadeGraph& made, std::int32_t region) {
    for (const ValueId v : constants_[at(region + 1)])
      made.graph.values[at(id_in(made, v))].constant = flat_.values[at(v)].constant;
    const std::string prefix = prefix_of(region);
    for (const std::int32_t u : order_[at(region + 1)]) made.graph.nodes.push_back(node_of(made, units_[at(u)], prefix));
  }

  Node node_of(MadeGraph& made, const Unit& unit, const std::string& prefix) {
    cancellation_point(kNodeWork);
    Node n = node(unit.nodes[0]);
    const std::int32_t body = body_region(n);
    if (is_merge(n)) {
      n = if_of(unit);
    } else if (body >= 0) {
      const std::vector<ValueId> outputs(n.inputs.end() - n.captures, n.inputs.end());
      n.inputs.resize(n.inputs.size() - static_cast<std::size_t>(n.captures));
      n.attributes.pop_back();
      for (Attribute& a : n.attributes) {
        if (attribute_type(a.value) == AttributeType::kGraph) a.value = subgraph(body, outputs, a.name);
      }
      n.captures = 0;
    } else if (n.domain == kInternalDomain) {
      throw make_error(EVN_ERROR_UNSUPPORTED, "what FlexAttention has become cannot be saved").with_node(n.name.c_str());
    }
    n.region = -1;
    n.op = nullptr;
    n.since_version = 0;
    n.resolved.clear();
    n.name = without(n.name, prefix);
    for (auto* const values : {&n.inputs, &n.outputs}) {
      for (ValueId& v : *values) {
        if (v != kNoValue) v = id_in(made, v);
      }
    }
    return n;
  }

  Node if_of(const Unit& unit) {
    const Node& first = node(unit.nodes[0]);
    Node n;
    n.name = first.name;
    n.op_type = "If";
    n.inputs = {first.inputs[0]};
    for (const std::size_t i : unit.nodes) {
      cancellation_point();
      n.outputs.push_back(node(i).outputs[0]);
    }
    for (std::int32_t branch = 0; branch < 2; ++branch) {
      std::vector<ValueId> outputs;
      for (const std::size_t i : unit.nodes) {
        cancellation_point();
        outputs.push_back(node(i).inputs[static_cast<std::size_t>(1 + branch)]);
      }
      Attribute a;
      a.name = branch == 0 ? "then_branch" : "else_branch";
      a.value = subgraph(2 * merge_number(first) + branch, outputs, a.name);
      n.attributes.push_back(std::move(a));
    }
    return n;
  }

  // Engines want each output of a graph in a graph to be made in there, under a name of its own.
  std::shared_ptr<Graph> subgraph(std::int32_t region, const std::vector<ValueId>& outputs, const std::string& name) {
    MadeGraph made;
    made.graph.name = name;
    if (enter_[at(region)] >= 0) {
      for (const ValueId v : node(static_cast<std::size_t>(enter_[at(region)])).outputs)
        made.graph.inputs.push_back(id_in(made, v));
    }
    fill(made, region);
    std::set<ValueId> given;
    for (const ValueId v : outputs) {
      cancellation_point(kNameWork);
      const std::int64_t p = producer_[at(v)];
      const bool own = p >= 0 && p != enter_[at(region)] && node(static_cast<std::size_t>(p)).region == region;
      const ValueId from = id_in(made, v);
      if (own && given.insert(v).second) {
        made.graph.outputs.push_back(from);
        continue;
      }
      Value value = made.graph.values[at(from)];
      value.name = taken_.make(value.name + "_out");
      value.constant = nullptr;
      Node identity;
      identity.name = value.name + "_Identity";
      identity.op_type = "Identity";
      identity.inputs = {from};
      identity.outputs = {static_cast<ValueId>(made.graph.values.size())};
      made.graph.outputs.push_back(identity.outputs[0]);
      made.graph.values.push_back(std::move(value));
      made.graph.nodes.push_back(std::move(identity));
    }
    // Shapes may be others in each iteration and each branch; of what goes into a body inference has said what holds in all
    // iterations, and of what comes out of it, how many axes it has.
    std::vector<ValueId> ranked;
    for (const ValueId v : made.graph.outputs) {
      if (made.graph.values[at(v)].has_shape) ranked.push_back(v);
    }
    for (Value& v : made.graph.values) {
      cancellation_point();
      v.has_shape = v.constant != nullptr;
    }
    if (enter_[at(region)] < 0) return std::make_shared<Graph>(std::move(made.graph));
    for (const ValueId v : ranked) {
      Value& value = made.graph.values[at(v)];
      if (value.constant != nullptr) continue;
      value.has_shape = true;
      value.symbols.clear();
      value.shape = Shape::of_rank(value.shape.rank(), -1);
    }
    for (const ValueId v : node(static_cast<std::size_t>(enter_[at(region)])).outputs) {
      made.graph.values[at(id_in(made, v))].has_shape = flat_.values[at(v)].has_shape;
    }
    return std::make_shared<Graph>(std::move(made.graph));
  }
};

}  // namespace

Graph with_subgraphs(const Graph& graph, bool weights_outside) { return Outliner(graph, weights_outside).run(); }

}  // namespace evn
