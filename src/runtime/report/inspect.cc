// See inspect.h. A survey of the file, which asks nothing of the library; then the steps of loading, on a copy, with the nodes left
// out that the library does not have, so that the rest of the graph can be followed.
#include "runtime/report/inspect.h"

#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/cancel.h"
#include "base/os/os.h"
#include "core/name_map.h"
#include "graph/bodies.h"
#include "graph/expand_functions.h"
#include "graph/infer.h"
#include "graph/inline_if.h"
#include "graph/passes/passes.h"
#include "graph/validate.h"
#include "ops/custom.h"
#include "runtime/loaded/load_scope.h"

namespace evn {
namespace {

constexpr std::size_t kMaxRefusals = 16;  // nodes refused for how they are used; each costs the steps of loading once more

// Fills in since or refusal.
void judge(OperatorUse& use, const OperatorRegistry& custom) {
  if (is_taken_apart(use.domain, use.name)) {
    use.since = use.domain.empty() && use.opset >= 11 ? 11 : 1;
  } else if (use.opset < 1) {
    use.refusal = "the model does not import domain " + shown_domain(use.domain);
  } else if (const OpDef* op = find_op(&custom, use.domain, use.name, use.opset)) {
    use.since = op->since;
  } else {
    use.refusal = op_known(&custom, use.domain, use.name) ? "not supported in opset " + std::to_string(use.opset) : "not supported";
  }
}

std::vector<OperatorUse> count_operators(const Survey& survey, const OperatorRegistry& custom) {
  std::map<std::tuple<std::string, std::string, std::int64_t>, OperatorUse> uses;
  for (std::size_t i = 0; i < survey.nodes.size(); ++i) {
    const SurveyNode& n = survey.nodes[i];
    if (n.is_call) continue;  // what the function does is counted
    const auto& opsets = *survey.bodies[n.body].opsets;
    const auto opset = opsets.find(n.domain);
    const std::int64_t version = opset == opsets.end() ? 0 : opset->second;
    OperatorUse& use = uses[{n.domain, n.op_type, version}];
    use.domain = n.domain;
    use.name = n.op_type;
    use.opset = version;
    use.nodes.push_back(i);
  }
  std::vector<OperatorUse> sorted;
  for (auto& [key, use] : uses) {
    judge(use, custom);
    sorted.push_back(std::move(use));
  }
  return sorted;
}

// ----------------------------------------------------------------------------------------------------------- shapes --

// The dims of all inputs as the caller and the model give them; what the caller gives for a symbol holds for all inputs.
class InputShapes {
 public:
  InputShapes(const Survey& survey, const std::vector<std::pair<std::string, Shape>>& given) {
    if (!given.empty()) index_inputs(survey);
    for (const auto& [name, shape] : given) bind(survey, name, shape);
    for (const SurveyValue& input : survey.inputs) {
      cancellation_point(kNameWork);
      if (input.has_shape && input.dims.size() <= static_cast<std::size_t>(kMaxRank) && !shapes_.contains(input.name))
        resolve(input);
    }
  }

  bool given() const { return any_given_; }

  // Writes them into the inputs of a model that has just been read.
  void apply(Model& model) const {
    for (const ValueId id : model.graph.inputs) {
      Value& v = model.graph.values[static_cast<std::size_t>(id)];
      const auto it = shapes_.find(v.name);
      if (it == shapes_.end()) continue;
      v.has_shape = true;
      v.shape = it->second;
    }
  }

  std::vector<std::pair<std::string, Shape>> list(const Survey& survey) const {
    std::vector<std::pair<std::string, Shape>> out;
    for (const SurveyValue& input : survey.inputs) {
      if (const auto it = shapes_.find(input.name); it != shapes_.end()) out.emplace_back(it->first, it->second);
    }
    return out;
  }

 private:
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::int64_t> symbols_;
  std::unordered_map<std::string_view, const SurveyValue*, KeyedHash> inputs_;
  bool any_given_ = false;

  void index_inputs(const Survey& survey) {
    for (const SurveyValue& input : survey.inputs) {
      cancellation_point(kNameWork);
      inputs_.try_emplace(input.name, &input);
    }
  }

  void bind(const Survey& survey, const std::string& name, const Shape& shape) {
    cancellation_point(kNameWork);
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) {
      std::string names;
      for (const SurveyValue& v : survey.inputs) {
        if (names.size() < 256) names += (names.empty() ? "" : ", ") + v.name;
      }
      fail(EVN_ERROR_INVALID_ARGUMENT, "there is no input \"%s\"; there are: %s", name.c_str(), names.c_str());
    }
    const SurveyValue* const input = found->second;
    if (!shapes_.emplace(name, shape).second) fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" is given two shapes", name.c_str());
    any_given_ = true;
    if (!input->has_shape) return;
    bool fits = input->dims.size() == static_cast<std::size_t>(shape.rank());
    for (int i = 0; fits && i < shape.rank(); ++i) {
      const SurveyDim& dim = input->dims[static_cast<std::size_t>(i)];
      fits = dim.value < 0 || dim.value == shape[i];
      // The first of several counts: some exporters call every dim that is not known "?", and runs do not compare names.
      if (dim.value < 0 && !dim.symbol.empty() && dim.symbol != "?") symbols_.emplace(dim.symbol, shape[i]);
    }
    if (!fits) fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" cannot have the shape %s", name.c_str(), shape.to_string().c_str());
  }

  void resolve(const SurveyValue& input) {
    Shape shape;
    for (const SurveyDim& dim : input.dims) {
      const auto it = dim.value < 0 ? symbols_.find(dim.symbol) : symbols_.end();
      shape.push_back(it != symbols_.end() ? it->second : dim.value);
    }
    shapes_.emplace(input.name, shape);
  }
};

