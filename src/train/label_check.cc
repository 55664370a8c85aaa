#include "train/label_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "train/loss.h"

namespace evn_train {
namespace {

evn::Shape shape_of(evn_tensor tensor) {
  const evn_tensor_info info = info_of(tensor);
  return evn::Shape(std::span<const std::int64_t>(info.dims, info.rank));
}

evn::Shape read_shape(const Tensor& shape) {
  std::int64_t dims[kShapeElements];
  shape.read(dims, sizeof dims);
  return evn::Shape(std::span<const std::int64_t>(dims, std::find(std::begin(dims), std::end(dims), -1)));
}

bool is_of_shapes(const evn::Error& error) {
  return error.status == EVN_ERROR_INVALID_ARGUMENT || error.status == EVN_ERROR_INVALID_MODEL;
}

}  // namespace

Labels LabelCheck::kind_of(evn_tensor labels) const {
  if (labels == nullptr) {
    if (!graphs_.takes(Labels::kNone)) fail(EVN_ERROR_INVALID_ARGUMENT, "labels is NULL");
    return Labels::kNone;
  }
  const evn_tensor_info info = info_of(labels);
  const Labels kind = info.dtype == EVN_DTYPE_INT64 ? Labels::kClasses : Labels::kNumbers;
  const bool fits = info.dtype == EVN_DTYPE_INT64 || info.dtype == EVN_DTYPE_FLOAT32;
  if (!fits || !graphs_.takes(kind)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "labels have dtype %s, which the loss %s does not take",
         evn::dtype_name(static_cast<evn::DType>(info.dtype)), loss_name(settings_.given.loss));
  }
  return kind;
}

Batch LabelCheck::batch_of(std::span<const evn_tensor> inputs, evn_tensor labels) const {
  const Labels kind = kind_of(labels);
  const Graph& graph = graphs_.graph();
  if (inputs.size() != graph.inputs.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs, %zu are given", graph.inputs.size(), inputs.size());
  std::int64_t rows = -1;
  for (std::size_t i = 0; i <= inputs.size(); ++i) {
    if (i == inputs.size() && labels == nullptr) break;
    const evn_tensor_info info = info_of(i < inputs.size() ? inputs[i] : labels);
    if (info.rank == 0) continue;
    if (rows >= 0 && info.dims[0] != rows) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "%s has a batch of %lld, others have %lld",
           i < inputs.size() ? name_of(graph, graph.inputs[i]).c_str() : "labels", static_cast<long long>(info.dims[0]),
           static_cast<long long>(rows));
    }
    rows = info.dims[0];
  }
  if (rows == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the batch is empty");
  return {inputs, labels, kind, std::max<std::int64_t>(rows, 0)};
}

// Throws EVN_ERROR_INVALID_ARGUMENT with both shapes if labels do not fit what the loss reads.
void LabelCheck::check(const evn::Shape& output, Labels kind, evn_tensor labels) const {
  const evn_loss loss = settings_.given.loss;
  const char* const name = graphs_.logits().c_str();
  if (kind == Labels::kNone) {
    if (std::ranges::all_of(output.dims(), [](std::int64_t dim) { return dim == 1; })) return;
    fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.128s\", which is the loss, has the shape %s, expected one element", name,
         output.to_string().c_str());
  }
  graphs_.check_rank(output.rank());
  const evn::Shape given = shape_of(labels), expected = shape_of_labels(loss, kind, output);
  if (given == expected) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "labels have the shape %s, expected %s: the loss %s is of \"%.128s\", whose shape is %s",
       given.to_string().c_str(), expected.to_string().c_str(), loss_name(loss), name, output.to_string().c_str());
}

// Computes the shape of what the loss reads, by a model of its own that computes nothing else.
evn::Shape LabelCheck::find_shape(std::span<const evn_tensor> inputs) {
  if (!shape_of_output_) shape_of_output_ = works_.make(graphs_.shape_model(), "training: shape");
  tensors_.give({inputs}, &*shape_of_output_);
  shape_of_output_->outputs.assign(1, tensors_.shape.get());
  works_.run(*shape_of_output_, 0, Works::Stop::kByToken);
  return read_shape(tensors_.shape);
}

// A run that fails does not say the shape of its output.
void LabelCheck::explain(const evn::Error& error, const Batch& batch) {
  if (!is_of_shapes(error) || batch.kind == Labels::kNone) return;
  std::optional<evn::Shape> shape;
  error_of([&] { shape = find_shape(batch.inputs); });
  if (shape) check(*shape, batch.kind, batch.labels);
}

// Returns true if the first dim of what the loss reads is the number of rows of the inputs. `part`: the shape for `rows` rows,
// which is its first dim too; that may be a coincidence, which another number of rows shows. A model that cannot take that number
// has one output shape for each batch that it can take.
bool LabelCheck::follows_rows(const evn::Shape& part, std::size_t rows, std::span<const evn_tensor> inputs) {
  if (output_follows_rows_) return true;
  const std::size_t others = rows == 1 ? 2 : 1;
  std::vector<Tensor> views;
  std::vector<evn_tensor> few;
  for (const evn_tensor input : inputs) {
    if (info_of(input).rank > 0) views.push_back(rows_of(input, 0, others));
    few.push_back(info_of(input).rank > 0 ? views.back().get() : input);
  }
  evn::Shape shape;
  const std::optional<evn::Error> error = error_of([&] { shape = find_shape(few); });
  if (error && !is_of_shapes(*error)) throw evn::Error(*error);
  output_follows_rows_ = error || shape.rank() != part.rank() || shape[0] == static_cast<std::int64_t>(others);
  return output_follows_rows_;
}

void LabelCheck::check_parts(const Batch& batch, std::span<const Part> parts) {
  std::vector<std::pair<std::size_t, evn::Shape>> shapes;  // rows, and the shape for them
  for (const Part& p : parts) shapes.emplace_back(p.rows, read_shape(*p.shape));
  const auto begins_with_rows = [](const auto& part) {
    return part.second.rank() > 0 && part.second[0] == static_cast<std::int64_t>(part.first);
  };
  const std::size_t rows_of_first = shapes.front().first;
  evn::Shape whole = shapes.front().second;
  if (shapes.size() > 1 && std::ranges::all_of(shapes, begins_with_rows)) {
    const bool differ = std::ranges::any_of(shapes, [&](const auto& part) { return part.first != rows_of_first; });
    if (differ || follows_rows(whole, rows_of_first, batch.inputs)) whole[0] = batch.rows;
  }
  check(whole, batch.kind, batch.labels);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (batch.kind != Labels::kNone && info_of(batch.labels).rank > 0) check(shapes[i].second, batch.kind, parts[i].labels);
  }
}

void LabelCheck::run(Work& work, const Batch& batch, std::uint64_t seed, evn::OutputListener listener) {
  if (const std::optional<evn::Error> error = error_of([&] { works_.run(work, seed, Works::Stop::kByToken, listener); })) {
    explain(*error, batch);
    throw evn::Error(*error);
  }
  check(read_shape(tensors_.shape), batch.kind, batch.labels);
}

}  // namespace evn_train
