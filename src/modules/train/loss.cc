#include "modules/train/loss.h"

namespace evn_train {

std::string add_loss(NodeWriter& w, evn_loss loss, Labels labels, const std::string& x) {
  switch (loss) {
    case EVN_LOSS_SOFTMAX_CROSS_ENTROPY: {
      if (labels == Labels::kClasses) return w.op("SoftmaxCrossEntropyLoss", {x, kLabels});
      const std::string log = w.op("LogSoftmax", {x}, {int_attribute("axis", 1)});
      const std::string rows = w.op("ReduceSum", {w.op("Mul", {log, kLabels}), w.integers({1})}, {int_attribute("keepdims", 0)});
      return w.op("Neg", {w.mean(rows)});
    }
    case EVN_LOSS_BCE_WITH_LOGITS: {  // max(x, 0) - x z + log(1 + exp(-|x|)), which overflows nowhere
      const std::string linear = w.op("Sub", {w.op("Relu", {x}), w.op("Mul", {x, kLabels})});
      return w.mean(w.op("Add", {linear, w.op("Softplus", {w.op("Neg", {w.op("Abs", {x})})})}));
    }
    case EVN_LOSS_MSE: {
      const std::string d = w.op("Sub", {x, kLabels});
      return w.mean(w.op("Mul", {d, d}));
    }
    case EVN_LOSS_L1: return w.mean(w.op("Abs", {w.op("Sub", {x, kLabels})}));
    default: return w.sum(x);
  }
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
