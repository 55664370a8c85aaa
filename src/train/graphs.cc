#include "train/graphs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/cancel.h"
#include "base/text.h"
#include "train/library.h"
#include "train/loss.h"
#include "train/loss_scale.h"
#include "train/node_writer.h"
#include "train/rank_sums.h"

namespace evn_train {
namespace {

constexpr char kGradientDomain[] = "ai.onnx.preview.training";
constexpr char kOwnDomain[] = "evener";
constexpr char kBatch[] = "evener_batch";
constexpr char kLossScale[] = "evener/loss_scale";

OnnxValue scalar_value(std::int32_t dtype) { return tensor_value("", dtype, {}); }

void import_domain(OnnxModel* m, const char* domain, std::int64_t version) {
  const auto is_it = [&](const auto& opset) { return opset.first == domain; };
  if (std::none_of(m->opsets.begin(), m->opsets.end(), is_it)) m->opsets.emplace_back(domain, version);
}

}  // namespace

std::size_t Parameter::bytes() const {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t dim : dims) bytes *= static_cast<std::size_t>(dim);  // of a tensor that is in memory
  return bytes;
}

TrainingGraphs::TrainingGraphs(OnnxModel model, const Settings& settings) : model_(std::move(model)), settings_(settings) {
  separate_statistics(&model_);
  check_output();
  find_output();
  free_batches();
  find_parameters();
  check_bodies();
  find_norms();
  for (std::size_t g = 0; g < settings_.groups.size(); ++g) {
    const auto is_in = [&](const Parameter& p) { return p.group == g; };
    if (std::any_of(parameters_.begin(), parameters_.end(), is_in)) used_groups_.push_back(g);
  }
}

// An output that is the loss has one element. Its first dim may be that of the batch.
void TrainingGraphs::check_output() const {
  if (settings_.given.loss != EVN_LOSS_OUTPUT) return;
  for (const OnnxValue& output : model_.outputs) {
    if (!settings_.output.empty() && output.name != settings_.output) continue;
    for (std::size_t i = 1; output.has_shape && i < output.dims.size(); ++i) {
      if (output.dims[i] >= 0 && output.dims[i] != 1) {
        fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%.128s\", which is the loss, has the shape %s, expected one element",
             output.name.c_str(), dims_text(output.dims).c_str());
      }
    }
    return;
  }
}

// Dim 0 of inputs and outputs is the batch.
void TrainingGraphs::free_batches() {
  for (OnnxValue& input : model_.inputs) {
    if (input.dtype == 0 || !input.has_shape || input.dims.empty()) continue;
    if (input.dims[0] >= 0)
      notes_.push_back("input " + input.name + " is declared for batches of " + std::to_string(input.dims[0]));
    input.dims[0] = -1;
    input.symbols.resize(input.dims.size());
    input.symbols[0] = kBatch;
  }
  for (OnnxValue& output : model_.outputs) output.has_shape = false;
}

// BatchNormalization and Dropout in branches and bodies do as in inference, which `frozen` has to ask for.
void TrainingGraphs::check_bodies() {
  for (const OnnxNode& node : model_.nodes) {
    if (!has_body(node)) continue;
    for (const OnnxNode& inner : nodes_in_bodies(node)) {
      evn::cancellation_point(evn::kNodeWork);
      const bool is_norm = inner.op_type == "BatchNormalization";
      if (!inner.domain.empty() || (!is_norm && inner.op_type != "Dropout")) continue;
      if (fits_any(settings_.frozen, inner.name)) {
        frozen_.push_back({inner.name, is_norm ? "frozen: it normalizes by its statistics" : "frozen: it drops nothing"});
        continue;
      }
      throw evn::make_error(EVN_ERROR_UNSUPPORTED,
                            "%s \"%.128s\" is in a body of %.64s \"%.128s\", where it does not train; name it in frozen",
                            inner.op_type.c_str(), inner.name.c_str(), node.op_type.c_str(), node.name.c_str())
          .with_node(inner.name.c_str());
    }
  }
}

