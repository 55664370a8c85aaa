// Shapes of labels, which depend on that of the output and are compared with it after a run: no label is repeated to fit.
#include <algorithm>

#include "modules/train/loss.h"
#include "modules/train/trainer.h"

namespace evn_train {
namespace {

std::vector<std::int64_t> dims_of(evn_tensor tensor) {
  const evn_tensor_info info = info_of(tensor);
  return {info.dims, info.dims + info.rank};
}

std::vector<std::int64_t> read_shape(const Tensor& shape) {
  std::vector<std::int64_t> dims(kShapeElements);
  shape.read(dims.data(), dims.size() * sizeof dims[0]);
  dims.erase(std::find(dims.begin(), dims.end(), -1), dims.end());
  return dims;
}

}  // namespace

void Trainer::check_labels(const std::vector<std::int64_t>& output, Labels kind, evn_tensor labels) const {
  const evn_loss loss = settings_.given.loss;
  const char* const name = graphs_->logits().c_str();
  if (kind == Labels::kNone) {
    if (std::all_of(output.begin(), output.end(), [](std::int64_t dim) { return dim == 1; })) return;
    fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.128s\", which is the loss, has the shape %s, expected one element", name,
         dims_text(output).c_str());
  }
  const std::vector<std::int64_t> given = dims_of(labels), expected = dims_of_labels(loss, kind, output);
  if (given == expected) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "labels have the shape %s, expected %s: the loss %s is of \"%.128s\", whose shape is %s",
       dims_text(given).c_str(), dims_text(expected).c_str(), loss_name(loss), name, dims_text(output).c_str());
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
