#include "train/ways.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "base/cancel.h"

namespace evn_train {
namespace {

constexpr int kExactPasses = 8;  // over a body, in each of which a chain of carried values may be one link longer

// Inputs that say how an operator works. An initializer there is no parameter.
struct Option {
  std::string_view op;
  std::size_t first, last;
  // Derivative by a value there that other nodes compute; kType: only the element type is read, so that any value may be there.
  enum { kIgnored, kSmooth, kStepwise, kType } computed = kIgnored;
};
constexpr Option kOptions[] = {
    {"Resize", 1, 3},
    {"Upsample", 1, 1},
    {"Pad", 1, 1},
    {"Pad", 2, 2, Option::kSmooth},
    {"Pad", 3, 3},
    {"Clip", 1, 2, Option::kSmooth},
    {"Dropout", 1, 2},
    {"BatchNormalization", 3, 4},
    {"OneHot", 1, 1},
    {"OneHot", 2, 2, Option::kSmooth},
    {"Range", 0, 2},
    {"RoiAlign", 1, 2, Option::kStepwise},
    {"NonMaxSuppression", 2, 4},
    {"QuantizeLinear", 1, 2},
    {"DequantizeLinear", 1, 2},
    {"CastLike", 1, 1, Option::kType},
    {"SoftmaxCrossEntropyLoss", 2, 2},
    {"NegativeLogLikelihoodLoss", 2, 2},
    {"Reshape", 1, 1},
    {"Expand", 1, 1},
    {"Tile", 1, 1},
    {"Slice", 1, 4},
    {"Split", 1, 1},
    {"Unsqueeze", 1, 1},
    {"Squeeze", 1, 1},
    {"TopK", 1, 1},
    {"Trilu", 1, 1},
    {"CumSum", 1, 1},
    {"QLinearConv", 1, 2},
    {"QLinearConv", 4, 7},
    {"QLinearMatMul", 1, 2},
    {"QLinearMatMul", 4, 7},
};

const Option* find_option(const Node& node, std::size_t input) {
  if (!node.domain.empty()) return nullptr;
  const auto* const found = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& row) {
    return node.op_type == row.op && input >= row.first && input <= row.last;
  });
  return found == std::end(kOptions) ? nullptr : found;
}

bool is_one_of(const std::set<std::string_view>& names, const Node& node) {
  return node.domain.empty() && names.contains(node.op_type);
}

// Operators that read the shape of a value alone.
bool reads_shape_alone(const Node& node) {
  static const std::set<std::string_view> kNames = {
      "Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike"};
  return is_one_of(kNames, node);
}

bool compares(const Node& node) {
  static const std::set<std::string_view> kNames = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"};
  return is_one_of(kNames, node);
}

// Operators whose float results change in steps.
bool is_stepwise(const Node& node) {
  static const std::set<std::string_view> kNames = {"Sign", "Floor", "Ceil", "Round", "Hardmax", "Bernoulli", "Multinomial"};
  return is_one_of(kNames, node);
}

}  // namespace

Ways::Ways(const Graph& graph, const std::string& loss) {
  for (const Value& v : graph.values) {
    evn::cancellation_point(evn::kNodeWork);
    if (v.constant == nullptr || !is_float_type(v.constant->desc.dtype)) continue;
    numbers_[v.name] = std::ranges::all_of(v.constant->desc.shape.dims(), [](std::int64_t dim) { return dim == 1; });
  }
  for_each_node(graph, [&](const NodeAt& place) {
    for (const ValueId v : place.node->outputs) {
      if (v != kNoValue && is_no_float(place.graph->values[at(v)])) no_floats_.insert(name_of(*place.graph, v));
    }
  });
  merge(loss, {true, nullptr});
  go_back(graph);
}

Way Ways::of(const std::string& value) const {
  const auto found = ways_.find(value);
  return found == ways_.end() ? Way{} : found->second;
}

const std::string& Ways::option_of(const std::string& value) const {
  static const std::string kNone;
  const auto found = options_.find(value);
  return found == options_.end() ? kNone : found->second;
}

void Ways::merge(const std::string& value, const Way& way) {
  if (value.empty() || !way.reaches()) return;
  Way& have = ways_[value];
  if (way.is_smooth && !have.is_smooth) have.is_smooth = changed_ = true;
  if (way.cut == nullptr || have.cut != nullptr) return;
  have.cut = way.cut;
  changed_ = true;
}

