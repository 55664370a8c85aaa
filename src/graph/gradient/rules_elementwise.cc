// Operators that work on each element for itself, with or without broadcasting. Where one is not differentiable, it is the
// derivative of one side: Relu, Abs and their like take 0 at 0, so does Clip at bounds that are constants; Min and Max share dy
// among equal inputs. These are the conventions of PyTorch (tests/training/corners.py).
#include <cmath>
#include <numbers>

#include "graph/gradient/rules.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

using std::numbers::pi;

// ------------------------------------------------------------------------------------------------------- arithmetic --

void add(Backward& b) {
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    if (b.wants(i)) b.give_sum(i, b.dy());
  }
}

void sub(Backward& b) {
  if (b.wants(0)) b.give_sum(0, b.dy());
  if (b.wants(1)) b.give_sum(1, b.tape.neg(b.dy()));
}

void mul(Backward& b) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (b.wants(i)) b.give_sum(i, b.tape.mul(b.dy(), b.x(1 - i)));
  }
}

void div(Backward& b) {
  Tape& t = b.tape;
  const ValueId share = t.div(b.dy(), b.x(1));
  if (b.wants(0)) b.give_sum(0, share);
  if (b.wants(1)) b.give_sum(1, t.neg(t.mul(share, b.y())));
}

void mean(Backward& b) {
  const ValueId share = b.tape.mul(b.dy(), 1.0 / static_cast<double>(b.inputs.size()));
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    if (b.wants(i)) b.give_sum(i, share);
  }
}

// The parts of dy that go to the inputs of a Min or Max: to those that are the result, in equal shares.
std::vector<ValueId> shares_of_extreme(Tape& t, ValueId dy, ValueId y, const std::vector<ValueId>& inputs) {
  if (inputs.size() == 1) return {dy};
  std::vector<ValueId> chosen, shares;
  ValueId count = kNoValue;
  for (const ValueId x : inputs) {
    chosen.push_back(t.op("Equal", {x, y}));
    const ValueId one = t.where_else_0(chosen.back(), t.scalar(1, dy));
    count = count == kNoValue ? one : t.add(count, one);
  }
  const ValueId share = t.div(dy, count);
  for (const ValueId c : chosen) shares.push_back(t.where_else_0(c, share));
  return shares;
}

void extreme(Backward& b) {
  const std::vector<ValueId> shares = shares_of_extreme(b.tape, b.dy(), b.y(), b.inputs);
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    if (b.wants(i)) b.give_sum(i, shares[i]);
  }
}

void power(Backward& b) {
  Tape& t = b.tape;
  const ValueId x = b.x(0);
  const ValueId p = t.dtype(b.x(1)) == t.dtype(x) && t.dtype(x) != DType::kUndefined ? b.x(1) : t.op("CastLike", {b.x(1), x});
  const ValueId zero = t.scalar(0, x);
  if (b.wants(0)) {
    // At p = 0 the derivative is 0, also where x is.
    const ValueId slope = t.where(t.op("Equal", {p, zero}), zero, t.mul(p, t.op("Pow", {x, t.add(p, -1.0)})));
    b.give_sum(0, t.mul(b.dy(), slope));
  }
  if (b.wants(1)) {
    // At x = 0 the derivative is 0 from p = 0 on. Below x = 0 it is NaN, as the logarithm is.
    const ValueId flat = t.op("And", {t.op("Equal", {x, zero}), t.op("GreaterOrEqual", {p, zero})});
    const ValueId log = t.op("Log", {t.where(flat, t.scalar(1, x), x)});
    const ValueId dp = t.sum_to(b.x(1), t.mul(b.dy(), t.mul(b.y(), log)));
    b.give(1, t.dtype(b.x(1)) == t.dtype(x) ? dp : t.op("CastLike", {dp, b.x(1)}));
  }
}

void where(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(1)) b.give_sum(1, t.where_else_0(b.x(0), b.dy()));
  if (b.wants(2)) b.give_sum(2, t.where(b.x(0), t.scalar(0, b.dy()), b.dy()));
}

