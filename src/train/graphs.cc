#include "train/graphs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/cancel.h"
#include "base/text.h"
#include "ops/op.h"
#include "train/library.h"
#include "train/loss.h"
#include "train/loss_scale.h"
#include "train/rank_sums.h"

namespace evn_train {
namespace {

using evn::NodeWriter;
using evn::Shape;

constexpr char kGradientDomain[] = "ai.onnx.preview.training";
constexpr char kBatch[] = "evener_batch";
constexpr char kLossScale[] = "evener/loss_scale";

void import_domain(evn::Model* m, const char* domain, std::int64_t version) {
  const auto is_it = [&](const evn::OpsetImport& opset) { return opset.domain == domain; };
  if (std::none_of(m->opsets.begin(), m->opsets.end(), is_it)) m->opsets.push_back({domain, version});
}

}  // namespace

std::size_t Parameter::bytes() const {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t dim : dims) bytes *= static_cast<std::size_t>(dim);  // of a tensor that is in memory
  return bytes;
}

std::string gradient_name(const std::string& name) { return "evener/gradient/" + name; }

std::string dims_text(std::span<const std::int64_t> dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

TrainingGraphs::TrainingGraphs(const SourceModel& source, const Settings& settings) : model_(source.model), settings_(settings) {
  check_output();
  find_output();
  free_batches();
  find_parameters(source.literals);
  check_bodies();
  find_norms(source.frozen_norms);
  for (std::size_t g = 0; g < settings_.groups.size(); ++g) {
    const auto is_in = [&](const Parameter& p) { return p.group == g; };
    if (std::any_of(parameters_.begin(), parameters_.end(), is_in)) used_groups_.push_back(g);
  }
}

// An output that is the loss has one element. Its first dim may be that of the batch.
void TrainingGraphs::check_output() const {
  if (settings_.given.loss != EVN_LOSS_OUTPUT) return;
  for (const ValueId v : graph().outputs) {
    const Value& output = graph().values[at(v)];
    if (!settings_.output.empty() && output.name != settings_.output) continue;
    for (int i = 1; output.has_shape && i < output.shape.rank(); ++i) {
      if (output.shape[i] >= 0 && output.shape[i] != 1) {
        fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%.128s\", which is the loss, has the shape %s, expected one element",
             output.name.c_str(), dims_text(output.shape.dims()).c_str());
      }
    }
    return;
  }
}

// Dim 0 of inputs is the batch.
void TrainingGraphs::free_batches() {
  for (const ValueId v : graph().inputs) {
    Value& input = value(v);
    if (input.wraps || !input.has_shape || input.shape.rank() == 0) continue;
    if (input.shape[0] >= 0)
      notes_.push_back("input " + input.name + " is declared for batches of " + std::to_string(input.shape[0]));
    input.shape[0] = -1;
    input.symbols.resize(static_cast<std::size_t>(input.shape.rank()));
    input.symbols[0] = kBatch;
  }
}

std::vector<std::string> TrainingGraphs::inputs() const {
  std::vector<std::string> names;
  for (const ValueId v : graph().inputs) names.push_back(name_of(graph(), v));
  return names;
}

std::vector<std::string> TrainingGraphs::defaults() const {
  std::vector<std::string> names;
  for (const evn::InputDefault& d : model_.defaults) names.push_back(d.declared.name);
  return names;
}

// BatchNormalization and Dropout in branches and bodies do as in inference, which `frozen` has to ask for.
void TrainingGraphs::check_bodies() {
  for (const Node& node : graph().nodes) {
    for_each_inner(node, [&](const NodeAt& place) {
      const Node& inner = *place.node;
      const bool normalizes = inner.op_type == "BatchNormalization";
      if (!inner.domain.empty() || (!normalizes && inner.op_type != "Dropout")) return;
      if (fits_any(settings_.frozen, inner.name)) {
        frozen_.push_back({inner.name, normalizes ? "frozen: it normalizes by its statistics" : "frozen: it drops nothing"});
        return;
      }
      throw evn::make_error(EVN_ERROR_UNSUPPORTED,
                            "%s \"%.128s\" is in a body of %.64s \"%.128s\", where it does not train; name it in frozen",
                            inner.op_type.c_str(), inner.name.c_str(), node.op_type.c_str(), node.name.c_str())
          .with_node(inner.name.c_str());
    });
  }
}

