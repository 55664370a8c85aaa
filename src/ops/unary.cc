// Element-wise functions of one input.
//   Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Sigmoid Tanh Softplus Softsign Reciprocal Floor Ceil,
//   Round (ties to even)
//   Abs Neg Sign Relu: also of integers (Abs and Neg of INT_MIN give INT_MIN)
//   LeakyRelu  x < 0 ? alpha * x : x            Elu   x < 0 ? alpha * (exp(x) - 1) : x
//   Selu       gamma * (x > 0 ? x : alpha * exp(x) - alpha)
//   HardSigmoid  min(max(alpha * x + beta, 0), 1)   HardSwish  x * HardSigmoid(x; 1/6, 1/2)
//   Celu  max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)          Swish  x * Sigmoid(alpha * x)
//   ThresholdedRelu  x > alpha ? x : 0              Shrink  x < -lambd ? x + bias : x > lambd ? x - bias : 0 (also of integers)
//   Gelu  x * Phi(x), or with approximate = "tanh" its tanh form      Mish  x * tanh(softplus(x))
// Computed in double and rounded once. NaN gives NaN, but 0 from ThresholdedRelu and Shrink. No failures. Tolerance: rtol 1e-5 for
// what is approximated, else exact.
#include "ops/unary.h"

#include "ops/infra/numeric.h"
#include "ops/infra/round.h"

namespace evn {
namespace {

constexpr double kPi = 3.14159265358979323846;

// x, then up to two attributes.
using Function = double (*)(double x, double a, double b);

double clamp_unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
// log(1 + exp(x)) without overflow.
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

double fn_sqrt(double x, double, double) { return std::sqrt(x); }
double fn_exp(double x, double, double) { return std::exp(x); }
double fn_log(double x, double, double) { return std::log(x); }
double fn_sin(double x, double, double) { return std::sin(x); }
double fn_cos(double x, double, double) { return std::cos(x); }
double fn_tan(double x, double, double) { return std::tan(x); }
double fn_asin(double x, double, double) { return std::asin(x); }
double fn_acos(double x, double, double) { return std::acos(x); }
double fn_atan(double x, double, double) { return std::atan(x); }
double fn_sinh(double x, double, double) { return std::sinh(x); }
double fn_cosh(double x, double, double) { return std::cosh(x); }
double fn_asinh(double x, double, double) { return std::asinh(x); }
double fn_acosh(double x, double, double) { return std::acosh(x); }
double fn_atanh(double x, double, double) { return std::atanh(x); }
double fn_erf(double x, double, double) { return std::erf(x); }
double fn_sigmoid(double x, double, double) { return 1 / (1 + std::exp(-x)); }
double fn_tanh(double x, double, double) { return std::tanh(x); }
double fn_softplus(double x, double, double) { return softplus(x); }
double fn_softsign(double x, double, double) { return x / (1 + std::fabs(x)); }
double fn_reciprocal(double x, double, double) { return 1 / x; }
double fn_floor(double x, double, double) { return std::floor(x); }
double fn_ceil(double x, double, double) { return std::ceil(x); }
double fn_round(double x, double, double) { return round_even(x); }
double fn_leaky_relu(double x, double alpha, double) { return x < 0 ? alpha * x : x; }
double fn_elu(double x, double alpha, double) { return x < 0 ? alpha * std::expm1(x) : x; }
double fn_celu(double x, double alpha, double) { return x > 0 ? x : alpha * std::expm1(x / alpha); }
double fn_swish(double x, double alpha, double) { return x / (1 + std::exp(-alpha * x)); }
double fn_thresholded_relu(double x, double alpha, double) { return x > alpha ? x : 0; }
double fn_selu(double x, double alpha, double gamma) { return x > 0 ? gamma * x : gamma * alpha * std::expm1(x); }
double fn_hard_sigmoid(double x, double alpha, double beta) { return clamp_unit(alpha * x + beta); }
double fn_hard_swish(double x, double, double) { return x * clamp_unit(x / 6 + 0.5); }
double fn_mish(double x, double, double) { return x * std::tanh(softplus(x)); }
double fn_gelu(double x, double, double) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
double fn_gelu_tanh(double x, double, double) { return x / (1 + std::exp(-2 * std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x))); }

// kParams of the function's two parameters are the node's first float attributes.
template <Function kFunction, int kParams = 0>
void reference_float(const ReferenceContext& c) {
  const double a = kParams > 0 ? attr_float(c.node, 0) : 0;
  const double b = kParams > 1 ? attr_float(c.node, 1) : 0;
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    each_element(count, [=, x = c.input(0).as<T>(), y = c.output().as<T>()](std::int64_t i) {
      y[i] = static_cast<T>(kFunction(x[i], a, b));
    });
  });
}

double shrink(double x, double bias, double lambd) { return x < -lambd ? x + bias : x > lambd ? x - bias : 0; }

void reference_shrink(const ReferenceContext& c) {
  const double bias = attr_float(c.node, 0);
  const double lambd = attr_float(c.node, 1);
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      const double y = shrink(static_cast<double>(c.input(0).as<T>()[i]), bias, lambd);
      if constexpr (std::is_floating_point_v<T>) c.output().as<T>()[i] = static_cast<T>(y);
      else c.output().as<T>()[i] = saturate_to<T>(y);
    }
  });
}

void infer_celu(InferContext& c) {
  if (attr_float(c.node, 0) == 0) fail(EVN_ERROR_INVALID_MODEL, "alpha is 0");
  infer_same_shape(c);
}

void reference_gelu(const ReferenceContext& c) {
  const std::string& form = attr_string(c.node, 0);
  if (form == "none") return reference_float<fn_gelu>(c);
  reference_float<fn_gelu_tanh>(c);
}