void identity(Backward& b) { b.give(0, b.dy()); }

void cast(Backward& b) {
  Tape& t = b.tape;
  const DType dtype = t.dtype(b.x());
  if (dtype == DType::kUndefined) return b.give(0, t.op("CastLike", {b.dy(), b.x()}));
  b.give(0, t.op("Cast", {b.dy()}, {{"to", static_cast<std::int64_t>(dtype), {}}}));
}

// By its bounds, Clip is Min(Max(x, min), max).
void clip_by_bounds(Backward& b) {
  Tape& t = b.tape;
  const ValueId min = b.x(1), max = b.x(2);
  const ValueId raised = min == kNoValue ? b.x() : t.op("Max", {b.x(), min});
  std::vector<ValueId> shares = {b.dy()};
  if (max != kNoValue) shares = shares_of_extreme(t, b.dy(), b.y(), {raised, max});
  if (b.wants(2)) b.give_sum(2, shares[1]);
  if (min != kNoValue) shares = shares_of_extreme(t, shares[0], raised, {b.x(), min});
  if (b.wants(0)) b.give_sum(0, shares[0]);
  if (b.wants(1)) b.give_sum(1, shares[1]);
}

// A bound has one element and any rank: what is computed with it may have a rank above that of x.
void clip(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(1) || b.wants(2)) return clip_by_bounds(b);
  const auto bound = [&](const char* name, std::size_t input) {
    return b.has(name) ? t.scalar(static_cast<double>(b.real(name)), b.x()) : b.x(input);
  };
  const ValueId min = bound("min", 1), max = bound("max", 2);
  const ValueId above = min == kNoValue ? kNoValue : t.op("Greater", {b.y(), min});
  const ValueId below = max == kNoValue ? kNoValue : t.op("Less", {b.y(), max});
  if (above == kNoValue && below == kNoValue) return b.give(0, b.dy());
  const ValueId inside = above == kNoValue ? below : below == kNoValue ? above : t.op("And", {above, below});
  // The shape is that of y as well, which is read here anyway: with another reader, x is made by a step of its own.
  b.give(0, t.sum_to(b.y(), t.where_else_0(inside, b.dy())));
}

void dropout(Backward& b) {
  Tape& t = b.tape;
  // Before version 12 it does nothing when a model runs.
  if (b.node.op->since < 12 || b.x(2) == kNoValue) return b.give(0, b.dy());
  const ValueId mask = b.demand_output(1);
  const ValueId one = t.scalar(1, b.dy());
  const ValueId ratio = b.x(1) == kNoValue ? t.scalar(0.5, b.dy()) : t.op("CastLike", {b.x(1), b.dy()});
  const ValueId scale = t.where(b.x(2), t.div(one, t.sub(one, ratio)), one);
  b.give_sum(0, t.where_else_0(mask, t.mul(b.dy(), scale)));
}

// -------------------------------------------------------------------------------------------------------- functions --

// The gradient of one input: dx = dy * slope.
template <ValueId (*Slope)(Backward&)>
void unary(Backward& b) {
  b.give(0, b.tape.mul(b.dy(), Slope(b)));
}

ValueId one_plus_square(Backward& b) { return b.tape.add(b.tape.square(b.x()), 1.0); }
ValueId one_minus_square(Backward& b, ValueId v) { return b.tape.sub(b.tape.scalar(1, v), b.tape.square(v)); }