void TrainingGraphs::find_norms() {
  std::map<std::string, std::size_t> initializers;
  for (std::size_t i = 0; i < model_.initializers.size(); ++i) {
    evn::cancellation_point(evn::kNodeWork);
    if (model_.initializers[i].dtype == kFloat) initializers.emplace(model_.initializers[i].name, i);
  }
  std::set<std::string> taken;
  for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
    evn::cancellation_point();
    const OnnxNode& node = model_.nodes[n];
    if (node.op_type != "BatchNormalization" || !node.domain.empty() || node.inputs.size() != 5) continue;
    const bool is_frozen = std::any_of(node.inputs.begin() + 3, node.inputs.end(),
                                       [&](const std::string& s) { return fits_any(settings_.frozen, s); });
    if (is_frozen || fits_any(settings_.frozen, node.name)) {
      frozen_.push_back({node.name, "frozen: it normalizes by its statistics"});
      continue;
    }
    const auto mean = initializers.find(node.inputs[3]), variance = initializers.find(node.inputs[4]);
    if (mean == initializers.end() || variance == initializers.end()) {
      frozen_.push_back({node.name, "its statistics are no initializers"});
      continue;
    }
    if (!taken.insert(mean->first).second || !taken.insert(variance->first).second) {
      throw evn::make_error(EVN_ERROR_UNSUPPORTED, "node \"%.128s\" shares its statistics with another BatchNormalization",
                            node.name.c_str())
          .with_node(node.name.c_str());
    }
    trained_norms_.push_back(n);
    for (const auto& s : {mean, variance}) statistics_.push_back({s->first, model_.initializers[s->second].dims, s->second, 0});
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

// The model with parameters and statistics as inputs to come, and without outputs.
OnnxModel TrainingGraphs::without_parameters() const {
  OnnxModel m = model_;
  std::set<std::string> moved;
  for (const auto* list : {&parameters_, &statistics_}) {
    for (const Parameter& p : *list) moved.insert(p.name);
  }
  std::erase_if(m.initializers, [&](const OnnxTensor& t) { return moved.contains(t.name); });
  m.outputs.clear();
  return m;
}

void TrainingGraphs::add_inputs(OnnxModel* m, Labels labels) const {
  if (labels != Labels::kNone) {
    OnnxValue value;
    value.name = kLabels;
    value.dtype = labels == Labels::kClasses ? kInt64 : kFloat;
    m->inputs.push_back(value);
  }
  for (const auto* list : {&parameters_, &statistics_}) {
    for (const Parameter& p : *list) m->inputs.push_back(tensor_value(p.name, kFloat, p.dims));
  }
}

std::string TrainingGraphs::gradient_model(Labels labels, std::int64_t sums) const {
  OnnxModel m = without_parameters();
  add_inputs(&m, labels);
  NodeWriter w(&m);
  const auto is_dropout = [](const OnnxNode& n) { return n.op_type == "Dropout" && n.domain.empty(); };
  if (std::any_of(m.nodes.begin(), m.nodes.end(), is_dropout)) {
    const std::string yes = w.cast(w.integer(1), kBool);
    std::rotate(m.nodes.begin(), m.nodes.end() - 2, m.nodes.end());
    for (OnnxNode& node : m.nodes) {
      if (!is_dropout(node)) continue;
      node.inputs.resize(3);
      node.inputs[2] = yes;
    }
  }
  const std::size_t before = m.nodes.size() - model_.nodes.size();
  const std::string loss = add_loss(w, settings_.given.loss, labels, logits_);
  std::vector<std::string> names;
  for (const Parameter& p : parameters_) names.push_back(p.name);
  std::string differentiated = loss;
  if (LossScale::is_used(settings_.given)) {
    m.inputs.push_back(tensor_value(kLossScale, kFloat, {}));
    differentiated = w.op("Mul", {loss, kLossScale});
  }
  const auto gradients =
      w.ops("Gradient", names, names.size(), {texts_attribute("xs", names), text_attribute("y", differentiated)}, kGradientDomain);
  import_domain(&m, kGradientDomain, 1);
  w.give(loss, "evener/loss", scalar_value(kFloat));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    w.give(gradients[i], gradient_name(names[i]), tensor_value("", kFloat, parameters_[i].dims));
  if (sums != 0 && !trained_norms_.empty()) import_domain(&m, kTrainDomain, 1);
  for (const std::size_t n : trained_norms_) {
    if (sums == 0) train_norm(&m, n + before);
    else synchronize_norm(&m, n + before, sums);
  }
  give_shape(w, logits_);
  return write_onnx(m);
}

std::string TrainingGraphs::evaluation_model(Labels labels) const {
  OnnxModel m = without_parameters();
  add_inputs(&m, labels);
  NodeWriter w(&m);
  w.give(add_loss(w, settings_.given.loss, labels, logits_), "evener/loss", scalar_value(kFloat));
  const Rightness r = add_rightness(w, settings_.given.loss, labels, logits_);
  w.give(r.right, "evener/right", scalar_value(kInt64));
  w.give(r.count, "evener/count", scalar_value(kInt64));
  give_shape(w, logits_);
  return write_onnx(m);
}

std::string TrainingGraphs::shape_model() const {
  OnnxModel m = without_parameters();
  add_inputs(&m, Labels::kNone);
  NodeWriter w(&m);
  give_shape(w, logits_);
  return write_onnx(m);
}

namespace {

// OptimizerStep's attributes.
std::vector<std::string> optimizer_attributes(const evn_trainer_options& o) {
  const auto real = [](const char* name, double value) { return float_attribute(name, static_cast<float>(value)); };
  return {text_attribute("kind", optimizer_name(o.optimizer)),
          real("momentum", o.momentum),
          real("dampening", o.dampening),
          real("beta1", o.beta1),
          real("beta2", o.beta2),
          real("epsilon", o.epsilon),
          real("alpha", o.alpha),
          real("lr_decay", o.rate_decay),
          int_attribute("nesterov", (o.flags & EVN_TRAIN_NESTEROV) != 0 ? 1 : 0),
          int_attribute("centered", (o.flags & EVN_TRAIN_CENTERED) != 0 ? 1 : 0)};
}

std::string optimizer_state_name(std::size_t kind, const std::string& name) {
  return "evener/optimizer_state" + std::to_string(kind) + "/" + name;
}
std::string rates_name(std::size_t group) { return "evener/rates" + std::to_string(group); }

// What the rates of a group are multiplied by, so that the norm of all gradients together is at most `clip`.
std::string clip_factors(NodeWriter& w, double clip, const std::string& norm) {
  const std::string share = w.op("Div", {w.number(static_cast<float>(clip)), w.op("Add", {norm, w.number(1e-6f)})});
  const std::string least = w.op("Reshape", {w.op("Min", {share, w.number(1)}), w.integers({1})});
  const auto ones = [&](std::int64_t count) { return w.op("Expand", {w.number(1), w.integers({count})}); };
  return w.op("Concat", {ones(2), least, ones(5)}, {int_attribute("axis", 0)});  // the third is the scale of gradients
}

}  // namespace

// Parameters and the optimizer's state of them, in the order of OptimizerStep's outputs.
std::vector<std::string> TrainingGraphs::moved_names(std::optional<std::size_t> group) const {
  std::vector<std::string> names;
  for (std::size_t kind = 0; kind <= optimizer_state_count(); ++kind) {
    for (const Parameter& p : parameters_) {
      if (!group || p.group == *group) names.push_back(kind == 0 ? p.name : optimizer_state_name(kind - 1, p.name));
    }
  }
  return names;
}

std::string TrainingGraphs::update_model() const {
  OnnxModel m = empty_model(model_);
  NodeWriter w(&m);
  m.inputs.push_back(tensor_value("evener/loss", kFloat, {}));
  m.inputs.push_back(tensor_value("evener/safe_norm", kFloat, {}));
  std::vector<std::string> statistics;
  for (const Statistic& s : statistics_) {
    statistics.push_back("evener/new/" + s.name);
    m.inputs.push_back(tensor_value(statistics.back(), kFloat, s.dims));
  }
  for (const std::size_t g : used_groups_) m.inputs.push_back(tensor_value(rates_name(g), kFloat, {8}));
  for (const Parameter& p : parameters_) m.inputs.push_back(tensor_value(p.name, kFloat, p.dims));
  std::vector<std::string> gradients;
  for (const Parameter& p : parameters_) {
    gradients.push_back(gradient_name(p.name));
    m.inputs.push_back(tensor_value(gradients.back(), kFloat, p.dims));
  }
  for (std::size_t kind = 0; kind < optimizer_state_count(); ++kind) {
    for (const Parameter& p : parameters_) m.inputs.push_back(tensor_value(optimizer_state_name(kind, p.name), kFloat, p.dims));
  }
  const auto sums = w.ops("GradientNorm", gradients, 2, {}, kOwnDomain);
  constexpr std::int64_t kGradientScale = 2;  // among the rates, where it is that of all groups
  const std::string scale = w.op("Gather", {rates_name(used_groups_[0]), w.integer(kGradientScale)});
  const std::string norm = w.op("Mul", {w.op("Sqrt", {sums[0]}), scale});
  const std::string lost = w.op("Or", {w.op("IsNaN", {"evener/loss"}), w.op("IsInf", {"evener/loss"})});
  std::string finite = w.op("And", {sums[1], w.op("Not", {lost})});
  if (!statistics.empty()) finite = w.op("And", {finite, w.ops("GradientNorm", statistics, 2, {}, kOwnDomain)[1]});
  const std::string moves = w.op("And", {finite, w.op("LessOrEqual", {norm, "evener/safe_norm"})});
  const std::string factors = settings_.given.clip_norm > 0 ? clip_factors(w, settings_.given.clip_norm, norm) : std::string();
  std::map<std::string, std::string> made;  // by what it takes the place of
  for (const std::size_t g : used_groups_) {
    std::vector<std::string> inputs = {factors.empty() ? rates_name(g) : w.op("Mul", {rates_name(g), factors}), moves};
    const std::vector<std::string> moved = moved_names(g);
    const auto parameters = moved.begin() + static_cast<std::ptrdiff_t>(moved.size() / (1 + optimizer_state_count()));
    inputs.insert(inputs.end(), moved.begin(), parameters);
    std::transform(moved.begin(), parameters, std::back_inserter(inputs), gradient_name);
    inputs.insert(inputs.end(), parameters, moved.end());
    const auto outputs = w.ops("OptimizerStep", inputs, moved.size(), optimizer_attributes(settings_.given), kOwnDomain);
    for (std::size_t i = 0; i < moved.size(); ++i) made.emplace(moved[i], outputs[i]);
  }
  w.give(norm, "evener/norm", scalar_value(kFloat));
  w.give(finite, "evener/finite", scalar_value(kBool));
  w.give(moves, "evener/moved", scalar_value(kBool));
  const std::vector<std::string> all = moved_names({});
  for (std::size_t i = 0; i < all.size(); ++i) {  // no Identity behind them, so that they are in place
    m.outputs.push_back(tensor_value(made.at(all[i]), kFloat, parameters_[i % parameters_.size()].dims));
  }
  return write_onnx(m);
}

}  // namespace evn_train