void TrainingGraphs::find_norms(const std::set<std::size_t>& frozen) {
  std::set<ValueId> taken;
  for (std::size_t n = 0; n < graph().nodes.size(); ++n) {
    evn::cancellation_point(evn::kNodeWork);
    const Node& node = graph().nodes[n];
    if (!is_batch_norm(node)) continue;
    // The name of a copy, which separate_statistics has made, freezes the nodes that read it.
    const auto is_named = [&](ValueId statistic) { return fits_any(settings_.frozen, name_of(graph(), statistic)); };
    if (frozen.contains(n) || is_named(node.inputs[3]) || is_named(node.inputs[4])) {
      frozen_.push_back({node.name, "frozen: it normalizes by its statistics"});
      continue;
    }
    const ValueId mean = node.inputs[3], variance = node.inputs[4];
    if (!is_float_constant(value(mean)) || !is_float_constant(value(variance))) {
      frozen_.push_back({node.name, "its statistics are no initializers"});
      continue;
    }
    if (!taken.insert(mean).second || !taken.insert(variance).second) {
      throw evn::make_error(EVN_ERROR_UNSUPPORTED, "node \"%.128s\" shares its statistics with another BatchNormalization",
                            node.name.c_str())
          .with_node(node.name.c_str());
    }
    trained_norms_.push_back(n);
    for (const ValueId s : {mean, variance}) {
      const std::span<const std::int64_t> dims = value(s).constant->desc.shape.dims();
      statistics_.push_back({name_of(graph(), s), {dims.begin(), dims.end()}, s, 0});
    }
  }
}

bool TrainingGraphs::takes(Labels labels) const {
  switch (settings_.given.loss) {
    case EVN_LOSS_SOFTMAX_CROSS_ENTROPY: return labels != Labels::kNone;
    case EVN_LOSS_OUTPUT: return labels == Labels::kNone;
    default: return labels == Labels::kNumbers;
  }
}

Labels TrainingGraphs::usual_labels() const {
  switch (settings_.given.loss) {
    case EVN_LOSS_OUTPUT: return Labels::kNone;
    case EVN_LOSS_SOFTMAX_CROSS_ENTROPY: return Labels::kClasses;
    default: return Labels::kNumbers;
  }
}

std::vector<std::string> TrainingGraphs::optimizer_states() const {
  const evn_trainer_options& o = settings_.given;
  switch (o.optimizer) {
    case EVN_OPTIMIZER_ADAGRAD: return {"square"};
    case EVN_OPTIMIZER_ADAM:
    case EVN_OPTIMIZER_ADAMW: return {"average", "square"};
    default: break;
  }
  std::vector<std::string> states;
  if (o.optimizer == EVN_OPTIMIZER_RMSPROP) states.emplace_back("square");
  if (o.momentum != 0) states.emplace_back("momentum");
  if (o.optimizer == EVN_OPTIMIZER_RMSPROP && (o.flags & EVN_TRAIN_CENTERED) != 0) states.emplace_back("average");
  return states;
}

// A model without nodes, of the source's opsets.
evn::Model TrainingGraphs::empty_model() const {
  evn::Model m;
  m.ir_version = model_.ir_version;
  m.opsets = model_.opsets;
  m.graph.name = "evener";
  return m;
}

// The model with parameters and statistics as inputs to come, and without outputs. Shapes of what nodes make are those of another
// batch.
evn::Model TrainingGraphs::without_parameters() const {
  evn::Model m = empty_model();
  m.graph = evn::copy_with_bodies(graph());
  for (const Node& node : m.graph.nodes) {
    for (const ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      Value fresh;
      fresh.name = std::move(m.graph.values[at(v)].name);
      m.graph.values[at(v)] = std::move(fresh);
    }
  }
  for (const auto* list : {&parameters_, &statistics_}) {
    for (const Parameter& p : *list) m.graph.values[at(p.value)].constant.reset();
  }
  m.graph.outputs.clear();
  return m;
}

// Returns the labels; kNoValue: there are none.
ValueId TrainingGraphs::add_inputs(NodeWriter& w, Labels labels) const {
  ValueId of_labels = kNoValue;
  if (labels != Labels::kNone) of_labels = w.add_input(kLabels, labels == Labels::kClasses ? DType::kInt64 : DType::kFloat32, {});
  for (const auto* list : {&parameters_, &statistics_}) {
    for (const Parameter& p : *list) w.declare_input(p.value, DType::kFloat32, p.shape());
  }
  return of_labels;
}

