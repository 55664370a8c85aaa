#include "train/loss.h"

namespace evn_train {

std::string add_loss(NodeWriter& w, evn_loss loss, Labels labels, const std::string& x) {
  switch (loss) {
    case EVN_LOSS_SOFTMAX_CROSS_ENTROPY: {
      if (labels == Labels::kClasses) return w.op("SoftmaxCrossEntropyLoss", {x, kLabels});
      const std::string log = w.op("LogSoftmax", {x}, {int_attribute("axis", 1)});
      // A class of probability 0 adds nothing, even if its logit is -infinity.
      const std::string zero = w.number(0);
      const std::string terms = w.op("Where", {w.op("Equal", {kLabels, zero}), zero, w.op("Mul", {log, kLabels})});
      const std::string rows = w.op("ReduceSum", {terms, w.integers({1})}, {int_attribute("keepdims", 0)});
      return w.op("Neg", {w.mean(rows)});
    }
    case EVN_LOSS_BCE_WITH_LOGITS: {  // z softplus(-x) + (1 - z) softplus(x): no term overflows, cancels, or has a corner at 0
      const std::string of_ones = w.op("Mul", {kLabels, w.op("Softplus", {w.op("Neg", {x})})});
      const std::string of_zeros = w.op("Mul", {w.op("Sub", {w.number(1), kLabels}), w.op("Softplus", {x})});
      return w.mean(w.op("Add", {of_ones, of_zeros}));
    }
    case EVN_LOSS_MSE: {
      const std::string d = w.op("Sub", {x, kLabels});
      return w.mean(w.op("Mul", {d, d}));
    }
    case EVN_LOSS_L1: return w.mean(w.op("Abs", {w.op("Sub", {x, kLabels})}));
    default: return w.sum(x);
  }
}

void give_shape(NodeWriter& w, const std::string& value) {
  const std::vector<std::int64_t> rest(kShapeElements, -1);
  const std::string dims = w.op("Concat", {w.op("Shape", {value}), w.integers(rest)}, {int_attribute("axis", 0)});
  const std::string first = w.op("Slice", {dims, w.integers({0}), w.integers({static_cast<std::int64_t>(kShapeElements)})});
  w.give(first, "evener/shape", tensor_value("", kInt64, {static_cast<std::int64_t>(kShapeElements)}));
}

evn::Shape shape_of_labels(evn_loss loss, Labels labels, const evn::Shape& output) {
  const bool without_classes = loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY && labels == Labels::kClasses;
  evn::Shape shape;
  for (int i = 0; i < output.rank(); ++i) {
    if (!without_classes || i != 1) shape.push_back(output[i]);
  }
  return shape;
}

Rightness add_rightness(NodeWriter& w, evn_loss loss, Labels labels, const std::string& x) {
  const auto classes = [&](const std::string& of) {
    return w.op("ArgMax", {of}, {int_attribute("axis", 1), int_attribute("keepdims", 0)});
  };
  std::string got, expected;
  if (loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY) {
    got = classes(x);
    expected = labels == Labels::kClasses ? kLabels : classes(kLabels);
  } else if (loss == EVN_LOSS_BCE_WITH_LOGITS) {
    got = w.op("Greater", {x, w.number(0)});
    expected = w.op("Greater", {kLabels, w.number(0.5f)});
  } else {
    return {w.integer(0), w.integer(0)};
  }
  return {w.sum(w.cast(w.op("Equal", {got, expected}), kInt64)), w.op("Size", {got})};
}

}  // namespace evn_train