void negate(Backward& b) { b.give(0, b.tape.neg(b.dy())); }
void log(Backward& b) { b.give(0, b.tape.div(b.dy(), b.x())); }
void sqrt(Backward& b) { b.give(0, b.tape.div(b.tape.mul(b.dy(), 0.5), b.y())); }
void acos(Backward& b) { b.give(0, b.tape.neg(b.tape.div(b.dy(), b.tape.op("Sqrt", {one_minus_square(b, b.x())})))); }
void asin(Backward& b) { b.give(0, b.tape.div(b.dy(), b.tape.op("Sqrt", {one_minus_square(b, b.x())}))); }
void atan(Backward& b) { b.give(0, b.tape.div(b.dy(), one_plus_square(b))); }
// sqrt(x^2 + 1) is cosh(y), and sqrt(x^2 - 1) is sinh(y) of the inverse: x^2 would overflow far from 0.
void asinh(Backward& b) { b.give(0, b.tape.div(b.dy(), b.tape.op("Cosh", {b.y()}))); }
void acosh(Backward& b) { b.give(0, b.tape.div(b.dy(), b.tape.op("Sinh", {b.y()}))); }
void atanh(Backward& b) { b.give(0, b.tape.div(b.dy(), one_minus_square(b, b.x()))); }

ValueId reciprocal_slope(Backward& b) { return b.tape.neg(b.tape.square(b.y())); }
ValueId result(Backward& b) { return b.y(); }
ValueId sin_slope(Backward& b) { return b.tape.op("Cos", {b.x()}); }
ValueId cos_slope(Backward& b) { return b.tape.neg(b.tape.op("Sin", {b.x()})); }
ValueId tan_slope(Backward& b) { return b.tape.add(b.tape.square(b.y()), 1.0); }
ValueId sinh_slope(Backward& b) { return b.tape.op("Cosh", {b.x()}); }
ValueId cosh_slope(Backward& b) { return b.tape.op("Sinh", {b.x()}); }
ValueId abs_slope(Backward& b) { return b.tape.op("Sign", {b.x()}); }
ValueId softplus_slope(Backward& b) { return b.tape.op("Sigmoid", {b.x()}); }

ValueId softsign_slope(Backward& b) { return b.tape.op("Reciprocal", {b.tape.square(b.tape.add(b.tape.op("Abs", {b.x()}), 1.0))}); }

ValueId bell(Backward& b, ValueId x, double inner, double outer) {  // outer * exp(inner * x^2)
  return b.tape.mul(b.tape.op("Exp", {b.tape.mul(b.tape.square(x), inner)}), outer);
}
// With p = sigmoid(x) and q = sigmoid(-x) = exp(-softplus(x)), tanh(softplus(x)) is p (1 + q) / (1 + q^2): nothing cancels far from
// 0.
ValueId mish_slope(Backward& b) {
  Tape& t = b.tape;
  const ValueId p = t.op("Sigmoid", {b.x()}), q = t.op("Sigmoid", {t.neg(b.x())});
  const ValueId inverse = t.op("Reciprocal", {t.add(t.square(q), 1.0)});
  const ValueId bend = t.square(t.mul(t.mul(q, inverse), 2.0));
  return t.mul(p, t.add(t.mul(t.add(q, 1.0), inverse), t.mul(b.x(), bend)));
}

ValueId times(Tape& t, ValueId v, double factor) { return factor == 1 ? v : t.mul(v, factor); }

// s + x (s - s^2) a with s = sigmoid(a x), in this order, as a x may overflow where s - s^2 is 0.
ValueId swish_slope(Backward& b) {
  Tape& t = b.tape;
  const auto alpha = static_cast<double>(b.real("alpha", 1));
  const ValueId s = t.op("Sigmoid", {times(t, b.x(), alpha)});
  return t.add(s, times(t, t.mul(b.x(), t.sub(s, t.square(s))), alpha));
}

// -------------------------------------------------------------------------------------------------------- in pieces --

ValueId positive(Backward& b) { return b.tape.op("Greater", {b.x(), b.tape.scalar(0, b.x())}); }

void leaky_relu(Backward& b) {
  b.give(0, b.tape.where(positive(b), b.dy(), b.tape.mul(b.dy(), static_cast<double>(b.real("alpha")))));
}

void thresholded_relu(Backward& b) {
  const ValueId above = b.tape.op("Greater", {b.x(), b.tape.scalar(static_cast<double>(b.real("alpha")), b.x())});
  b.give(0, b.tape.where_else_0(above, b.dy()));
}