evn::Model TrainingGraphs::gradient_model(Labels labels, std::int64_t sums) const {
  evn::Model m = without_parameters();
  NodeWriter w(&m.graph);
  const ValueId of_labels = add_inputs(w, labels);
  const auto is_dropout = [](const Node& n) { return n.op_type == "Dropout" && n.domain.empty(); };
  if (std::any_of(m.graph.nodes.begin(), m.graph.nodes.end(), is_dropout)) {
    const ValueId yes = w.flag(true);
    for (Node& node : m.graph.nodes) {
      if (!is_dropout(node)) continue;
      node.inputs.resize(3, kNoValue);
      node.inputs[2] = yes;
    }
  }
  const ValueId loss = add_loss(w, settings_.given.loss, of_labels, labels, logits_);
  std::vector<std::string> names;
  std::vector<ValueId> values;
  for (const Parameter& p : parameters_) {
    names.push_back(p.name);
    values.push_back(p.value);
  }
  ValueId differentiated = loss;
  if (LossScale::is_used(settings_.given)) differentiated = w.op("Mul", {loss, w.add_input(kLossScale, DType::kFloat32, Shape())});
  const std::vector<ValueId> gradients =
      w.ops("Gradient", values, values.size(), {evn::make_attribute("xs", names), evn::make_attribute("y", w.name(differentiated))},
            kGradientDomain);
  import_domain(&m, kGradientDomain, 1);
  w.add_output_as("evener/loss", loss, DType::kFloat32, Shape());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    w.add_output_as(gradient_name(names[i]), gradients[i], DType::kFloat32, parameters_[i].shape());
  if (sums != 0 && !trained_norms_.empty()) import_domain(&m, kTrainDomain, 1);
  for (const std::size_t n : trained_norms_) {
    if (sums == 0) train_norm(&m.graph, n);
    else synchronize_norm(&m.graph, n, sums);
  }
  give_shape(w, logits_);
  return m;
}

evn::Model TrainingGraphs::evaluation_model(Labels labels) const {
  evn::Model m = without_parameters();
  NodeWriter w(&m.graph);
  const ValueId of_labels = add_inputs(w, labels);
  w.add_output_as("evener/loss", add_loss(w, settings_.given.loss, of_labels, labels, logits_), DType::kFloat32, Shape());
  const Rightness r = add_rightness(w, settings_.given.loss, of_labels, labels, logits_);
  w.add_output_as("evener/right", r.right, DType::kInt64, Shape());
  w.add_output_as("evener/count", r.count, DType::kInt64, Shape());
  give_shape(w, logits_);
  return m;
}

evn::Model TrainingGraphs::shape_model() const {
  evn::Model m = without_parameters();
  NodeWriter w(&m.graph);
  add_inputs(w, Labels::kNone);
  give_shape(w, logits_);
  return m;
}

evn::Model TrainingGraphs::adding_model() const {
  evn::Model m = empty_model();
  NodeWriter w(&m.graph);
  std::vector<ValueId> sums, gradients;
  for (const Parameter& p : parameters_) sums.push_back(w.add_input("evener/sum/" + p.name, DType::kFloat32, p.shape()));
  for (const Parameter& p : parameters_) gradients.push_back(w.add_input(gradient_name(p.name), DType::kFloat32, p.shape()));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    w.add_output(w.op("Add", {sums[i], gradients[i]}), DType::kFloat32, parameters_[i].shape());
  return m;
}

namespace {

// OptimizerStep's attributes.
std::vector<evn::Attribute> optimizer_attributes(const evn_trainer_options& o) {
  const auto real = [](const char* name, double value) { return evn::make_attribute(name, static_cast<float>(value)); };
  return {evn::make_attribute("kind", optimizer_name(o.optimizer)),
          real("momentum", o.momentum),
          real("dampening", o.dampening),
          real("beta1", o.beta1),
          real("beta2", o.beta2),
          real("epsilon", o.epsilon),
          real("alpha", o.alpha),
          real("lr_decay", o.rate_decay),
          evn::make_attribute("nesterov", (o.flags & EVN_TRAIN_NESTEROV) != 0 ? 1 : 0),
          evn::make_attribute("centered", (o.flags & EVN_TRAIN_CENTERED) != 0 ? 1 : 0)};
}

// What the rates of a group are multiplied by, so that the norm of all gradients together is at most `clip`.
ValueId clip_factors(NodeWriter& w, double clip, ValueId norm) {
  const ValueId share = w.op("Div", {w.number(static_cast<float>(clip)), w.op("Add", {norm, w.number(1e-6f)})});
  const ValueId least = w.op("Reshape", {w.op("Min", {share, w.number(1)}), w.integers({1})});
  const auto ones = [&](std::int64_t count) { return w.op("Expand", {w.number(1), w.integers({count})}); };
  return w.op("Concat", {ones(2), least, ones(5)}, {evn::make_attribute("axis", 0)});  // the third is the scale of gradients
}

}  // namespace