// ---------------------------------------------------------------------------------------------------------- the graph --

// Bodies are shared by copies of a model, and the steps of loading change them.
void own_bodies(Graph& graph) {
  for (Node& node : graph.nodes) {
    for (Attribute& a : node.attributes) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&a.value);
      if (body == nullptr || *body == nullptr) continue;
      *body = std::make_shared<Graph>(**body);
      own_bodies(**body);
    }
  }
}

Model copy_model(const Model& model) {
  Model copy = model;
  own_bodies(copy.graph);
  return copy;
}

// Takes nodes out of a graph and its bodies: what they would make becomes inputs of the main graph.
class Pruner {
 public:
  Pruner(Model& model, const std::set<std::string>& names, const OperatorRegistry& custom)
      : graph_(model.graph), names_(names), custom_(custom) {
    for (const OpsetImport& o : model.opsets) opsets_.emplace(o.domain, o.version);
    for (const Value& v : graph_.values) {
      cancellation_point(kNameWork);
      known_.insert(v.name);
    }
    inputs_.insert(graph_.inputs.begin(), graph_.inputs.end());
    outputs_.insert(graph_.outputs.begin(), graph_.outputs.end());
  }

  std::size_t run() {
    prune(graph_, "");
    return removed_;
  }

 private:
  Graph& graph_;
  const std::set<std::string>& names_;
  const OperatorRegistry& custom_;
  std::map<std::string, std::int64_t> opsets_;
  std::set<std::string> known_;                   // values of the main graph
  std::unordered_set<ValueId> inputs_, outputs_;  // of the main graph
  std::size_t removed_ = 0;

  // `prefix` is the path to the node's graph, with which names in that graph begin.
  bool goes(const Node& node, const std::string& prefix) const {
    if (names_.contains(prefix + node.name)) return true;
    if (is_taken_apart(node.domain, node.op_type)) return false;
    const auto opset = opsets_.find(node.domain);
    const std::int64_t version = node.since_version != 0 ? node.since_version : opset == opsets_.end() ? 0 : opset->second;
    return version < 1 || find_op(&custom_, node.domain, node.op_type, version) == nullptr;
  }

  void prune(Graph& graph, const std::string& prefix) {
    std::vector<Node> kept;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      Node& node = graph.nodes[i];
      // Named as graph/validate would name it.
      if (node.name.empty()) node.name = node.op_type + "_" + std::to_string(i);
      if (goes(node, prefix)) {
        take_out(graph, node);
        continue;
      }
      for (Attribute& a : node.attributes) {
        auto* body = std::get_if<std::shared_ptr<Graph>>(&a.value);
        if (body == nullptr || *body == nullptr) continue;
        prune(**body, bounded_path(prefix + node.name + "/" + a.name.substr(0, a.name.find("_branch")) + "/"));
      }
      kept.push_back(std::move(node));
    }
    graph.nodes = std::move(kept);
  }

  // What only nodes that go have read stays wanted.
  void keep_inputs(const Node& node) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || graph_.values[static_cast<std::size_t>(id)].constant != nullptr) continue;
      if (outputs_.insert(id).second) graph_.outputs.push_back(id);
    }
  }

  void take_out(Graph& graph, const Node& node) {
    ++removed_;
    if (&graph == &graph_) keep_inputs(node);
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      Value& v = graph.values[static_cast<std::size_t>(id)];
      if (v.constant != nullptr) continue;
      if (v.dtype == DType::kUndefined) v.dtype = DType::kFloat32;  // most likely, and nothing but sizes depends on it
      if (&graph == &graph_) {
        if (inputs_.insert(id).second) graph_.inputs.push_back(id);
      } else if (known_.insert(v.name).second) {
        graph_.values.push_back(v);  // bodies look names up in the graphs around them
        graph_.inputs.push_back(static_cast<ValueId>(graph_.values.size() - 1));
        inputs_.insert(graph_.inputs.back());
      }
    }
  }
};

class Inspector {
 public:
  Inspector(Runtime& runtime, const InspectRequest& request)
      : runtime_(runtime), request_(request), settings_(runtime.settings()), limits_(settings_->config.limits) {
    deadline_ns_ = limits_.load_time_ns == 0 ? UINT64_MAX : deadline_clock_ns() + limits_.load_time_ns;
  }

