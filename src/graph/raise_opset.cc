// A node that the tables of ops/ describe by one row in both versions means the same in both. Where the rows differ, kChanges says
// what is to be done; an operator that is not there is refused.
#include "graph/raise_opset.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/unique_names.h"
#include "ops/merge.h"

namespace evn {
namespace {

class Raiser {
 public:
  Raiser(Graph& graph, std::int64_t to, const LedgerPtr& ledger) : graph_(graph), to_(to), ledger_(ledger) {
    for (const Value& v : graph.values) names_.take(v.name);
  }

  void run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    graph_.nodes.reserve(old.size());
    for (Node& node : old) {
      cancellation_point(kNodeWork);
      from_ = node.since_version;  // of nodes of a function, what that imports
      const std::int32_t region = node.region;
      if (node.domain.empty() && from_ != to_) raise(node);
      for (auto* const nodes : {&before_, &behind_}) {
        for (Node& n : *nodes) n.region = region;
      }
      for (Node& n : before_) graph_.nodes.push_back(std::move(n));
      node.since_version = node.domain.empty() ? static_cast<int>(to_) : node.since_version;
      graph_.nodes.push_back(std::move(node));
      for (Node& n : behind_) graph_.nodes.push_back(std::move(n));
      before_.clear();
      behind_.clear();
    }
  }

 private:
  using Change = void (Raiser::*)(Node& node);
  struct Row {
    std::string_view op;
    Change change;
  };

  Graph& graph_;
  std::int64_t from_ = 0, to_;
  const LedgerPtr& ledger_;
  UniqueNames names_;
  std::vector<Node> before_, behind_;  // new nodes around the one that is looked at

  [[noreturn]] void refuse(const Node& node, const char* why) const {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s of opset %lld cannot be written as opset %lld: %s", node.op_type.c_str(),
                     static_cast<long long>(from_), static_cast<long long>(to_), why)
        .with_node(node.name.c_str());
  }

  void raise(Node& node) {
    // Names that the new version has no more; the tables go on with the old row.
    const bool renamed = (node.op_type == "Upsample" && to_ >= 10) || (node.op_type == "Scatter" && to_ >= 11);
    if (!renamed && from_ >= kOldestRaised && find_op("", node.op_type, from_) == find_op("", node.op_type, to_)) return;
    if (from_ < kOldestRaised || to_ > kNewestRaised) refuse(node, "how is not known");
    static constexpr Row kChanges[] = {
        {"AffineGrid", &Raiser::same},
        {"ArgMax", &Raiser::same},
        {"ArgMin", &Raiser::same},
        {"AveragePool", &Raiser::same},
        {"BatchNormalization", &Raiser::batch_normalization},
        {"Cast", &Raiser::same},
        {"Clip", &Raiser::clip},
        {"Concat", &Raiser::same},
        {"Conv", &Raiser::same},
        {"ConvTranspose", &Raiser::same},
        {"DequantizeLinear", &Raiser::same},
        {"Dropout", &Raiser::dropout},
        {"GRU", &Raiser::same},
        {"Gemm", &Raiser::same},
        {"GridSample", &Raiser::grid_sample},
        {"Hardmax", &Raiser::softmax},
        {"LSTM", &Raiser::same},
        {"LogSoftmax", &Raiser::softmax},
        {"LpPool", &Raiser::same},
        {"MaxPool", &Raiser::same},
        {"NonMaxSuppression", &Raiser::same},
        {"OneHot", &Raiser::same},
        {"Pad", &Raiser::pad},
        {"QuantizeLinear", &Raiser::same},
        {"RNN", &Raiser::same},
        {"ReduceL1", &Raiser::axes},
        {"ReduceL2", &Raiser::axes},
        {"ReduceLogSum", &Raiser::axes},
        {"ReduceLogSumExp", &Raiser::axes},
        {"ReduceMax", &Raiser::axes},
        {"ReduceMean", &Raiser::axes},
        {"ReduceMin", &Raiser::axes},
        {"ReduceProd", &Raiser::axes},
        {"ReduceSum", &Raiser::axes},
        {"ReduceSumSquare", &Raiser::axes},
        {"Reshape", &Raiser::same},
        {"Resize", &Raiser::resize},
        {"RoiAlign", &Raiser::roi_align},
        {"Scatter", &Raiser::scatter},
        {"ScatterElements", &Raiser::same},
        {"ScatterND", &Raiser::same},
        {"Shape", &Raiser::same},
        {"Slice", &Raiser::slice},
        {"Softmax", &Raiser::softmax},
        {"Split", &Raiser::split},
        {"Squeeze", &Raiser::axes},
        {"TopK", &Raiser::top_k},
        {"Unsqueeze", &Raiser::axes},
        {"Upsample", &Raiser::resize},
    };
    const auto row = std::find_if(std::begin(kChanges), std::end(kChanges), [&](const Row& r) { return r.op == node.op_type; });
    if (row == std::end(kChanges)) refuse(node, "how is not known");
    (this->*row->change)(node);
  }

