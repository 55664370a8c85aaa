// The guard of a quantizer: which layers stay float32 because they lose too much, or gain nothing on this machine.
//   Error: each layer is looked at alone (quant/probe); then the outputs of the whole, and where these are too far off, layers go
//   back to float32 from the worst on, as few as do.
//   Time: a layer's step in 8 bits, with its share of the conversions around it, against its step in float32. What this takes back
//   is kept only if the whole gets faster by it; a whole that is slower than float32 goes back altogether.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/cancel.h"
#include "base/error.h"
#include "base/number_text.h"
#include "quant/layers.h"
#include "quant/probe.h"
#include "runtime/quantize/quantizer.h"
#include "runtime/report/compare.h"
#include "runtime/report/session_trace.h"
#include "runtime/stages/make_session.h"

namespace evn {
namespace {

constexpr int kSpeedRounds = 3;  // of taking back what is slower
constexpr std::uint32_t kTracedRuns = 5;
constexpr double kNoise = 0.02;  // by which one of two equal layers may seem to be slower

// Nanoseconds of a run in each node's steps.
std::vector<std::uint64_t> measure_nodes(Session& session, std::span<const RunValue> inputs) {
  session.tracing().start(session.shared_graph(), kTracedRuns * static_cast<std::uint32_t>(session.graph().nodes.size() * 2 + 64));
  for (std::uint32_t i = 0; i < kTracedRuns; ++i) run_once(session, inputs);
  session.tracing().stop();
  std::vector<std::uint64_t> times = node_times(session);
  for (std::uint64_t& t : times) t /= kTracedRuns;
  return times;
}

bool is_conversion(const Node& node) {
  return node.op_type == "QuantizeLinear" || node.op_type == "DequantizeLinear" || node.op_type == "DynamicQuantizeLinear";
}

}  // namespace

std::vector<std::size_t> Quantizer::products() const {
  std::vector<std::size_t> nodes;
  for (std::size_t i = 0; i < scheme_.nodes.size(); ++i) {
    cancellation_point();
    if (scheme_.nodes[i].role == QuantRole::kProduct) nodes.push_back(i);
  }
  return nodes;
}

// Products and tables.
std::vector<std::size_t> Quantizer::quantized_layers() const {
  std::vector<std::size_t> nodes = products();
  for (std::size_t i = 0; i < scheme_.nodes.size(); ++i) {
    cancellation_point();
    if (scheme_.nodes[i].role == QuantRole::kTable) nodes.push_back(i);
  }
  return nodes;
}

void Quantizer::take_back(std::span<const std::size_t> nodes, const std::string& reason) {
  refused_.resize(model_.graph.nodes.size());
  for (const std::size_t n : nodes) refused_[n] = reason;
  scheme_ = scheme_without(refused_);
}

void Quantizer::guard(std::span<const RunValue> inputs, const GuardBudget& budget) {
  const std::lock_guard lock(mutex_);
  if (quantized_ != nullptr) fail(EVN_ERROR_WRONG_STATE, "the model is quantized already");
  if (request_.mode > QuantMode::kDynamic) fail(EVN_ERROR_WRONG_STATE, "only static and dynamic quantization have a guard");
  if (!request_.dynamic() && batches_ == 0) fail(EVN_ERROR_WRONG_STATE, "no calibration batch was added");
  progress("guard", guarded_batches_, 0);
  scheme_ = scheme_without(refused_);
  refine();
  const QuantScheme scheme = scheme_;
  const std::vector<std::string> refused = refused_;
  const std::vector<LayerFigures> layers = layers_;
  budget_ = budget;
  try {
    layers_.resize(model_.graph.nodes.size());
    if (budget.error) guard_error(inputs);
    if (budget.speed) guard_speed(inputs);
  } catch (...) {
    scheme_ = scheme;
    refused_ = refused;
    layers_ = layers;
    throw;
  }
  ++guarded_batches_;
}

// ----------------------------------------------------------------------------------------------------------- error --

// Calls visit with what each layer, a node, makes in float32 and in 8 bits of the same inputs: as often as it is run.
void Quantizer::run_probe(std::span<const RunValue> inputs, const ProbeVisit& visit) const {
  Probe probe = make_probe(model_.graph, scheme_);
  Model model = model_;
  RewriteOptions options = options_of(scheme_);
  for (auto& [v, s] : options.smoothing) s.norm = -1;  // the float32 products read the value too
  if (request_.dynamic()) {
    rewrite_dynamic(&probe.graph, &probe.scheme, options);
  } else {
    const std::vector<QuantParams> numbers = params(scheme_);
    rewrite_static(&probe.graph, &probe.scheme, numbers, options);
  }
  model.graph = std::move(probe.graph);
  std::pair<const ProbeVisit*, const Probe*> seer{&visit, &probe};
  const WatchFunction see = [](void* user, std::size_t k, std::span<const ConstTensor> tensors) {
    const auto& [to, from] = *static_cast<decltype(seer)*>(user);
    const auto floats = [](const ConstTensor& t) {
      return std::span(t.as<float>(), static_cast<std::size_t>(t.desc.shape.elements()));
    };
    (*to)(from->layers[k].node, tensors[0].desc.shape, floats(tensors[0]), floats(tensors[1]));
  };
  const Watching watching(*runtime_, see, &seer);
  GraphWriter writer(model.graph, runtime_->cpu().ledger());
  const std::vector<std::int32_t> producers = producers_of(model.graph);
  for (std::size_t k = 0; k < probe.layers.size(); ++k) {
    cancellation_point(kNodeWork);
    const Probe::Layer& layer = probe.layers[k];
    if (layer.is_output) continue;
    watching.watch_value(writer, producers[static_cast<std::size_t>(layer.product)], layer.product, k, layer.twin);
  }
  Watching::import_into(model);
  const std::shared_ptr<Session> session = make_session(load_saved(save_flat(model)), in_float32());
  const std::vector<RunValue> outputs = run_once(*session, inputs);
  std::size_t next = 0;
  for (const Probe::Layer& layer : probe.layers) {
    if (!layer.is_output) continue;
    const RunValue &expected = outputs[next], &got = outputs[next + 1];
    next += 2;
    visit(layer.node, expected.tensor->desc().shape, floats_of(*expected.tensor), floats_of(*got.tensor));
  }
}

// Adds what each layer alone loses to its figures.
void Quantizer::probe_layers(std::span<const RunValue> inputs) {
  run_probe(inputs, [&](std::size_t node, const Shape& shape, std::span<const float> expected, std::span<const float> got) {
    layers_[node].closeness.add(expected, got, shape.rank() == 0 ? 1 : static_cast<std::size_t>(shape[shape.rank() - 1]));
  });
}

double Quantizer::worst_cosine(const Candidate& candidate, std::span<const RunValue> inputs,
                               std::span<const RunValue> expected) const {
  const std::shared_ptr<Session> session = make_session(candidate.model, in_float32());
  const std::vector<RunValue> got = run_once(*session, inputs);
  double worst = 1;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    Closeness c;
    add_closeness(expected[k], got[k], &c);
    if (c.elements == 0) continue;
    const double cosine = c.cosine();
    worst = std::isfinite(cosine) ? std::min(worst, cosine) : -1;
  }
  return worst;
}

