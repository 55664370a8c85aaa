// Normalizations and losses.
#include "graph/gradient/rules.h"
#include "ops/batch_norm.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

ValueId mean_over(Tape& t, ValueId v, ValueId axes) { return t.op("ReduceMean", {v, axes}); }

struct Normalized {
  ValueId inverse;  // 1 / sqrt(variance + epsilon)
  ValueId value;    // (x - mean) * inverse
};

Normalized normalized(Tape& t, ValueId x, ValueId mean, ValueId variance, float epsilon) {
  const ValueId inverse = t.op("Reciprocal", {t.op("Sqrt", {t.add(variance, static_cast<double>(epsilon))})});
  return {inverse, t.mul(t.sub(x, mean), inverse)};
}

// With mean and variance those of x over the axes.
Normalized normalized_over(Tape& t, ValueId x, ValueId axes, float epsilon) {
  const ValueId mean = mean_over(t, x, axes);
  return normalized(t, x, mean, mean_over(t, t.square(t.sub(x, mean)), axes), epsilon);
}

// The derivative by x, of g by the normalized value.
ValueId through_statistics(Tape& t, const Normalized& n, ValueId g, ValueId axes) {
  const ValueId along = t.mul(n.value, mean_over(t, t.mul(g, n.value), axes));
  return t.mul(n.inverse, t.sub(t.sub(g, mean_over(t, g, axes)), along));
}

// A value per channel, so that it broadcasts with [N, C, ...].
ValueId as_channels(Tape& t, ValueId v, int rank) {
  if (rank <= 2) return v;
  Tape::Ints axes;
  for (int i = 2; i < rank; ++i) axes.push_back(i - 1);
  return t.op("Unsqueeze", {v, t.ints(axes)});
}

ValueId channel_sums(Tape& t, ValueId v, int rank) {
  Tape::Ints axes = {0};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return t.op("ReduceSum", {v, t.ints(axes)}, {{"keepdims", std::int64_t{0}, {}}});
}

// dx, dscale and dbias where one node makes them.
void give_norm(Backward& b, const std::vector<ValueId>& made) {
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (b.wants(i)) b.give(i, made[i]);
  }
}

// One node, where no derivative of it can be asked for. Returns whether it is put in.
bool batch_norm_in_one(Backward& b, bool training) {
  Tape& t = b.tape;
  if (t.may_be_differentiated() || b.wants(3) || b.wants(4)) return false;
  const DType dtype = t.dtype(b.x());
  if (dtype == DType::kUndefined || t.dtype(b.x(1)) != dtype || t.dtype(b.x(3)) != dtype) return false;
  std::vector<ValueId> inputs = {b.x(), b.x(1), b.dy()};
  for (std::size_t i = 3; i < 5; ++i) inputs.push_back(training ? b.demand_output(i) : b.x(i));
  Tape::Attributes attributes = b.copied({"epsilon"});
  attributes.push_back({"training_mode", std::int64_t{training}, {}});
  give_norm(b, t.owns(kBatchNormGradient, std::move(inputs), std::move(attributes), 3));
  return true;
}

// The rule of BatchNormalization, whose inputs are x, scale, B, mean, variance; in training, mean and variance are those of x.
void batch_normalization(Backward& b) {
  Tape& t = b.tape;
  const int rank = b.known_rank(0);
  if (rank < 2) b.refuse("its input has no channels");
  if (batch_norm_by_element(b.node)) b.refuse("its parameters are not per channel");
  const float epsilon = b.real("epsilon", 1e-5f);
  const bool training = batch_norm_trains(b.node);
  if (batch_norm_in_one(b, training)) return;
  Tape::Ints others = {0};
  for (int i = 2; i < rank; ++i) others.push_back(i);
  const ValueId axes = t.ints(others);
  const Normalized n = training ? normalized_over(t, b.x(), axes, epsilon)
                                : normalized(t, b.x(), as_channels(t, b.x(3), rank), as_channels(t, b.x(4), rank), epsilon);
  const ValueId g = t.mul(b.dy(), as_channels(t, b.x(1), rank));
  if (b.wants(0)) b.give(0, training ? through_statistics(t, n, g, axes) : t.mul(g, n.inverse));
  if (b.wants(1)) b.give(1, channel_sums(t, t.mul(b.dy(), n.value), rank));
  if (b.wants(2)) b.give(2, channel_sums(t, b.dy(), rank));
  if (training) return;  // the others are moved on, and nothing else
  if (b.wants(3)) b.give(3, t.neg(channel_sums(t, t.mul(g, n.inverse), rank)));
  if (b.wants(4)) b.give(4, t.mul(channel_sums(t, t.mul(t.mul(g, n.value), t.square(n.inverse)), rank), -0.5));
}

