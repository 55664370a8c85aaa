#include "runtime/quantize/quantizer.h"

#include <algorithm>
#include <cmath>

#include "base/cancel.h"
#include "base/error.h"
#include "base/float_environment.h"
#include "base/text.h"
#include "graph/raise_opset.h"
#include "graph/subgraphs.h"
#include "quant/equalize.h"
#include "quant/layers.h"
#include "quant/operators.h"
#include "runtime/placement/named_nodes.h"
#include "runtime/report/run_values.h"
#include "runtime/stages/make_session.h"

namespace evn {
namespace {

// The first opsets that have DynamicQuantizeLinear, and scales by channel.
constexpr std::int64_t kDynamicOpset = 11, kStaticOpset = 13, kBlocksOpset = 21;
constexpr int kTimedRuns = 3;  // of each model for each verified batch, in turns

void import_contrib(Model& model) {
  constexpr const char* kContrib = "com.microsoft";
  if (std::none_of(model.opsets.begin(), model.opsets.end(), [&](const OpsetImport& o) { return o.domain == kContrib; })) {
    model.opsets.push_back({kContrib, 1});
  }
}

// Position of each value in the list, or -1; by value.
std::vector<std::int32_t> positions_of(const Graph& graph, std::span<const ValueId> list) {
  std::vector<std::int32_t> positions(graph.values.size(), -1);
  for (std::size_t i = list.size(); i-- > 0;) {
    cancellation_point();
    positions[static_cast<std::size_t>(list[i])] = static_cast<std::int32_t>(i);
  }
  return positions;
}

}  // namespace

Quantizer::Quantizer(std::shared_ptr<Runtime> runtime, QuantizerRequest request)
    : runtime_(std::move(runtime)), request_(std::move(request)) {
  check_operator_patterns(request_.keep, runtime_->operators(), NameCheck::kAll, EVN_ERROR_INVALID_ARGUMENT, "keep");
  std::vector<RemovedNode> removed;
  model_ = read_plain_model(runtime_, request_.source, PlainModel::kFolded, &removed, nullptr, &default_reads_);
  find_unmatched(removed);
  request_.source.data = nullptr;
  flatten_bodies(model_.graph);
  check_model();
  raise_to_needed_opset();
  if (request_.contrib) import_contrib(model_);
  scheme_ = calibrated_ = scheme_without({});
  const auto products =
      std::count_if(scheme_.nodes.begin(), scheme_.nodes.end(), [](const QuantNode& q) { return q.role == QuantRole::kProduct; });
  if (products == 0) {
    std::string reasons;
    for (std::size_t i = 0; i < scheme_.nodes.size() && reasons.size() < 256; ++i) {
      cancellation_point();
      if (scheme_.nodes[i].reason.empty()) continue;
      reasons += (reasons.empty() ? ": \"" : "; \"") + model_.graph.nodes[i].name + "\" " + scheme_.nodes[i].reason;
    }
    fail(EVN_ERROR_INVALID_ARGUMENT, "no node can be quantized%s",
         reasons.empty() ? ": there is no Conv, Gemm or MatMul" : reasons.c_str());
  }
  if (request_.equalize) equalized_ = equalize_layers(model_.graph, scheme_, runtime_->cpu().ledger());
  drop_changed_defaults(default_reads_, &model_);
  const SavedModel plain = save_flat(model_);  // also finds what cannot be saved before anybody calibrates
  float_bytes_ = plain.size;
  if (request_.mode == QuantMode::kStatic) open_observing();
}

void Quantizer::find_unmatched(const std::vector<RemovedNode>& removed) {
  unmatched_ = unmatched_patterns(request_.keep, model_.graph, removed);
  for (const std::string& pattern : unmatched_) {
    LogEvent(runtime_->log(), EVN_LOG_WARNING, "quantizer.unmatched")
        .field("pattern", pattern.c_str())
        .write("keep \"%s\" matches no node of the model to quantize", shorten(pattern, 80).c_str());
  }
}

void Quantizer::raise_to_needed_opset() {
  std::int64_t least = kStaticOpset, wanted = kStaticOpset;
  if (request_.mode == QuantMode::kDynamic) least = kDynamicOpset;
  if (request_.mode == QuantMode::kWeights && !request_.contrib) least = wanted = kBlocksOpset;
  if (request_.mode == QuantMode::kFloat16) least = wanted = 0;  // as old as float32
  raise_opset(model_, opset_of(model_) < least ? wanted : 0, runtime_->cpu().ledger());
}

void Quantizer::check_model() const {
  for (const Node& node : model_.graph.nodes) {
    cancellation_point();
    const bool quantized = node.op_type == "QuantizeLinear" || node.op_type == "QLinearConv" || node.op_type == "QLinearMatMul";
    if (quantized) throw make_error(EVN_ERROR_UNSUPPORTED, "the model is quantized already").with_node(node.name.c_str());
  }
}

bool Quantizer::has_default(std::string_view name) const {
  return std::any_of(default_reads_.begin(), default_reads_.end(), [&](const DefaultReads& d) { return d.name == name; });
}

// With branches and bodies in their places again.
SavedModel Quantizer::save_flat(const Model& model, const std::string& external) {
  return save_onnx(model, with_subgraphs(model.graph), external);
}

// The float32 model with all values that are to be seen among its outputs.
void Quantizer::open_observing() {
  observed_ = scheme_.observed(model_.graph);
  if (request_.smooth) {
    for (const ValueId v : smoothable(model_.graph, scheme_)) columns_.emplace(v, ColumnRanges{});
  }
  const bool histogram = request_.calibration != Calibration::kMinMax;
  observers_.assign(observed_.size(), Observer(histogram));
  Model model = model_;
  Graph& graph = model.graph;
  const std::vector<std::int32_t> regions = value_regions(graph), inputs = positions_of(graph, graph.inputs);
  std::vector<std::int32_t> outputs = positions_of(graph, graph.outputs);
  for (const ValueId v : observed_) {
    cancellation_point(kNodeWork);
    const auto at = static_cast<std::size_t>(v);
    if (regions[at] >= 0) {
      output_of_.push_back(kWatched);
    } else if (inputs[at] >= 0) {
      output_of_.push_back(-1 - inputs[at]);
    } else {
      if (outputs[at] < 0) {
        outputs[at] = static_cast<std::int32_t>(graph.outputs.size());
        graph.outputs.push_back(v);
      }
      output_of_.push_back(outputs[at]);
    }
  }
  seen_.assign(graph.regions.size(), false);
  if (!graph.regions.empty()) {
    watch_regions(graph);
    Watching::import_into(model);
  }
  SessionRequest request = in_float32();
  request.role.raw_outputs = columns_.empty();  // ranges do not depend on the order of elements, columns do
  observing_ = make_session(load_saved(save_flat(model)), request);
}

// What lies in branches and bodies, and whether they are run at all.
void Quantizer::watch_regions(Graph& graph) {
  const WatchFunction see = [](void* user, std::size_t what, std::span<const ConstTensor> tensors) {
    const Quantizer& q = *static_cast<const Quantizer*>(user);
    if (q.pending_ == nullptr) return;
    if (what >= q.observed_.size()) {
      q.pending_->seen[what - q.observed_.size()] = true;
      return;
    }
    const Shape& shape = tensors[0].desc.shape;
    q.observe(*q.pending_, what, shape, {tensors[0].as<float>(), static_cast<std::size_t>(shape.elements())});
  };
  watching_ = std::make_unique<Watching>(*runtime_, see, this);
  GraphWriter writer(graph, runtime_->cpu().ledger());
  std::vector<bool> has(graph.regions.size());
  const std::size_t nodes = graph.nodes.size();
  for (std::size_t i = 0; i < nodes; ++i) {
    cancellation_point(kNodeWork);
    const std::int32_t region = graph.nodes[i].region;
    if (region < 0 || scheme_.nodes[i].role == QuantRole::kFloat || has[static_cast<std::size_t>(region)]) continue;
    has[static_cast<std::size_t>(region)] = true;
    const std::size_t input = scheme_.nodes[i].role == QuantRole::kTable ? 1 : 0;
    watching_->watch_input(writer, i, input, observed_.size() + static_cast<std::size_t>(region));
  }
  const std::vector<std::int32_t> producers = producers_of(graph);
  for (std::size_t k = 0; k < observed_.size(); ++k) {
    cancellation_point(kNodeWork);
    if (output_of_[k] != kWatched) continue;
    watching_->watch_value(writer, producers[static_cast<std::size_t>(observed_[k])], observed_[k], k);
  }
}

void Quantizer::observe(Pending& pending, std::size_t k, const Shape& shape, std::span<const float> elements) const {
  if (pending.observers[k].add(elements)) return observe_columns(pending.columns, observed_[k], shape, elements);
  fail(EVN_ERROR_INVALID_ARGUMENT, "calibration batch %llu: value \"%s\" has elements that are NaN or infinite",
       static_cast<unsigned long long>(batches_ + 1), model_.graph.values[static_cast<std::size_t>(observed_[k])].name.c_str());
}

ModelPtr Quantizer::load_saved(const SavedModel& saved) const {
  const std::string name = request_.source.path.substr(request_.source.path.find_last_of('/') + 1);
  return load_model_bytes(runtime_, model_bytes(saved, runtime_->cpu().ledger()), static_cast<std::size_t>(saved.size), name);
}

void Quantizer::progress(const char* what, std::uint64_t done, std::uint64_t total) const {
  cancellation_point(kWorkPerLook);
  if (request_.progress == nullptr) return;
  const auto call_host = [&] {
    const HostFloatEnvironment hosts;
    return request_.progress(request_.user, what, done, total);
  };
  if (call_host() != 0) {
    fail(EVN_ERROR_CANCELLED, "the progress callback cancelled");
  }
}

void Quantizer::add_batch(std::span<const RunValue> inputs) {
  const std::lock_guard lock(mutex_);
  if (request_.mode != QuantMode::kStatic) fail(EVN_ERROR_WRONG_STATE, "only static quantization is calibrated");
  if (observing_ == nullptr) fail(EVN_ERROR_WRONG_STATE, "the model is quantized already");
  progress("calibrate", batches_, 0);
  RunRequest request;
  request.allow_copies = true;
  // Batches of one shape write over the same outputs: fresh memory for all activations takes longer than to look at them.
  std::vector<TensorDesc> shapes;
  for (const RunValue& input : inputs) shapes.push_back(input.tensor == nullptr ? TensorDesc{} : input.tensor->desc());
  if (shapes != observed_shapes_) observed_outputs_.assign(observing_->graph().outputs.size(), {});
  observed_shapes_.clear();
  std::vector<RunValue>& outputs = observed_outputs_;
  Pending pending;
  const auto run = [&] {
    pending = {observers_, columns_, seen_};
    pending_ = &pending;
    try {
      observing_->run(inputs, outputs, request);
    } catch (...) {
      pending_ = nullptr;
      throw;
    }
    pending_ = nullptr;
  };
  try {
    run();
  } catch (const Error&) {  // shapes that depend on data may be others this time
    if (std::none_of(outputs.begin(), outputs.end(), [](const RunValue& v) { return static_cast<bool>(v); })) throw;
    outputs.assign(outputs.size(), {});
    run();
  }
  observed_shapes_ = std::move(shapes);
  for (std::size_t k = 0; k < observed_.size(); ++k) {
    cancellation_point(kNodeWork);
    const std::int32_t o = output_of_[k];
    if (o == kWatched) continue;
    const RunValue& value = o < 0 ? inputs[static_cast<std::size_t>(-1 - o)] : outputs[static_cast<std::size_t>(o)];
    if (!is_float_on_host(value)) fail(EVN_ERROR_INVALID_ARGUMENT, "calibration inputs must lie on the CPU");
    observe(pending, k, value.tensor->desc().shape, floats_of(*value.tensor));
  }
  if (request_.correct_bias) keep_batch(inputs);
  observers_ = std::move(pending.observers);
  columns_ = std::move(pending.columns);
  seen_ = std::move(pending.seen);
  ++batches_;
}

QuantScheme Quantizer::scheme_without(const std::vector<std::string>& refused) const {
  if (request_.mode == QuantMode::kWeights) return make_weight_scheme(model_.graph, request_.keep, weight_options());
  if (is_half()) return make_half_scheme(model_.graph, request_.keep, half_type());
  SchemeOptions options{request_.keep, request_.dynamic(), request_.dynamic(), request_.contrib, refused};
  for (std::size_t i = 0; batches_ > 0 && i < model_.graph.nodes.size(); ++i) {
    cancellation_point();
    const std::int32_t region = model_.graph.nodes[i].region;
    if (region < 0 || seen_[static_cast<std::size_t>(region)]) continue;
    options.refused.resize(model_.graph.nodes.size());
    options.refused[i] = "not seen in calibration";
  }
  QuantScheme scheme = make_scheme(model_.graph, options);
  for (const auto& [node, shift] : bias_shifts_) scheme.nodes[node].bias_shift = shift;
  return scheme;
}

RewriteOptions Quantizer::options_of(const QuantScheme& scheme) const {
  RewriteOptions options{request_.per_tensor, request_.activation, runtime_->cpu().ledger(), {}};
  if (request_.smooth) options.smoothing = smooth(model_.graph, scheme, columns_);
  return options;
}

// The parameters of a scheme that quantizes what the calibrated one does, or less.
std::vector<QuantParams> Quantizer::params(const QuantScheme& scheme) const {
  std::vector<Range> calibrated(static_cast<std::size_t>(calibrated_.group_count)), own(observed_.size());
  std::vector<std::int32_t> observer_of(model_.graph.values.size(), -1);
  for (std::size_t k = 0; k < observed_.size(); ++k) {
    cancellation_point();
    const auto v = static_cast<std::size_t>(observed_[k]);
    observer_of[v] = static_cast<std::int32_t>(k);
    own[k] = choose_range(observers_[k], request_.calibration, request_.percentile);
    Range& range = calibrated[static_cast<std::size_t>(calibrated_.group[v])];
    range = join(range, own[k]);
  }
  std::vector<Range> ranges(static_cast<std::size_t>(scheme.group_count));
  for (const ValueId id : scheme.observed(model_.graph)) {
    cancellation_point();
    const auto v = static_cast<std::size_t>(id);
    Range& range = ranges[static_cast<std::size_t>(scheme.group[v])];
    const std::int32_t k = observer_of[v];
    // What nobody has looked at was handed on by a node that is float32 now.
    range = join(range, k >= 0 ? own[static_cast<std::size_t>(k)] : calibrated[static_cast<std::size_t>(calibrated_.group[v])]);
  }
  std::vector<QuantParams> params;
  for (const Range& range : ranges) params.push_back(params_of(range, request_.activation));
  return params;
}

Quantizer::Candidate Quantizer::build(QuantScheme scheme) const {
  Model model = model_;
  const RewriteOptions options = options_of(scheme);
  if (request_.mode == QuantMode::kWeights) {
    rewrite_weights(&model.graph, scheme, weight_options());
  } else if (is_half()) {
    convert_half(&model.graph, scheme, half_type(), runtime_->cpu().ledger());
  } else if (request_.dynamic()) {
    rewrite_dynamic(&model.graph, &scheme, options);
  } else {
    const std::vector<QuantParams> numbers = params(scheme);
    rewrite_static(&model.graph, &scheme, numbers, options);
    if (request_.operators && use_byte_operators(&model.graph, runtime_->cpu().ledger())) import_contrib(model);
  }
  model.producer = "evener";
  drop_changed_defaults(default_reads_, &model);
  SavedModel saved = save_flat(model);
  ModelPtr loaded = load_saved(saved);
  return {std::move(scheme), std::move(model), std::move(saved), std::move(loaded)};
}

const ModelPtr& Quantizer::finish_locked() {
  if (quantized_ != nullptr) return quantized_;
  if (request_.mode == QuantMode::kStatic && batches_ == 0) fail(EVN_ERROR_WRONG_STATE, "no calibration batch was added");
  progress("quantize", 0, 1);
  scheme_ = scheme_without(refused_);
  refine();
  smoothed_ = options_of(scheme_).smoothing.size();
  Candidate made = build(scheme_);
  saved_ = std::move(made.saved);
  flat_ = std::move(made.flat);
  scheme_ = std::move(made.scheme);
  quantized_ = std::move(made.model);
  observing_ = nullptr;
  watching_ = nullptr;
  observed_outputs_.clear();
  return quantized_;
}

Session& Quantizer::float_session() {
  if (float_session_ == nullptr) float_session_ = make_session(load_saved(save_flat(model_)), in_float32());
  return *float_session_;
}

ModelPtr Quantizer::finish() {
  const std::lock_guard lock(mutex_);
  return finish_locked();
}

void Quantizer::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  finish_locked();
  if (!request_.external && saved_->size <= kMostModelBytes) return write_model_file(path, *saved_);
  write_model_file(path, save_flat(flat_, external_name(path)));
}

