// evn_quantizer_*.
#include "api/barrier.h"
#include "api/model_source.h"
#include "api/objects.h"
#include "api/work_scope.h"
#include "base/small_array.h"
#include "evener/quantize.h"

namespace {

using namespace evn;

// What is of some modes alone.
void read_weights(const evn_quantizer_options& o, QuantizerRequest* request) {
  const bool weights = request->mode == QuantMode::kWeights, bytes = request->mode <= QuantMode::kDynamic;
  const auto refuse = [](const char* field) { fail(EVN_ERROR_INVALID_ARGUMENT, "%s means nothing in this mode", field); };
  if (!weights && o.weight_bits != 0) refuse("weight_bits");
  if (!weights && o.block_size != 0) refuse("block_size");
  if (!weights && request->mode != QuantMode::kDynamic && (o.flags & EVN_QUANTIZE_CONTRIB) != 0)
    refuse("EVN_QUANTIZE_CONTRIB of flags");
  if (!bytes && (o.flags & ~static_cast<uint32_t>(EVN_QUANTIZE_CONTRIB | EVN_QUANTIZE_EXTERNAL_DATA)) != 0) refuse("flags");
  if (!bytes && o.calibration != 0) refuse("calibration");
  if (!bytes && o.activation != 0) refuse("activation");
  if (!bytes && o.percentile != 0) refuse("percentile");
  if (o.weight_bits != 0 && o.weight_bits != 4 && o.weight_bits != 8) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "weight_bits is %u, which is neither 4 nor 8", o.weight_bits);
  }
  if (o.weight_bits != 0) request->weight_bits = static_cast<int>(o.weight_bits);
  if (o.block_size != 0 && (o.block_size < 16 || o.block_size > 65536 || (o.block_size & (o.block_size - 1)) != 0)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "block_size is %u, which is no power of two from 16 to 65536", o.block_size);
  }
  if (o.block_size != 0) request->block_size = o.block_size;
  request->contrib = (o.flags & EVN_QUANTIZE_CONTRIB) != 0;
}

QuantizerRequest read(const char* path, const evn_quantizer_options& o) {
  QuantizerRequest request;
  request.source = read_source(path, o);
  if (o.mode < EVN_QUANTIZE_STATIC || o.mode > EVN_QUANTIZE_BFLOAT16) fail(EVN_ERROR_INVALID_ARGUMENT, "mode is %d", o.mode);
  request.mode = static_cast<QuantMode>(o.mode);
  read_weights(o, &request);
  if (o.calibration < EVN_CALIBRATION_MINMAX || o.calibration > EVN_CALIBRATION_MSE) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "calibration is %d", o.calibration);
  }
  request.calibration = static_cast<Calibration>(o.calibration);
  if (o.activation != 0 && o.activation != EVN_DTYPE_UINT8 && o.activation != EVN_DTYPE_INT8) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "activation is %d, which is neither uint8 nor int8", o.activation);
  }
  if (o.activation == EVN_DTYPE_INT8) request.activation = DType::kInt8;
  if (o.percentile != 0 && !(o.percentile >= 50 && o.percentile <= 100)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "percentile is %g, which is not between 50 and 100", o.percentile);
  }
  if (o.percentile != 0) request.percentile = o.percentile;
  constexpr auto kStatic =
      static_cast<uint32_t>(EVN_QUANTIZE_EQUALIZE | EVN_QUANTIZE_SMOOTH | EVN_QUANTIZE_CORRECT_BIAS | EVN_QUANTIZE_QOPERATOR);
  constexpr auto kAll =
      static_cast<uint32_t>(kStatic | EVN_QUANTIZE_PER_TENSOR | EVN_QUANTIZE_CONTRIB | EVN_QUANTIZE_EXTERNAL_DATA);
  if ((o.flags & ~kAll) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags are %u", o.flags);
  if ((o.flags & kStatic) != 0 && request.dynamic()) {
    fail(EVN_ERROR_INVALID_ARGUMENT,
         "flags are %u: QOperator form, equalization, smoothing and the correction of biases are for static quantization", o.flags);
  }
  request.external = (o.flags & EVN_QUANTIZE_EXTERNAL_DATA) != 0;
  request.operators = (o.flags & EVN_QUANTIZE_QOPERATOR) != 0;
  request.equalize = (o.flags & EVN_QUANTIZE_EQUALIZE) != 0;
  request.smooth = (o.flags & EVN_QUANTIZE_SMOOTH) != 0;
  request.correct_bias = (o.flags & EVN_QUANTIZE_CORRECT_BIAS) != 0;
  request.per_tensor = (o.flags & EVN_QUANTIZE_PER_TENSOR) != 0;
  require(o.keep != nullptr || o.keep_count == 0, "keep");
  for (uint32_t i = 0; i < o.keep_count; ++i) {
    require(o.keep[i] != nullptr, "an entry of keep");
    request.keep.emplace_back(o.keep[i]);
  }
  request.progress = o.progress;
  request.user = o.progress_user;
  request.token = WorkScope::token_of(o.cancel);
  request.deadline_ns = o.deadline_ns;
  return request;
}