  // ----------------------------------------------------------------------------------------------- how they change --

  void same(Node& /*node*/) {}

  void batch_normalization(Node& node) {
    if (const std::optional<std::int64_t> spatial = take_int(node, "spatial"); spatial.value_or(1) != 1)
      refuse(node, "spatial is 0");
    if (node.outputs.size() > 1) refuse(node, "it has more than one output");
  }

  void clip(Node& node) {
    for (const char* name : {"min", "max"}) {
      const std::optional<Attribute> a = take(node, name);
      if (!a.has_value() && std::strcmp(name, "min") != 0) break;
      node.inputs.push_back(a.has_value() ? constant<float>(node, name, DType::kFloat32, {std::get<float>(a->value)}, true)
                                          : kNoValue);
    }
    while (node.inputs.back() == kNoValue) node.inputs.pop_back();
    const DType dtype = graph_.values[static_cast<std::size_t>(node.inputs[0])].dtype;
    if (node.inputs.size() > 1 && dtype != DType::kFloat32) refuse(node, "its bounds are not float32");
  }

  void dropout(Node& node) {
    if (from_ < 10 && node.outputs.size() > 1) refuse(node, "its mask has another type");
    if (to_ < 12) return;  // the ratio is an attribute there too
    if (const std::optional<Attribute> ratio = take(node, "ratio"))
      node.inputs.push_back(constant<float>(node, "ratio", DType::kFloat32, {std::get<float>(ratio->value)}, true));
  }

  void grid_sample(Node& node) {
    for (Attribute& a : node.attributes) {
      if (a.name != "mode") continue;
      std::string& mode = std::get<std::string>(a.value);
      if (mode == "bilinear") mode = "linear";
      if (mode == "bicubic") mode = "cubic";
    }
    if (std::none_of(node.attributes.begin(), node.attributes.end(), [](const Attribute& a) { return a.name == "mode"; })) {
      node.attributes.push_back({"mode", std::string("linear")});
    }
  }

  void pad(Node& node) {
    const std::optional<Attribute> pads = take(node, "pads");
    if (!pads.has_value()) return;  // they are an input already
    const std::optional<Attribute> value = take(node, "value");
    node.inputs.push_back(ints(node, "pads", std::get<std::vector<std::int64_t>>(pads->value)));
    if (!value.has_value()) return;
    if (graph_.values[static_cast<std::size_t>(node.inputs[0])].dtype != DType::kFloat32) refuse(node, "its value is not float32");
    node.inputs.push_back(constant<float>(node, "value", DType::kFloat32, {std::get<float>(value->value)}, true));
  }

  // Also of reductions that have an input for them already, or have none yet in the new version.
  void axes(Node& node) {
    const OpDef* const op = find_op("", node.op_type, to_);
    if (op == nullptr || op->max_inputs < 2) return;  // null: validation says that this build lacks it
    if (const std::optional<Attribute> a = take(node, "axes")) {
      node.inputs.push_back(ints(node, "axes", std::get<std::vector<std::int64_t>>(a->value)));
    }
  }

