#include "train/loss.h"

namespace evn_train {

using evn::make_attribute;
using evn::NodeWriter;

ValueId add_loss(NodeWriter& w, evn_loss loss, ValueId z, Labels labels, ValueId x) {
  switch (loss) {
    case EVN_LOSS_SOFTMAX_CROSS_ENTROPY: {
      if (labels == Labels::kClasses) return w.op("SoftmaxCrossEntropyLoss", {x, z});
      const ValueId log = w.op("LogSoftmax", {x}, {make_attribute("axis", 1)});
      // A class of probability 0 adds nothing, even if its logit is -infinity.
      const ValueId zero = w.number(0);
      const ValueId terms = w.op("Where", {w.op("Equal", {z, zero}), zero, w.op("Mul", {log, z})});
      const ValueId rows = w.op("ReduceSum", {terms, w.integers({1})}, {make_attribute("keepdims", 0)});
      return w.op("Neg", {w.mean(rows)});
    }
    case EVN_LOSS_BCE_WITH_LOGITS: {  // z softplus(-x) + (1 - z) softplus(x): no term overflows, cancels, or has a corner at 0
      const ValueId of_ones = w.op("Mul", {z, w.op("Softplus", {w.op("Neg", {x})})});
      const ValueId of_zeros = w.op("Mul", {w.op("Sub", {w.number(1), z}), w.op("Softplus", {x})});
      return w.mean(w.op("Add", {of_ones, of_zeros}));
    }
    case EVN_LOSS_MSE: {
      const ValueId d = w.op("Sub", {x, z});
      return w.mean(w.op("Mul", {d, d}));
    }
    case EVN_LOSS_L1: return w.mean(w.op("Abs", {w.op("Sub", {x, z})}));
    default: return w.sum(x);
  }
}

void give_shape(NodeWriter& w, ValueId value) {
  constexpr auto count = static_cast<std::int64_t>(kShapeElements);
  const std::vector<std::int64_t> rest(kShapeElements, -1);
  const ValueId dims = w.op("Concat", {w.op("Shape", {value}), w.integers(rest)}, {make_attribute("axis", 0)});
  const ValueId first = w.op("Slice", {dims, w.integers({0}), w.integers({count})});
  w.add_output_as("evener/shape", first, DType::kInt64, evn::Shape{count});
}

evn::Shape shape_of_labels(evn_loss loss, Labels labels, const evn::Shape& output) {
  const bool without_classes = loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY && labels == Labels::kClasses;
  evn::Shape shape;
  for (int i = 0; i < output.rank(); ++i) {
    if (!without_classes || i != 1) shape.push_back(output[i]);
  }
  return shape;
}

Rightness add_rightness(NodeWriter& w, evn_loss loss, ValueId z, Labels labels, ValueId x) {
  const auto classes = [&](ValueId of) { return w.op("ArgMax", {of}, {make_attribute("axis", 1), make_attribute("keepdims", 0)}); };
  ValueId got = kNoValue, expected = kNoValue;
  if (loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY) {
    got = classes(x);
    expected = labels == Labels::kClasses ? z : classes(z);
  } else if (loss == EVN_LOSS_BCE_WITH_LOGITS) {
    got = w.op("Greater", {x, w.number(0)});
    expected = w.op("Greater", {z, w.number(0.5f)});
  } else {
    return {w.integer(0), w.integer(0)};
  }
  return {w.sum(w.cast(w.op("Equal", {got, expected}), DType::kInt64)), w.op("Size", {got})};
}

}  // namespace evn_train