void Quantizer::guard_error(std::span<const RunValue> inputs) {
  if (products().empty()) return;
  probe_layers(inputs);
  refused_.resize(model_.graph.nodes.size());
  for (const std::size_t n : products()) {
    cancellation_point(kNodeWork);
    const double noise = layers_[n].closeness.sqnr_db();
    if (noise >= budget_.min_layer_sqnr_db || layers_[n].closeness.elements == 0) continue;
    refused_[n] =
        "guard: alone it keeps " + fixed_text(noise, 1) + " dB, the budget is " + fixed_text(budget_.min_layer_sqnr_db, 1);
  }
  scheme_ = scheme_without(refused_);
  std::vector<std::size_t> worst_first = products();
  std::ranges::stable_sort(
      worst_first, [&](std::size_t a, std::size_t b) { return layers_[a].closeness.sqnr_db() < layers_[b].closeness.sqnr_db(); });
  const std::vector<RunValue> expected = run_once(float_session(), inputs);
  const auto cosine_without = [&](std::size_t count) {
    progress("guard", guarded_batches_, 0);
    std::vector<std::string> refused = refused_;
    refused.resize(model_.graph.nodes.size());
    for (std::size_t i = 0; i < count; ++i) refused[worst_first[i]] = "tried";
    return worst_cosine(build(scheme_without(refused)), inputs, expected);
  };
  const double all = cosine_without(0);
  if (all >= budget_.min_cosine) return;
  // The fewest that do: without all of them the model is float32.
  std::size_t too_few = 0, enough = worst_first.size();
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (cosine_without(middle) >= budget_.min_cosine ? enough : too_few) = middle;
  }
  worst_first.resize(enough);
  take_back(worst_first, "guard: with all layers in 8 bits an output has cosine " + fixed_text(all, 5) + ", the budget is " +
                             fixed_text(budget_.min_cosine, 5));
}

// ------------------------------------------------------------------------------------------------------------ time --