  // Upsample 7 and 9, Resize 10: corners stay where they are, and the nearest element is the one before.
  void resize(Node& node) {
    if (node.op_type == "Resize" && from_ >= 11) return;
    if (const std::optional<Attribute> a = take(node, "scales")) {
      node.inputs.push_back(constant<float>(node, "scales", DType::kFloat32, std::get<std::vector<float>>(a->value), false));
    }
    if (to_ < 10) return;  // there is no Resize yet
    node.op_type = "Resize";
    if (to_ < 11) return;
    node.inputs.insert(node.inputs.begin() + 1, to_ < 13 ? constant<float>(node, "roi", DType::kFloat32, {}, false) : kNoValue);
    node.attributes.push_back({"coordinate_transformation_mode", std::string("asymmetric")});
    node.attributes.push_back({"nearest_mode", std::string("floor")});
  }

  void roi_align(Node& node) {
    if (from_ < 16 && to_ >= 16) node.attributes.push_back({"coordinate_transformation_mode", std::string("output_half_pixel")});
  }

  void scatter(Node& node) { node.op_type = "ScatterElements"; }

  void slice(Node& node) {
    const std::optional<Attribute> starts = take(node, "starts"), ends = take(node, "ends"), axes = take(node, "axes");
    if (!starts.has_value() || !ends.has_value()) return;
    node.inputs.push_back(ints(node, "starts", std::get<std::vector<std::int64_t>>(starts->value)));
    node.inputs.push_back(ints(node, "ends", std::get<std::vector<std::int64_t>>(ends->value)));
    if (axes.has_value()) node.inputs.push_back(ints(node, "axes", std::get<std::vector<std::int64_t>>(axes->value)));
  }

  // Before opset 13 all axes from `axis` (1) on are one.
  void softmax(Node& node) {
    if (from_ >= 13 || to_ < 13) return;
    const Value& x = graph_.values[static_cast<std::size_t>(node.inputs[0])];
    if (!x.has_shape) refuse(node, "the rank of its input is not known");
    const std::int64_t given = take_int(node, "axis").value_or(1), rank = x.shape.rank(), axis = given < 0 ? given + rank : given;
    node.attributes.push_back({"axis", std::int64_t{-1}});
    if (axis == rank - 1) return;
    const ValueId input = node.inputs[0], output = node.outputs[0];
    const DType dtype = x.dtype;
    const ValueId flat = value(node.name + "_flat", dtype), result = value(node.name + "_flat_result", dtype);
    const ValueId shape = value(node.name + "_shape", DType::kInt64);
    before_.push_back(new_node("Flatten", node.name + "_Flatten", {input}, {flat}));
    before_.back().attributes.push_back({"axis", axis});
    before_.push_back(new_node("Shape", node.name + "_Shape", {input}, {shape}));
    node.inputs[0] = flat;
    node.outputs[0] = result;
    behind_.push_back(new_node("Reshape", node.name + "_Reshape", {result, shape}, {output}));
  }

  void split(Node& node) {
    if (const std::optional<Attribute> a = take(node, "split")) {
      node.inputs.push_back(ints(node, "split", std::get<std::vector<std::int64_t>>(a->value)));
    }
    if (to_ >= 18 && node.inputs.size() < 2)
      node.attributes.push_back({"num_outputs", static_cast<std::int64_t>(node.outputs.size())});
  }

  void top_k(Node& node) {
    if (const std::optional<std::int64_t> k = take_int(node, "k")) node.inputs.push_back(ints(node, "k", {*k}));
  }

  // -------------------------------------------------------------------------------------------------------- parts --