GuardBudget read(const evn_guard_options* options) {
  const evn_guard_options defaults = EVN_GUARD_OPTIONS_INIT;
  const evn_guard_options o = read_options(options, defaults, sizeof(evn_guard_options));
  GuardBudget budget;
  if ((o.flags & ~static_cast<uint32_t>(EVN_GUARD_ERROR | EVN_GUARD_SPEED)) != 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "flags are %u", o.flags);
  if (o.flags != 0) {
    budget.error = (o.flags & EVN_GUARD_ERROR) != 0;
    budget.speed = (o.flags & EVN_GUARD_SPEED) != 0;
  }
  if (!(o.min_cosine >= 0 && o.min_cosine <= 1))
    fail(EVN_ERROR_INVALID_ARGUMENT, "min_cosine is %g, which is not between 0 and 1", o.min_cosine);
  if (o.min_cosine != 0) budget.min_cosine = o.min_cosine;
  if (!(o.min_layer_sqnr_db >= 0 && o.min_layer_sqnr_db <= 1000)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "min_layer_sqnr_db is %g, which is not between 0 and 1000", o.min_layer_sqnr_db);
  }
  if (o.min_layer_sqnr_db != 0) budget.min_layer_sqnr_db = o.min_layer_sqnr_db;
  return budget;
}

WorkScope scope_of(const QuantizerRequest& request) {
  return {request.token, request.deadline_ns, "the quantizer's time is over", "the quantizer was cancelled"};
}

// Calls body(values) with the tensors of a batch.
template <typename F>
void with_batch(evn_quantizer quantizer, const evn_tensor* inputs, uint32_t count, F&& body) {
  const Pin<QuantizerPtr> q(quantizer);
  const std::size_t wanted = (*q)->graph().inputs.size();
  if (count != wanted) fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs, %u are given", wanted, count);
  require(inputs != nullptr || count == 0, "inputs");
  SmallArray<RunValue> values(count);
  for (uint32_t i = 0; i < count; ++i) {
    const Pin<TensorPtr> tensor(inputs[i]);
    if ((*tensor)->runtime() != (*q)->runtime()) fail(EVN_ERROR_INVALID_ARGUMENT, "a tensor belongs to another runtime");
    values[i] = {*tensor, nullptr};
  }
  const WorkScope scope = scope_of((*q)->request());
  body(**q, std::span<const RunValue>(values.data(), count));
}

}  // namespace

extern "C" {

evn_status evn_quantizer_create(evn_runtime runtime, const char* path, const evn_quantizer_options* options,
                                evn_quantizer* quantizer, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(quantizer != nullptr, "quantizer");
    const evn_quantizer_options defaults = EVN_QUANTIZER_OPTIONS_INIT;
    const evn_quantizer_options o = read_options(options, defaults, offsetof(evn_quantizer_options, weight_bits));
    QuantizerRequest request = read(path, o);
    const WorkScope scope = scope_of(request);
    const auto made = std::make_shared<Quantizer>(*r, std::move(request));
    const auto handle = static_cast<evn_quantizer>(make_handle(made));
    made->user().adopt(o.progress_release, o.progress_user);  // nothing can fail from here on
    *quantizer = handle;
  });
}

evn_status evn_quantizer_release(evn_quantizer quantizer) { return release_handle(quantizer, HandleKind::kQuantizer); }

evn_status evn_quantizer_input_count(evn_quantizer quantizer, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QuantizerPtr> q(quantizer);
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>((*q)->graph().inputs.size());
  });
}

evn_status evn_quantizer_find_input(evn_quantizer quantizer, const char* name, uint32_t* index, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QuantizerPtr> q(quantizer);
    require(name != nullptr, "name");
    require(index != nullptr, "index");
    const Graph& graph = (*q)->graph();
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.values[static_cast<std::size_t>(graph.inputs[i])].name != name) continue;
      *index = static_cast<uint32_t>(i);
      return;
    }
    if ((*q)->has_default(name)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" has a default, which counts in all batches: a quantizer takes no other values",
           name);
    }
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model has no input \"%s\"", name);
  });
}

evn_status evn_quantizer_add_batch(evn_quantizer quantizer, const evn_tensor* inputs, uint32_t input_count, evn_error* error) {
  return guarded(error, [&] {
    with_batch(quantizer, inputs, input_count, [](Quantizer& q, std::span<const RunValue> values) { q.add_batch(values); });
  });
}

evn_status evn_quantizer_guard(evn_quantizer quantizer, const evn_tensor* inputs, uint32_t input_count,
                               const evn_guard_options* options, evn_error* error) {
  return guarded(error, [&] {
    const GuardBudget budget = read(options);
    with_batch(quantizer, inputs, input_count, [&](Quantizer& q, std::span<const RunValue> values) { q.guard(values, budget); });
  });
}

evn_status evn_quantizer_finish(evn_quantizer quantizer, evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QuantizerPtr> q(quantizer);
    require(model != nullptr, "model");
    const WorkScope scope = scope_of((*q)->request());
    *model = static_cast<evn_model>(make_handle((*q)->finish()));
  });
}

evn_status evn_quantizer_save(evn_quantizer quantizer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QuantizerPtr> q(quantizer);
    require(path != nullptr, "path");
    if (path[0] == '\0') fail(EVN_ERROR_IO, "the path is empty");
    const WorkScope scope = scope_of((*q)->request());
    (*q)->save(path);
  });
}

evn_status evn_quantizer_verify(evn_quantizer quantizer, const evn_tensor* inputs, uint32_t input_count, evn_error* error) {
  return guarded(error, [&] {
    with_batch(quantizer, inputs, input_count, [](Quantizer& q, std::span<const RunValue> values) { q.verify(values); });
  });
}

evn_status evn_quantizer_report(evn_quantizer quantizer, evn_format format, char* buffer, size_t capacity, size_t* size,
                                evn_error* error) {
  return guarded(error, [&] {
    const Pin<QuantizerPtr> q(quantizer);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text((*q)->report(format), buffer, capacity, size);
  });
}

}  // extern "C"