void infer_gelu(InferContext& c) {
  const std::string& form = attr_string(c.node, 0);
  if (form != "none" && form != "tanh") fail(EVN_ERROR_INVALID_MODEL, "approximate must not be '%s'", form.c_str());
  infer_same_shape(c);
}

struct AbsOp {
  template <typename T>
  static T apply(T x) {
    if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
    else return x < 0 ? wrap_sub(T{0}, x) : x;
  }
};
struct NegOp {
  template <typename T>
  static T apply(T x) {
    if constexpr (std::is_floating_point_v<T>) return -x;
    else return wrap_sub(T{0}, x);
  }
};
struct SignOp {
  template <typename T>
  static T apply(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x)) return x;
    }
    return static_cast<T>(x > 0 ? 1 : x < 0 ? -1 : 0);
  }
};
struct ReluOp {
  template <typename T>
  static T apply(T x) {
    return x < 0 ? T{0} : x;
  }
};

template <typename Op>
void reference_number(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      c.output().as<T>()[i] = Op::apply(c.input(0).as<T>()[i]);
    }
  });
}

constexpr AttributeSpec kLeakyRelu[] = {float_attribute("alpha", 0.01f)};
constexpr AttributeSpec kAlpha1[] = {float_attribute("alpha", 1)};
constexpr AttributeSpec kShrink[] = {float_attribute("bias", 0), float_attribute("lambd", 0.5f)};
constexpr AttributeSpec kSelu[] = {float_attribute("alpha", 1.67326319217681884765625f),
                                   float_attribute("gamma", 1.05070102214813232421875f)};
constexpr AttributeSpec kHardSigmoid[] = {float_attribute("alpha", 0.2f), float_attribute("beta", 0.5f)};
constexpr AttributeSpec kGelu[] = {string_attribute("approximate", "none")};
constexpr Tolerance kExact = {};
constexpr Tolerance kNear = {1e-5, 1e-6};

using Reference = void (*)(const ReferenceContext&);
using Attributes = std::span<const AttributeSpec>;

constexpr OpDef row(const char* name, int since, Reference reference, Tolerance tolerance = kNear, Attributes attributes = {},
                    std::uint32_t dtypes = kFloats) {
  return {name, "", since, 1, 1, 1, 1, attributes, dtypes, 0, kOpElementwise, nullptr, infer_same_shape, reference, tolerance};
}

constexpr std::uint32_t kSigned = kFloats | kSignedInts;

constexpr OpDef kOps[] = {
    row("Sqrt", 6, reference_float<fn_sqrt>, {2.5e-7, 0}),
    row("Exp", 6, reference_float<fn_exp>, {1e-5, 1e-9}),
    row("Log", 6, reference_float<fn_log>),
    row("Sin", 7, reference_float<fn_sin>),
    row("Cos", 7, reference_float<fn_cos>),
    row("Tan", 7, reference_float<fn_tan>),
    row("Asin", 7, reference_float<fn_asin>),
    row("Acos", 7, reference_float<fn_acos>),
    row("Atan", 7, reference_float<fn_atan>),
    row("Sinh", 9, reference_float<fn_sinh>),
    row("Cosh", 9, reference_float<fn_cosh>),
    row("Asinh", 9, reference_float<fn_asinh>),
    row("Acosh", 9, reference_float<fn_acosh>),
    row("Atanh", 9, reference_float<fn_atanh>),
    row("Erf", 9, reference_float<fn_erf>),
    row("Sigmoid", 6, reference_float<fn_sigmoid>),
    row("Tanh", 6, reference_float<fn_tanh>),
    row("Softplus", 1, reference_float<fn_softplus>),
    row("Softsign", 1, reference_float<fn_softsign>),
    row("Reciprocal", 6, reference_float<fn_reciprocal>, {2.5e-7, 0}),
    row("Floor", 6, reference_float<fn_floor>, kExact),
    row("Ceil", 6, reference_float<fn_ceil>, kExact),
    row("Round", 11, reference_float<fn_round>, kExact),
    row("Abs", 6, reference_number<AbsOp>, kExact, {}, kNumbers),
    row("Neg", 6, reference_number<NegOp>, kExact, {}, kSigned),
    row("Sign", 9, reference_number<SignOp>, kExact, {}, kNumbers),
    row("Relu", 6, reference_number<ReluOp>, kExact, {}, kSigned),
    row("LeakyRelu", 6, reference_float<fn_leaky_relu, 1>, {2.5e-7, 0}, kLeakyRelu),
    row("Elu", 6, reference_float<fn_elu, 1>, kNear, kAlpha1),
    row("Selu", 6, reference_float<fn_selu, 2>, kNear, kSelu),
    row("HardSigmoid", 6, reference_float<fn_hard_sigmoid, 2>, {1e-6, 1e-6}, kHardSigmoid),
    row("HardSwish", 14, reference_float<fn_hard_swish>, {1e-6, 1e-6}),
    row("Mish", 18, reference_float<fn_mish>),
    row("Swish", 24, reference_float<fn_swish, 1>, kNear, kAlpha1),
    row("ThresholdedRelu", 10, reference_float<fn_thresholded_relu, 1>, kExact, kAlpha1),
    row("Shrink", 9, reference_shrink, kExact, kShrink, kNumbers),
    {.name = "Celu",
     .since = 12,
     .attributes = kAlpha1,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_celu,
     .reference = reference_float<fn_celu, 1>,
     .tolerance = kNear},
    {.name = "Gelu",
     .since = 20,
     .attributes = kGelu,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_gelu,
     .reference = reference_gelu,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily unary_family;
const OpFamily unary_family = {kOps};

}  // namespace evn
