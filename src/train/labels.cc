// Shapes of labels, which depend on that of the output and are compared with it after a run: no label is repeated to fit.
#include <algorithm>
#include <span>

#include "train/loss.h"
#include "train/trainer.h"

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

void Trainer::check_labels(const evn::Shape& output, Labels kind, evn_tensor labels) const {
  const evn_loss loss = settings_.given.loss;
  const char* const name = graphs_->logits().c_str();
  if (kind == Labels::kNone) {
    if (std::ranges::all_of(output.dims(), [](std::int64_t dim) { return dim == 1; })) return;
    fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.128s\", which is the loss, has the shape %s, expected one element", name,
         output.to_string().c_str());
  }
  graphs_->check_rank(output.rank());
  const evn::Shape given = shape_of(labels), expected = shape_of_labels(loss, kind, output);
  if (given == expected) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "labels have the shape %s, expected %s: the loss %s is of \"%.128s\", whose shape is %s",
       given.to_string().c_str(), expected.to_string().c_str(), loss_name(loss), name, output.to_string().c_str());
}

void Trainer::check_labels_of_run(const Tensor& shape, Labels kind, evn_tensor labels) const {
  check_labels(read_shape(shape), kind, labels);
}

// Computes the shape of what the loss reads, by a model of its own that computes nothing else.
evn::Shape Trainer::find_shape(std::span<const evn_tensor> inputs) {
  if (!shape_of_output_) {
    Session session = make_session(graphs_->shape_model(), "training: shape", false);
    shape_of_output_.emplace();
    shape_of_output_->session = std::move(session);
  }
  Work& work = *shape_of_output_;
  set_arguments(work, inputs, nullptr);
  work.outputs.assign(1, shape_.get());
  run(work, 0, Run::kCancellable);
  return read_shape(shape_);
}

// A run that fails does not say the shape of its output.
void Trainer::explain_failure(const evn::Error& error, std::span<const evn_tensor> inputs, Labels kind, evn_tensor labels) {
  if (!is_of_shapes(error) || kind == Labels::kNone) return;
  std::optional<evn::Shape> shape;
  error_of([&] { shape = find_shape(inputs); });
  if (shape) check_labels(*shape, kind, labels);
}

// Returns true if the first dim of what the loss reads is the number of rows of the inputs. `part`: the shape for `rows` rows,
// which is its first dim too; that may be a coincidence, which another number of rows shows. A model that cannot take that number
// has one output shape for each batch that it can take.
bool Trainer::follows_rows(const evn::Shape& part, std::size_t rows, std::span<const evn_tensor> inputs) {
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

// The loss of a batch whose rows replicas have shared is checked as one device would check it: by the shape for all rows.
void Trainer::check_labels_of_parts(std::span<const evn_tensor> inputs, Labels kind, evn_tensor labels, std::size_t rows) {
  std::vector<std::pair<std::size_t, evn::Shape>> parts;  // rows, and the shape for them
  for (const Replica& r : replicas_) {
    if (r.rows > 0) parts.emplace_back(r.rows, read_shape(r.shape));
  }
  const auto begins_with_rows = [](const auto& part) {
    return part.second.rank() > 0 && part.second[0] == static_cast<std::int64_t>(part.first);
  };
  const std::size_t rows_of_first = parts.front().first;
  evn::Shape whole = parts.front().second;
  if (parts.size() > 1 && std::ranges::all_of(parts, begins_with_rows)) {
    const bool differ = std::ranges::any_of(parts, [&](const auto& part) { return part.first != rows_of_first; });
    if (differ || follows_rows(whole, rows_of_first, inputs)) whole[0] = static_cast<std::int64_t>(rows);
  }
  check_labels(whole, kind, labels);
  for (const Replica& r : replicas_) {
    if (r.rows > 0 && kind != Labels::kNone && info_of(labels).rank > 0) check_labels_of_run(r.shape, kind, r.views.back().get());
  }
}

void Trainer::run_with_labels(Work& work, Labels kind, std::span<const evn_tensor> inputs, evn_tensor labels, std::uint64_t seed,
                              Run how) {
  if (const std::optional<evn::Error> error = error_of([&] { run(work, seed, how); })) {
    explain_failure(*error, inputs, kind, labels);
    throw evn::Error(*error);
  }
  check_labels_of_run(shape_, kind, labels);
}

}  // namespace evn_train