const Cut* Ways::cut_at(const NodeAt& place) {
  const Node& node = *place.node;
  return &cuts_.emplace(node.name.empty() && !node.outputs.empty() ? place.output(0) : node.name, Cut{node.name, node.op_type})
              .first->second;
}

void Ways::go_back(const Graph& graph) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) go_back({&graph, &*node});
}

void Ways::go_back(const NodeAt& place) {
  const Node& node = *place.node;
  evn::cancellation_point(evn::kNodeWork);
  if (has_graph_attribute(node)) return go_back_into_bodies(place);
  Way way;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    evn::cancellation_point(kValueWork);
    const Way of_output = of(place.output(i));
    if (!of_output.reaches()) continue;
    const bool is_cut = is_stepwise(node) || no_floats_.contains(place.output(i));
    if (!is_cut && of_output.is_smooth) way.is_smooth = true;
    if (way.cut == nullptr) way.cut = is_cut ? cut_at(place) : of_output.cut;
  }
  if (!way.reaches() || reads_shape_alone(node)) return;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    evn::cancellation_point(kValueWork);
    const std::string& input = place.input(i);
    const auto number = numbers_.find(input);
    const bool is_constant = number != numbers_.end();
    const Option* const option = find_option(node, i);
    const bool is_threshold = compares(node) && is_constant && number->second;
    if (option != nullptr && option->computed == Option::kType) continue;
    if (is_constant && (option != nullptr || is_threshold)) {
      options_.emplace(input, node.op_type);
    } else if (option == nullptr || option->computed == Option::kSmooth) {
      merge(input, way);
    } else if (option->computed == Option::kStepwise) {
      merge(input, {false, cut_at(place)});
    }
  }
}

// If: outputs are those of both branches. Loop and Scan: what a body makes may be its input in the next iteration, so that it is
// gone through until nothing changes; after kExactPasses each carried value counts as one that is read as all inputs of the body
// are, so that few more passes follow. Conditions and numbers of iterations change the result in steps.
void Ways::go_back_into_bodies(const NodeAt& place) {
  const Node& node = *place.node;
  const bool is_if = node.op_type == "If", is_loop = node.op_type == "Loop";
  const std::size_t of_body = is_loop ? 1 : 0;  // outputs of a body before those of the node
  bool reaches = false;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) reaches = reaches || of(place.output(i)).reaches();
  if (!reaches) return;
  const bool before = changed_;
  bool any = before;
  int passes = 0;
  do {
    changed_ = false;
    ++passes;
    for_each_body(node.attributes, [&](const Graph& body) {
      Way of_all;
      for (const ValueId input : body.inputs) {
        evn::cancellation_point(4 * kValueWork);  // of this loop and of those below
        const Way way = of(name_of(body, input));
        of_all.is_smooth = of_all.is_smooth || way.is_smooth;
        if (of_all.cut == nullptr) of_all.cut = way.cut;
      }
      const auto output = [&](std::size_t i) -> const std::string& { return name_of(body, body.outputs[i]); };
      for (std::size_t i = 0; i < node.outputs.size() && i + of_body < body.outputs.size(); ++i)
        merge(output(i + of_body), of(place.output(i)));
      if (is_loop && !body.outputs.empty()) merge(output(0), {false, cut_at(place)});
      for (std::size_t i = is_loop ? 2 : 0; !is_if && i < body.inputs.size(); ++i) {
        const std::size_t made = is_loop ? i - 1 : i;  // the output that is this input in the next iteration
        const auto scanned = static_cast<std::size_t>(evn::int_attribute_of(node, "num_scan_inputs", 0));
        const bool is_carried = is_loop ? i < node.inputs.size() : i + scanned < body.inputs.size();
        if (is_carried && made < body.outputs.size() && node.op_type != "SequenceMap")
          merge(output(made), passes > kExactPasses ? of_all : of(name_of(body, body.inputs[i])));
      }
      go_back(body);
      for (std::size_t i = is_loop ? 2 : 0; !is_if && i < body.inputs.size() && i < node.inputs.size(); ++i)
        merge(place.input(i), of(name_of(body, body.inputs[i])));
    });
    any = any || changed_;
  } while (changed_);
  changed_ = any;
  const std::size_t conditions = is_if ? 1 : is_loop ? 2 : 0;
  for (std::size_t i = 0; i < conditions && i < node.inputs.size(); ++i) merge(place.input(i), {false, cut_at(place)});
}

}  // namespace evn_train