evn::Model TrainingGraphs::update_model() const {
  evn::Model m = empty_model();
  NodeWriter w(&m.graph);
  const auto own = [&](const char* op, std::vector<ValueId> inputs, std::size_t outputs,
                       std::vector<evn::Attribute> attributes = {}) {
    return w.ops(op, std::move(inputs), outputs, std::move(attributes), evn::kInternalDomain);
  };
  const std::size_t count = parameters_.size();
  const ValueId loss = w.add_input("evener/loss", DType::kFloat32, Shape());
  const ValueId safe_norm = w.add_input("evener/safe_norm", DType::kFloat32, Shape());
  std::vector<ValueId> statistics, rates, gradients;
  for (const Statistic& s : statistics_) statistics.push_back(w.add_input("evener/new/" + s.name, DType::kFloat32, s.shape()));
  for (const std::size_t g : used_groups_)
    rates.push_back(w.add_input("evener/rates" + std::to_string(g), DType::kFloat32, Shape{8}));
  std::vector<std::vector<ValueId>> moved(1 + optimizer_state_count());  // parameters, then their state by kind
  for (const Parameter& p : parameters_) moved[0].push_back(w.add_input(p.name, DType::kFloat32, p.shape()));
  for (const Parameter& p : parameters_) gradients.push_back(w.add_input(gradient_name(p.name), DType::kFloat32, p.shape()));
  for (std::size_t kind = 1; kind < moved.size(); ++kind) {
    const std::string prefix = "evener/optimizer_state" + std::to_string(kind - 1) + "/";
    for (const Parameter& p : parameters_) moved[kind].push_back(w.add_input(prefix + p.name, DType::kFloat32, p.shape()));
  }
  const auto norm_of = [&](ValueId scale, std::vector<ValueId> inputs) {
    inputs.insert(inputs.begin(), scale);
    return own("GradientNorm", std::move(inputs), 2);
  };
  constexpr std::int64_t kGradientScale = 2;  // among the rates, where it is that of all groups
  const std::vector<ValueId> of_gradients = norm_of(w.op("Gather", {rates[0], w.integer(kGradientScale)}), gradients);
  const ValueId norm = of_gradients[0];
  const ValueId lost = w.op("Or", {w.op("IsNaN", {loss}), w.op("IsInf", {loss})});
  ValueId finite = w.op("And", {of_gradients[1], w.op("Not", {lost})});
  if (!statistics.empty()) finite = w.op("And", {finite, norm_of(w.number(1), statistics)[1]});
  const ValueId moves = w.op("And", {finite, w.op("LessOrEqual", {norm, safe_norm})});
  const ValueId factors = settings_.given.clip_norm > 0 ? clip_factors(w, settings_.given.clip_norm, norm) : kNoValue;
  std::vector<std::vector<ValueId>> made(moved.size(), std::vector<ValueId>(count, kNoValue));
  for (std::size_t i = 0; i < used_groups_.size(); ++i) {
    std::vector<std::size_t> group;
    for (std::size_t p = 0; p < count; ++p) {
      if (parameters_[p].group == used_groups_[i]) group.push_back(p);
    }
    std::vector<ValueId> inputs = {factors == kNoValue ? rates[i] : w.op("Mul", {rates[i], factors}), moves};
    for (std::size_t kind = 0; kind < moved.size(); ++kind) {
      for (const std::size_t p : group) inputs.push_back(moved[kind][p]);
      for (const std::size_t p : group) {
        if (kind == 0) inputs.push_back(gradients[p]);
      }
    }
    const std::vector<ValueId> outputs =
        own("OptimizerStep", std::move(inputs), group.size() * moved.size(), optimizer_attributes(settings_.given));
    for (std::size_t k = 0; k < outputs.size(); ++k) made[k / group.size()][group[k % group.size()]] = outputs[k];
  }
  w.add_output_as("evener/norm", norm, DType::kFloat32, Shape());
  w.add_output_as("evener/finite", finite, DType::kBool, Shape());
  w.add_output_as("evener/moved", moves, DType::kBool, Shape());
  for (const std::vector<ValueId>& kind : made) {  // no Identity behind them, so that they are in place
    for (std::size_t p = 0; p < count; ++p) w.add_output(kind[p], DType::kFloat32, parameters_[p].shape());
  }
  return m;
}

}  // namespace evn_train
