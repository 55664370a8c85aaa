// Shapes of labels, which depend on that of the output and are compared with it after a run: no label is repeated to fit.
#include <algorithm>
#include <span>

#include "modules/train/loss.h"
#include "modules/train/trainer.h"

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

}  // namespace

void Trainer::check_labels(const evn::Shape& output, Labels kind, evn_tensor labels) const {
  const evn_loss loss = settings_.given.loss;
  const char* const name = graphs_->logits().c_str();
  if (kind == Labels::kNone) {
    if (std::ranges::all_of(output.dims(), [](std::int64_t dim) { return dim == 1; })) return;
    fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.128s\", which is the loss, has the shape %s, expected one element", name,
         output.to_string().c_str());
  }
  const evn::Shape given = shape_of(labels), expected = shape_of_labels(loss, kind, output);
  if (given == expected) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "labels have the shape %s, expected %s: the loss %s is of \"%.128s\", whose shape is %s",
       given.to_string().c_str(), expected.to_string().c_str(), loss_name(loss), name, output.to_string().c_str());
}

void Trainer::check_labels_of_run(const Tensor& shape, Labels kind, evn_tensor labels) const {
  check_labels(read_shape(shape), kind, labels);
}

// A run that fails does not say the shape of its output: another model computes that alone.
void Trainer::explain_failure(const evn::Error& error, std::span<const evn_tensor> inputs, Labels kind, evn_tensor labels) {
  const bool is_of_shapes = error.status == EVN_ERROR_INVALID_ARGUMENT || error.status == EVN_ERROR_INVALID_MODEL;
  if (!is_of_shapes || kind == Labels::kNone) return;
  const std::optional<evn::Error> other = error_of([&] {
    if (!shape_of_output_) {
      Session session = make_session(graphs_->shape_model(), "training: shape", false);
      shape_of_output_.emplace();
      shape_of_output_->session = std::move(session);
    }
    Work& work = *shape_of_output_;
    set_arguments(work, inputs, nullptr);
    work.outputs.assign(1, shape_.get());
    run(work, 0, Run::kCancellable);
  });
  if (!other) check_labels(read_shape(shape_), kind, labels);
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