void instance_normalization(Backward& b) {
  Tape& t = b.tape;
  const int rank = b.known_rank(0);
  if (rank < 3) b.refuse("its input has no planes");
  Tape::Ints planes;
  for (int i = 2; i < rank; ++i) planes.push_back(i);
  const ValueId axes = t.ints(planes);
  const Normalized n = normalized_over(t, b.x(), axes, b.real("epsilon", 1e-5f));
  if (b.wants(0)) b.give(0, through_statistics(t, n, t.mul(b.dy(), as_channels(t, b.x(1), rank)), axes));
  if (b.wants(1)) b.give(1, channel_sums(t, t.mul(b.dy(), n.value), rank));
  if (b.wants(2)) b.give(2, channel_sums(t, b.dy(), rank));
}

// [N, groups, elements of a group] as a list.
ValueId rows_of_groups(Tape& t, ValueId x, std::int64_t groups) {
  if (t.has_known_shape(x)) {
    const Shape& s = t.shape(x);
    return t.ints({s[0], groups, s.elements(1, s.rank()) / groups});
  }
  const ValueId batch = t.dims(x, 0, 1), all = t.ints({groups});
  const ValueId rows = t.op("Max", {t.mul(batch, all), t.ints({1})});  // so that nothing is divided by 0 in an empty batch
  return t.concat({batch, all, t.div(t.op("Size", {x}), rows)});
}

// Each group of channels is normalized as a row.
void group_normalization(Backward& b) {
  Tape& t = b.tape;
  if (b.node.op->since < 21) b.refuse("its scale is one per group");
  const int rank = b.known_rank(0);
  if (rank < 3) b.refuse("its input has no planes");
  const std::int64_t groups = b.integer("num_groups");
  if (groups < 1) b.refuse("its num_groups is not positive");
  const ValueId rows = rows_of_groups(t, b.x(), groups), axes = t.ints({2});
  const Normalized n = normalized_over(t, t.reshape(b.x(), rows), axes, b.real("epsilon", 1e-5f));
  const ValueId g = t.reshape(t.mul(b.dy(), as_channels(t, b.x(1), rank)), rows);
  if (b.wants(0)) b.give(0, t.reshape_to(b.x(), through_statistics(t, n, g, axes)));
  if (b.wants(1)) b.give(1, channel_sums(t, t.mul(b.dy(), t.reshape_to(b.x(), n.value)), rank));
  if (b.wants(2)) b.give(2, channel_sums(t, b.dy(), rank));
}

// From `axis` on.
ValueId last_axes(Backward& b) {
  std::int64_t axis = b.integer("axis", -1);
  if (axis >= 0) axis -= b.known_rank(0);
  Tape::Ints axes;
  for (std::int64_t i = std::max<std::int64_t>(axis, -kMaxRank); i < 0; ++i) axes.push_back(i);
  if (axes.empty()) b.refuse("its axis is outside the rank");
  return b.tape.ints(axes);
}

// One node, where no derivative of it can be asked for and the scale has surely the dims that are normalized.
bool layer_norm_in_one(Backward& b) {
  Tape& t = b.tape;
  const int rank = t.rank(b.x()), of_scale = t.rank(b.x(1));
  if (t.may_be_differentiated() || rank < 0 || of_scale < 1 || t.dtype(b.x()) == DType::kUndefined) return false;
  const int axis = b.axis_of(b.integer("axis", -1), rank);
  if (of_scale != rank - axis || t.dtype(b.x(1)) != t.dtype(b.x())) return false;
  for (int i = 0; i < of_scale; ++i) {
    const std::int64_t n = t.shape(b.x(1))[i];
    if (n < 0 || t.shape(b.x())[axis + i] != n) return false;
  }
  if (b.x(2) != kNoValue && !t.same_shape(b.x(1), b.x(2))) return false;
  give_norm(b, t.owns(kLayerNormGradient, {b.x(), b.x(1), b.dy()}, b.copied({"epsilon", "axis"}), 3));
  return true;
}

void layer_normalization(Backward& b) {
  Tape& t = b.tape;
  if (layer_norm_in_one(b)) return;
  const ValueId axes = last_axes(b);
  const Normalized n = normalized_over(t, b.x(), axes, b.real("epsilon", 1e-5f));
  if (b.wants(0)) b.give(0, through_statistics(t, n, t.mul(b.dy(), b.x(1)), axes));
  if (b.wants(1)) b.give_sum(1, t.mul(b.dy(), n.value));
  if (b.wants(2)) b.give_sum(2, b.dy());
}