void prelu(Backward& b) {
  Tape& t = b.tape;
  const ValueId above = positive(b);
  if (b.wants(0)) b.give(0, t.where(above, b.dy(), t.mul(b.dy(), b.x(1))));
  if (b.wants(1)) b.give_sum(1, t.where(above, t.scalar(0, b.x()), t.mul(b.dy(), b.x())));
}

// Derivative dy * outer * exp(inner * x) if x <= 0, else dy. The exponential is computed from x, as y + alpha loses its digits far
// below 0. Its exponent is 0 if x > 0, so that it does not overflow.
ValueId exponential_below_0(Backward& b, double inner, double outer) {
  Tape& t = b.tape;
  const ValueId above = positive(b);
  const ValueId exponent = times(t, t.where(above, t.scalar(0, b.x()), b.x()), inner);
  return t.where(above, b.dy(), t.mul(b.dy(), times(t, t.op("Exp", {exponent}), outer)));
}

void elu(Backward& b) { b.give(0, exponential_below_0(b, 1, static_cast<double>(b.real("alpha")))); }
void celu(Backward& b) { b.give(0, exponential_below_0(b, 1 / static_cast<double>(b.real("alpha")), 1)); }
void selu(Backward& b) {
  const ValueId elu = exponential_below_0(b, 1, static_cast<double>(b.real("alpha")));
  b.give(0, b.tape.mul(elu, static_cast<double>(b.real("gamma"))));
}

// Whether the value is strictly between.
ValueId between(Tape& t, ValueId v, double low, double high) {
  return t.op("And", {t.op("Greater", {v, t.scalar(low, v)}), t.op("Less", {v, t.scalar(high, v)})});
}

void hard_sigmoid(Backward& b) {
  b.give(0, b.tape.where_else_0(between(b.tape, b.y(), 0, 1), b.tape.mul(b.dy(), static_cast<double>(b.real("alpha")))));
}

void shrink(Backward& b) {
  Tape& t = b.tape;
  const ValueId above = t.op("Greater", {t.op("Abs", {b.x()}), t.scalar(static_cast<double>(b.real("lambd")), b.x())});
  b.give(0, t.where_else_0(above, b.dy()));
}

// ------------------------------------------------------------------------------------------------ one node each --

// The derivative of an activation by an operator of ops/training/activation_gradient.cc that reads its result or its input.
template <const char* Op, bool OfResult>
void activation(Backward& b) {
  b.give(0, b.tape.own(Op, {OfResult ? b.y() : b.x(), b.dy()}, b.copied({"approximate"})));
}

// The rule of such an operator, whose inputs are v and g: linear in g. `curve`: the derivative of its slope by v, kNoValue where
// that is 0.
template <const char* Op, ValueId (*Curve)(Backward&)>
void activation_gradient(Backward& b) {
  if (b.wants(1)) b.give(1, b.tape.own(Op, {b.x(), b.dy()}, b.copied({"approximate"})));
  const ValueId curve = b.wants(0) ? Curve(b) : kNoValue;
  if (curve != kNoValue) b.give(0, b.tape.mul(b.tape.mul(b.dy(), b.x(1)), curve));
}

ValueId no_curve(Backward&) { return kNoValue; }
ValueId sigmoid_curve(Backward& b) { return b.tape.add(b.tape.mul(b.x(), -2.0), 1.0); }
ValueId tanh_curve(Backward& b) { return b.tape.mul(b.x(), -2.0); }
ValueId erf_curve(Backward& b) { return b.tape.mul(b.x(), bell(b, b.x(), -1, -4 / std::sqrt(pi))); }

ValueId hard_swish_curve(Backward& b) { return b.tape.where_else_0(between(b.tape, b.x(), -3, 3), b.tape.scalar(1.0 / 3, b.x())); }