  Inspection run() {
    const LoadScope scope(deadline_ns_);
    read_file();
    ExternalFiles external(external_dir_, file_access(runtime_));
    const LoadOptions options{runtime_.cpu().ledger(), limits_, &external, out_.file_name, deadline_ns_, &image_};
    out_.survey =
        survey_onnx(bytes_, size_, options, [this](const std::string& domain, const std::string& name, std::int64_t opset) {
          return find_op(&runtime_.operators(), domain, name, opset) != nullptr;
        });
    out_.operators = count_operators(out_.survey, runtime_.operators());
    const InputShapes shapes(out_.survey, request_.shapes);
    out_.shapes = shapes.list(out_.survey);
    try {
      const Model model = load_onnx(bytes_, size_, options);
      follow(model, shapes);
    } catch (const Error& e) {
      record(e);
    }
    if (misfit_.has_value()) throw *misfit_;
    return std::move(out_);
  }

 private:
  Runtime& runtime_;
  const InspectRequest& request_;
  const SettingsPtr settings_;
  const Limits& limits_;
  std::uint64_t deadline_ns_;
  std::shared_ptr<const void> bytes_;
  std::size_t size_ = 0;
  FileImage image_;
  std::string external_dir_;
  Inspection out_;
  std::optional<Error> misfit_;  // the caller's shapes are the reason

  void read_file() {
    if (request_.source.path.empty()) {
      external_dir_ = request_.source.external_dir;
      bytes_ = std::shared_ptr<const void>(std::shared_ptr<const void>(), request_.source.data);  // the caller's, for the call
      size_ = request_.source.size;
      return;
    }
    const std::size_t slash = request_.source.path.find_last_of('/');
    external_dir_ = slash == std::string::npos ? "." : (slash == 0 ? "/" : request_.source.path.substr(0, slash));
    out_.file_name = slash == std::string::npos ? request_.source.path : request_.source.path.substr(slash + 1);
    image_ = read_image(os::open_for_reading(request_.source.path, limits_.model_bytes), runtime_.cpu().ledger(), deadline_ns_);
    image_.file->check_unchanged();
    bytes_ = image_.bytes;
    size_ = static_cast<std::size_t>(image_.file->size());
  }

  // What the model has wrong is a finding; what stops the inspection itself is not.
  void record(const Error& e) {
    if (e.status == EVN_ERROR_OUT_OF_MEMORY || e.status == EVN_ERROR_INTERNAL || e.status == EVN_ERROR_TIMEOUT ||
        e.status == EVN_ERROR_CANCELLED)
      throw e;
    if (!out_.error.has_value()) out_.error = e;
  }

  // The steps of loading after the file has been read. Nodes of these names, and with `prune` all that are not supported, are left
  // out.
  void prepare(Model& model, bool prune, const std::set<std::string>& names, std::size_t* left_out) const {
    if (prune) {
      expand_functions(model, limits_, &runtime_.operators());
      *left_out = Pruner(model, names, runtime_.operators()).run();
    }
    validate_model(model, limits_, &runtime_.operators());
    infer_graph(model.graph);
    std::vector<const char*> disabled;
    for (const std::string& name : settings_->config.disabled_passes) disabled.push_back(name.c_str());
    optimize_graph(model.graph, {runtime_.cpu().ledger(), limits_, deadline_ns_}, disabled);
  }

  void estimate(const Graph& graph, std::size_t left_out) {
    std::size_t held = size_;
    for (const Gap& gap : image_.gaps) held -= static_cast<std::size_t>(gap.size);
    out_.estimate =
        estimate_run(graph, runtime_, {{static_cast<const unsigned char*>(bytes_.get()), size_}, held, image_.file != nullptr});
    out_.estimate->nodes_left_out = left_out;
    out_.estimate->complete &= left_out == 0;
  }

  void follow(const Model& read, const InputShapes& shapes) {
    std::set<std::string> names;
    std::size_t left_out = 0;
    for (bool prune = false;; prune = true) {
      Model model = copy_model(read);
      shapes.apply(model);
      try {
        prepare(model, prune, names, &left_out);
        return estimate(model.graph, left_out);
      } catch (const Error& e) {
        if (shapes.given() && loads_without_shapes(read, prune, names)) {
          misfit_ =
              make_error(EVN_ERROR_INVALID_ARGUMENT, "the model cannot run with these shapes: %s", e.message).with_node(e.node);
          return;
        }
        record(e);
        if (e.status != EVN_ERROR_UNSUPPORTED || e.node[0] == '\0') return;
        if (!prune) continue;
        if (names.size() >= kMaxRefusals || !names.insert(e.node).second) return;
        out_.refused.push_back({e.node, e.message});
      }
    }
  }

  bool loads_without_shapes(const Model& read, bool prune, const std::set<std::string>& names) const {
    Model model = copy_model(read);
    std::size_t left_out = 0;
    try {
      prepare(model, prune, names, &left_out);
      return true;
    } catch (const Error& e) {
      if (e.status == EVN_ERROR_OUT_OF_MEMORY || e.status == EVN_ERROR_TIMEOUT) throw;
      return false;
    }
  }
};

}  // namespace

std::string shown_domain(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

Inspection inspect_model(Runtime& runtime, const InspectRequest& request) { return Inspector(runtime, request).run(); }

}  // namespace evn
