// Reductions, Softmax and its like, running sums. ReduceMax and ReduceMin share dy among equal elements.
#include "graph/gradient/rules.h"

namespace evn {
namespace {

// A value of the result's shape with the axes that were reduced, so that it broadcasts with x.
ValueId with_axes(Backward& b, ValueId v) {
  const ValueId axes = b.list_or_input("axes", 1);
  if (b.integer("keepdims", 1) != 0 || axes == kNoValue) return v;
  return b.tape.op("Unsqueeze", {v, axes});
}

// How many elements of `large` there are to each of `small`.
ValueId ratio(Tape& t, ValueId large, ValueId small) {
  if (t.has_known_shape(large) && t.has_known_shape(small)) {
    const std::int64_t n = t.shape(small).elements();
    return t.scalar(n == 0 ? 1 : static_cast<double>(t.shape(large).elements()) / static_cast<double>(n), large);
  }
  const ValueId one = t.op("Squeeze", {t.ints({1})});  // so that nothing is divided by 0 where there is nothing
  return t.op("CastLike", {t.div(t.op("Size", {large}), t.op("Max", {t.op("Size", {small}), one})), large});
}

void reduce_sum(Backward& b) { b.give(0, b.tape.repeat_to(b.x(), with_axes(b, b.dy()))); }

void reduce_mean(Backward& b) {
  Tape& t = b.tape;
  b.give(0, t.repeat_to(b.x(), with_axes(b, t.div(b.dy(), ratio(t, b.x(), b.y())))));
}

void reduce_extreme(Backward& b) {
  Tape& t = b.tape;
  const ValueId kept = with_axes(b, b.y());
  const ValueId chosen = t.op("Equal", {b.x(), kept});
  const ValueId one = t.scalar(1, b.x());
  const ValueId shares = t.div(with_axes(b, b.dy()), t.sum_to(kept, t.where_else_0(chosen, one)));
  b.give(0, t.where_else_0(chosen, t.repeat_to(b.x(), shares)));
}

// dx = dy * slope, both broadcast.
template <ValueId (*Slope)(Backward&)>
void reduce(Backward& b) {
  b.give(0, b.tape.mul(with_axes(b, b.dy()), Slope(b)));
}

ValueId square_slope(Backward& b) { return b.tape.mul(b.x(), 2.0); }
ValueId absolute_slope(Backward& b) { return b.tape.op("Sign", {b.x()}); }
// Softmax: divided by their own sum, the exponentials do not have the rounding of a large y.
ValueId log_sum_exp_slope(Backward& b) {
  Tape& t = b.tape;
  const ValueId y = with_axes(b, b.y());
  const ValueId each = t.op("Exp", {t.sub(b.x(), y)});
  return t.div(each, t.sum_to(y, each));
}

// x / y, and 0 where all of x is.
ValueId norm_slope(Backward& b) {
  Tape& t = b.tape;
  const ValueId y = with_axes(b, b.y());
  const ValueId zero = t.scalar(0, b.x());
  const ValueId nothing = t.op("Equal", {y, zero});
  return t.where(nothing, zero, t.div(b.x(), t.where(nothing, t.scalar(1, b.x()), y)));
}

// 1 / sum for each element.
ValueId log_sum_slope(Backward& b) {
  Tape& t = b.tape;
  return t.repeat_to(b.x(), t.op("Exp", {t.neg(with_axes(b, b.y()))}));
}

// dy times the product of the other elements: with one 0 among all, that is not 0 there alone.
void reduce_product(Backward& b) {
  Tape& t = b.tape;
  const ValueId zero = t.scalar(0, b.x()), one = t.scalar(1, b.x());
  const ValueId is_zero = t.op("Equal", {b.x(), zero});
  const ValueId zeros = t.where(is_zero, one, zero), others = t.where(is_zero, one, b.x());
  const ValueId axes = b.list_or_input("axes", 1);
  const Tape::Attributes keep = {{"keepdims", std::int64_t{1}, {}},
                                 {"noop_with_empty_axes", b.integer("noop_with_empty_axes"), {}}};
  const ValueId product = t.op("ReduceProd", {others, axes}, keep);
  const ValueId more = t.sub(t.op("ReduceSum", {zeros, axes}, keep), zeros);
  const ValueId share = t.div(t.mul(with_axes(b, b.dy()), product), others);
  b.give(0, t.where_else_0(t.op("Equal", {more, zero}), share));
}

// ----------------------------------------------------------------------------------------------------------- softmax --

// Calls emit(y, dy, axes) for the axis that the operator works along, and gives what it returns. Before version 13 the operator
// works on rows of all dims from the axis on.
template <typename Emit>
void along_axis(Backward& b, Emit emit) {
  Tape& t = b.tape;
  const std::int64_t axis = b.integer("axis", 1);
  if (b.node.op->since >= 13) return b.give(0, emit(b.y(), b.dy(), t.ints({axis})));
  const Tape::Attributes at = {{"axis", axis, {}}};
  const ValueId y = t.op("Flatten", {b.y()}, at), dy = t.op("Flatten", {b.dy()}, at);
  b.give(0, t.reshape_to(b.x(), emit(y, dy, t.ints({1}))));
}

void softmax(Backward& b) {  // y (dy - sum(y dy))
  along_axis(b, [&](ValueId y, ValueId dy, ValueId axes) {
    Tape& t = b.tape;
    return t.mul(y, t.sub(dy, t.sum(t.mul(y, dy), axes)));
  });
}

void log_softmax(Backward& b) {  // dy - exp(y) sum(dy)
  along_axis(b, [&](ValueId y, ValueId dy, ValueId axes) {
    Tape& t = b.tape;
    return t.sub(dy, t.mul(t.op("Exp", {y}), t.sum(dy, axes)));
  });
}

void cum_sum(Backward& b) {
  const Tape::Attributes attributes = {{"exclusive", b.integer("exclusive"), {}},
                                       {"reverse", std::int64_t{b.integer("reverse") == 0}, {}}};
  b.give(0, b.tape.op("CumSum", {b.dy(), b.x(1)}, attributes));
}

constexpr GradientRule kRows[] = {
    {"ReduceSum", reduce_sum},
    {"ReduceMean", reduce_mean},
    {"ReduceMax", reduce_extreme},
    {"ReduceMin", reduce_extreme},
    {"ReduceProd", reduce_product},
    {"ReduceL1", reduce<absolute_slope>},
    {"ReduceL2", reduce<norm_slope>},
    {"ReduceSumSquare", reduce<square_slope>},
    {"ReduceLogSum", reduce<log_sum_slope>},
    {"ReduceLogSumExp", reduce<log_sum_exp_slope>},
    {"Softmax", softmax},
    {"LogSoftmax", log_softmax},
    {"CumSum", cum_sum},
};

}  // namespace

extern const GradientRules kReduceGradients = kRows;

}  // namespace evn