// (2 - x^2) phi(x); or of the slope (1 + T) / 2 + x T' / 2 with T = tanh(u), u = sqrt(2 / pi) (x + a x^3): T' + x T'' / 2. T' has
// the factor 1 - T^2 = 4 p q, and T is p - q, with p = sigmoid(2 u) and q = sigmoid(-2 u). x is clipped at a bound beyond which the
// result is 0, as other factors overflow far from 0.
ValueId gelu_curve(Backward& b) {
  Tape& t = b.tape;
  const std::string* approximate = b.text("approximate");
  const bool exact = approximate == nullptr || *approximate != "tanh";
  const double far = exact ? 40 : 16;
  const ValueId x = t.op("Clip", {b.x(), t.scalar(-far, b.x()), t.scalar(far, b.x())});
  if (exact) return t.mul(t.add(t.neg(t.square(x)), 2.0), bell(b, x, -0.5, 1 / std::sqrt(2 * pi)));
  const double k = std::sqrt(2 / pi), a = 0.044715;
  const ValueId twice_u = t.mul(t.add(x, t.mul(t.mul(x, t.square(x)), a)), 2 * k);
  const ValueId p = t.op("Sigmoid", {twice_u}), q = t.op("Sigmoid", {t.neg(twice_u)});
  const ValueId slope = t.mul(t.add(t.mul(t.square(x), 3 * a), 1.0), k);
  const ValueId bend = t.sub(t.mul(x, 6 * k * a), t.mul(t.mul(t.sub(p, q), t.square(slope)), 2.0));
  return t.mul(t.mul(t.mul(p, q), 4.0), t.add(slope, t.mul(t.mul(x, 0.5), bend)));
}

constexpr GradientRule kRows[] = {
    {"Add", add},
    {"Sub", sub},
    {"Mul", mul},
    {"Div", div},
    {"Sum", add},
    {"Mean", mean},
    {"Min", extreme},
    {"Max", extreme},
    {"Pow", power},
    {"Where", where},
    {"Identity", identity},
    {"Cast", cast},
    {"CastLike", cast},
    {"Clip", clip},
    {"Dropout", dropout},
    {"Neg", negate},
    {"Abs", unary<abs_slope>},
    {"Reciprocal", unary<reciprocal_slope>},
    {"Sqrt", sqrt},
    {"Exp", unary<result>},
    {"Log", log},
    {"Sin", unary<sin_slope>},
    {"Cos", unary<cos_slope>},
    {"Tan", unary<tan_slope>},
    {"Asin", asin},
    {"Acos", acos},
    {"Atan", atan},
    {"Sinh", unary<sinh_slope>},
    {"Cosh", unary<cosh_slope>},
    {"Tanh", activation<kTanhGradient, true>},
    {"Asinh", asinh},
    {"Acosh", acosh},
    {"Atanh", atanh},
    {"Erf", activation<kErfGradient, false>},
    {"Sigmoid", activation<kSigmoidGradient, true>},
    {"Softplus", unary<softplus_slope>},
    {"Softsign", unary<softsign_slope>},
    {"Gelu", activation<kGeluGradient, false>},
    {"Mish", unary<mish_slope>},
    {"Swish", unary<swish_slope>},
    {"Relu", activation<kReluGradient, true>},
    {"LeakyRelu", leaky_relu},
    {"ThresholdedRelu", thresholded_relu},
    {"PRelu", prelu},
    {"Elu", elu},
    {"Selu", selu},
    {"Celu", celu},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", activation<kHardSwishGradient, false>},
    {"Shrink", shrink},
    {kReluGradient, activation_gradient<kReluGradient, no_curve>, 1, kInternalDomain},
    {kSigmoidGradient, activation_gradient<kSigmoidGradient, sigmoid_curve>, 1, kInternalDomain},
    {kTanhGradient, activation_gradient<kTanhGradient, tanh_curve>, 1, kInternalDomain},
    {kHardSwishGradient, activation_gradient<kHardSwishGradient, hard_swish_curve>, 1, kInternalDomain},
    {kErfGradient, activation_gradient<kErfGradient, erf_curve>, 1, kInternalDomain},
    {kGeluGradient, activation_gradient<kGeluGradient, gelu_curve>, 1, kInternalDomain},
};

}  // namespace

extern const GradientRules kElementwiseGradients = kRows;

}  // namespace evn