void rms_normalization(Backward& b) {
  Tape& t = b.tape;
  const ValueId axes = last_axes(b);
  const ValueId power = t.add(mean_over(t, t.square(b.x()), axes), static_cast<double>(b.real("epsilon", 1e-5f)));
  const ValueId inverse = t.op("Reciprocal", {t.op("Sqrt", {power})});
  const ValueId value = t.mul(b.x(), inverse);
  if (b.wants(0)) {
    const ValueId g = t.mul(b.dy(), b.x(1));
    b.give(0, t.mul(inverse, t.sub(g, t.mul(value, mean_over(t, t.mul(g, value), axes)))));
  }
  if (b.wants(1)) b.give_sum(1, t.mul(b.dy(), value));
}

// ------------------------------------------------------------------------------------------------------------ losses --

Tape::Attributes loss_attributes(const Backward& b) { return b.copied({"reduction", "ignore_index"}); }

ValueId loss_gradient_of(Backward& b, const char* op) {
  if (b.wants(2)) b.refuse("by its weights it has no rule");
  std::vector<ValueId> inputs = {b.x(), b.x(1), b.dys[0]};
  if (b.x(2) != kNoValue) inputs.push_back(b.x(2));
  return b.tape.own(op, inputs, loss_attributes(b));
}

void likelihood_loss(Backward& b) { b.give(0, loss_gradient_of(b, kLossGradient)); }

// The gradient of logits, also through their LogSoftmax, which is output 1.
void cross_entropy_loss(Backward& b) {
  Tape& t = b.tape;
  ValueId dx = b.dys[0] == kNoValue ? kNoValue : loss_gradient_of(b, kCrossEntropyGradient);
  if (b.dys.size() > 1 && b.dys[1] != kNoValue) {
    const ValueId through = t.sub(b.dys[1], t.mul(t.op("Exp", {b.y(1)}), t.sum(b.dys[1], t.ints({1}))));
    dx = dx == kNoValue ? through : t.add(dx, through);
  }
  b.give(0, dx);
}

// The rule of CrossEntropyGradient, whose inputs are x, target, g and perhaps weights: linear in g; by x, of what it multiplies
// Softmax by.
void cross_entropy_gradient(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(3)) b.refuse("by its weights it has no rule");
  std::vector<ValueId> inputs = {b.x(), b.x(1), b.x(2)};
  if (b.x(3) != kNoValue) inputs.push_back(b.x(3));
  if (b.wants(0)) {
    const ValueId axis = t.ints({1});
    const ValueId factor = t.neg(t.sum(t.own(kLossGradient, inputs, loss_attributes(b)), axis));
    const ValueId softmax = t.op("Softmax", {b.x()}, {{"axis", std::int64_t{1}, {}}});
    const ValueId along = t.mul(softmax, t.mul(b.dy(), factor));
    b.give(0, t.sub(along, t.mul(softmax, t.sum(along, axis))));
  }
  if (b.wants(2)) {
    inputs[2] = t.filled(1, b.x(2));
    const ValueId each = t.mul(b.dy(), t.own(kCrossEntropyGradient, inputs, loss_attributes(b)));
    const std::string* reduction = b.text("reduction");
    const bool none = reduction != nullptr && *reduction == "none";
    b.give(2, none ? t.op("ReduceSum", {each, t.ints({1})}, {{"keepdims", std::int64_t{0}, {}}}) : t.sum_to(b.x(2), each));
  }
}

// Linear in what comes back.
void loss_gradient(Backward& b) {
  if (b.wants(3)) b.refuse("by its weights it has no rule");
  if (!b.wants(2)) return;
  std::vector<ValueId> inputs = {b.dy(), b.x(1)};
  if (b.x(3) != kNoValue) inputs.push_back(b.x(3));
  b.give(2, b.tape.op("NegativeLogLikelihoodLoss", inputs, loss_attributes(b)));
}

constexpr GradientRule kRows[] = {
    {"BatchNormalization", batch_normalization},
    {"InstanceNormalization", instance_normalization},
    {"GroupNormalization", group_normalization},
    {"LayerNormalization", layer_normalization},
    {"RMSNormalization", rms_normalization},
    {"NegativeLogLikelihoodLoss", likelihood_loss},
    {"SoftmaxCrossEntropyLoss", cross_entropy_loss, 2},
    {kLossGradient, loss_gradient, 1, kInternalDomain},
    {kCrossEntropyGradient, cross_entropy_gradient, 1, kInternalDomain},
};

}  // namespace

extern const GradientRules kNormGradients = kRows;

}  // namespace evn