  static std::optional<Attribute> take(Node& node, std::string_view name) {
    const auto it =
        std::find_if(node.attributes.begin(), node.attributes.end(), [&](const Attribute& a) { return a.name == name; });
    if (it == node.attributes.end()) return std::nullopt;
    Attribute a = std::move(*it);
    node.attributes.erase(it);
    return a;
  }
  static std::optional<std::int64_t> take_int(Node& node, std::string_view name) {
    const std::optional<Attribute> a = take(node, name);
    return a.has_value() ? std::optional(std::get<std::int64_t>(a->value)) : std::nullopt;
  }

  ValueId value(const std::string& name, DType dtype) {
    Value v;
    v.name = names_.make(name);
    v.dtype = dtype;
    graph_.values.push_back(std::move(v));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  template <typename T>
  ValueId constant(const Node& node, const char* what, DType dtype, const std::vector<T>& numbers, bool scalar) {
    const Shape shape = scalar ? Shape{} : Shape{static_cast<std::int64_t>(numbers.size())};
    void* to = nullptr;
    WeightPtr weight = make_unfilled_weight({dtype, shape}, ledger_, &to);
    if (!numbers.empty()) std::memcpy(to, numbers.data(), numbers.size() * sizeof(T));
    const ValueId id = value(node.name + "_" + what, dtype);
    Value& v = graph_.values[static_cast<std::size_t>(id)];
    v.has_shape = true;
    v.shape = shape;
    v.constant = std::move(weight);
    return id;
  }
  ValueId ints(const Node& node, const char* what, const std::vector<std::int64_t>& numbers) {
    return constant<std::int64_t>(node, what, DType::kInt64, numbers, false);
  }

  static Node new_node(const char* op, const std::string& name, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    Node n;
    n.name = name;
    n.op_type = op;
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    return n;
  }
};

}  // namespace

namespace {

// Functions import for themselves.
void import_domain(Model& model, const Node& node) {
  const auto it =
      std::find_if(model.opsets.begin(), model.opsets.end(), [&](const OpsetImport& o) { return o.domain == node.domain; });
  if (it == model.opsets.end()) {
    model.opsets.push_back({node.domain, node.since_version});
  } else if (it->version != node.since_version && find_op(node.domain, node.op_type, it->version) != node.op) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "a function imports another version of %.64s than the model", node.domain.c_str())
        .with_node(node.name.c_str());
  }
}

}  // namespace

std::int64_t opset_of(const Model& model) {
  for (const OpsetImport& o : model.opsets) {
    if (o.domain.empty() || o.domain == "ai.onnx") return o.version;
  }
  return 0;
}

void raise_opset(Model& model, std::int64_t version, const LedgerPtr& ledger) {
  EVN_CHECK(version <= kNewestRaised);
  const std::int64_t from = opset_of(model);
  const bool imports_onnx = from != 0;  // a model may import other domains alone
  version = std::max(version, from);
  bool all = from == version;
  for (const Node& n : model.graph.nodes) {
    cancellation_point(kNodeWork);
    if (n.domain.empty()) {
      version = std::max(version, static_cast<std::int64_t>(n.since_version));
      all &= n.since_version == from;
    } else if (n.domain != kInternalDomain) {
      import_domain(model, n);
    }
  }
  if (all && version == from) return;
  if (imports_onnx && from < kOldestRaised) {
    fail(EVN_ERROR_UNSUPPORTED, "the model imports opset %lld, which is too old to be written as opset %lld: the oldest is %lld",
         static_cast<long long>(from), static_cast<long long>(version), static_cast<long long>(kOldestRaised));
  }
  Raiser(model.graph, version, ledger).run();
  for (OpsetImport& o : model.opsets) {
    if (o.domain.empty() || o.domain == "ai.onnx") o.version = version;
  }
  if (!imports_onnx) model.opsets.push_back({"", version});
  // The version of the file's format in which the opset came out; since 4 constants need not be inputs too.
  const std::int64_t format = version >= 21 ? 10 : version >= 19 ? 9 : version >= 15 ? 8 : 7;
  model.ir_version = std::max(model.ir_version, format);
}

}  // namespace evn