// Sets the times of layers. A step is a layer's that has its name or has swallowed it; a conversion is shared by the layers next to
// it.
void Quantizer::time_layers(Session& in_float, Session& quantized, std::span<const RunValue> inputs) {
  std::map<std::string, std::size_t> layer_names;
  for (const std::size_t n : products()) layer_names.emplace(model_.graph.nodes[n].name, n);
  const auto layer_of = [&](const std::string& name) -> std::int64_t {
    auto it = layer_names.find(name);
    // rewrite_dynamic makes several nodes of one: "fc_MatMulInteger", "fc_Cast", ...
    if (it == layer_names.end() && name.rfind('_') != std::string::npos) it = layer_names.find(name.substr(0, name.rfind('_')));
    return it == layer_names.end() ? -1 : static_cast<std::int64_t>(it->second);
  };
  for (const bool is_float : {true, false}) {
    Session& session = is_float ? in_float : quantized;
    const Graph& graph = session.graph();
    const std::vector<std::uint64_t> times = measure_nodes(session, inputs);
    std::vector<std::int64_t> layer(graph.nodes.size(), -1);
    std::vector<std::vector<std::int64_t>> around(graph.values.size());  // layers that make or read a value
    const auto time_of = [&](std::int64_t n) -> std::uint64_t& {
      LayerFigures& figures = layers_[static_cast<std::size_t>(n)];
      return is_float ? figures.float_ns : figures.quantized_ns;
    };
    for (const auto& [name, n] : layer_names) time_of(static_cast<std::int64_t>(n)) = 0;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const Node& node = graph.nodes[i];
      if (is_conversion(node)) continue;
      layer[i] = layer_of(node.name);
      for (std::size_t k = 0; layer[i] < 0 && k < node.fused.size(); ++k) layer[i] = layer_of(node.fused[k]);
      if (layer[i] < 0) continue;
      time_of(layer[i]) += times[i];
      for (const auto& side : {node.inputs, node.outputs}) {
        for (const ValueId v : side) {
          if (v != kNoValue) around[static_cast<std::size_t>(v)].push_back(layer[i]);
        }
      }
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const Node& node = graph.nodes[i];
      if (!is_conversion(node)) continue;
      std::vector<std::int64_t> beside = around[static_cast<std::size_t>(node.outputs[0])];
      if (const auto& makers = around[static_cast<std::size_t>(node.inputs[0])];
          node.op_type == "DequantizeLinear" && !makers.empty()) {
        beside.push_back(makers.front());
      }
      for (const std::int64_t n : beside) time_of(n) += times[i] / beside.size();
    }
  }
}

// Takes back the layers that are slower in 8 bits. Whether it did, and the whole is faster for it.
bool Quantizer::take_back_slower(std::span<const RunValue> inputs) {
  const Candidate now = build(scheme_);
  const std::shared_ptr<Session> session = make_session(now.model, in_float32());
  time_layers(float_session(), *session, inputs);
  std::vector<std::string> refused = refused_;
  refused.resize(model_.graph.nodes.size());
  bool any = false;
  for (const std::size_t n : products()) {
    const LayerFigures& f = layers_[n];
    if (f.float_ns == 0 || static_cast<double>(f.quantized_ns) <= static_cast<double>(f.float_ns) * (1 + kNoise)) continue;
    refused[n] = "guard: " + ms_text(f.quantized_ns) + " in 8 bits, " + ms_text(f.float_ns) + " in float32";
    any = true;
  }
  if (!any) return false;
  QuantScheme less = scheme_without(refused);
  const Candidate without = build(less);
  const std::shared_ptr<Session> other = make_session(without.model, in_float32());
  Session* const both[] = {session.get(), other.get()};
  const std::vector<std::uint64_t> times = time_in_turns(both, inputs);
  if (times[1] >= times[0]) return false;
  refused_ = std::move(refused);
  scheme_ = std::move(less);
  return true;
}

void Quantizer::guard_speed(std::span<const RunValue> inputs) {
  for (int round = 0; round < kSpeedRounds && !products().empty(); ++round) {
    progress("guard", guarded_batches_, 0);
    if (!take_back_slower(inputs)) break;
  }
  if (products().empty()) return;
  const Candidate chosen = build(scheme_);
  const std::shared_ptr<Session> session = make_session(chosen.model, in_float32());
  Session* const both[] = {&float_session(), session.get()};
  const std::vector<std::uint64_t> times = time_in_turns(both, inputs);
  if (times[1] > times[0]) {
    take_back(quantized_layers(),
              "guard: the whole model takes " + ms_text(times[1]) + " in 8 bits, " + ms_text(times[0]) + " in float32");
  }
}

}  // namespace evn