void Quantizer::verify(std::span<const RunValue> inputs) {
  const std::lock_guard lock(mutex_);
  finish_locked();
  float_session();
  if (quantized_session_ == nullptr) {
    quantized_session_ = make_session(quantized_, in_float32());
    for (const ValueId v : model_.graph.outputs) outputs_.push_back({model_.graph.values[static_cast<std::size_t>(v)].name, {}});
  }
  progress("verify", float_ns_.size() / kTimedRuns, 0);
  RunRequest request;
  request.allow_copies = true;
  std::vector<RunValue> expected(outputs_.size()), got(outputs_.size());
  float_session_->run(inputs, expected, request);
  quantized_session_->run(inputs, got, request);
  std::vector<OutputFigures> outputs = outputs_;  // a comparison that is stopped adds nothing
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    add_closeness(expected[k], got[k], &outputs[k].closeness);
  }
  outputs_ = std::move(outputs);
  for (int i = 0; i < kTimedRuns; ++i) {
    const std::uint64_t begin = os::now_ns();
    float_session_->run(inputs, expected, request);
    const std::uint64_t middle = os::now_ns();
    quantized_session_->run(inputs, got, request);
    float_ns_.push_back(middle - begin);
    quantized_ns_.push_back(os::now_ns() - middle);
  }
}

}  // namespace evn
