// Comparisons and logic: Equal, Less, Greater, LessOrEqual, GreaterOrEqual, And, Or, Xor, Not, IsNaN, IsInf.
//   C = A op B as bool, NumPy broadcasting; comparisons with NaN are false
// dtypes: comparisons of all numbers (Equal of bool and strings too), both inputs alike; logic of bool; IsNaN and IsInf of floating
// point and of the float8 types but float8e8m0. Failures: shapes that do not broadcast, unlike dtypes. Exact.
#include "ops/compare.h"

#include "ops/infra/broadcast.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/small_types.h"

namespace evn {
namespace {

DType bool_output(const Node&, std::span<const DType>, int) { return DType::kBool; }

void infer_compare(InferContext& c) {
  require_same_dtype(c, 0, 1);
  c.outputs[0].shape = broadcast_partial(c.shape(0), c.shape(1));
}

// Bools are read as bytes, so that a byte other than 0 and 1 has no undefined effect.
template <typename T, typename F>
void apply(const ReferenceContext& c, F) {
  apply_pairs(c, pair_loop<Pairs::kSingle, std::uint8_t, T, T, F>);
}

struct EqualOp {
  template <typename T>
  static bool apply(T a, T b) {
    return a == b;
  }
};
struct LessOp {
  template <typename T>
  static bool apply(T a, T b) {
    return a < b;
  }
};
struct GreaterOp {
  template <typename T>
  static bool apply(T a, T b) {
    return a > b;
  }
};
struct LessOrEqualOp {
  template <typename T>
  static bool apply(T a, T b) {
    return a <= b;
  }
};
struct GreaterOrEqualOp {
  template <typename T>
  static bool apply(T a, T b) {
    return a >= b;
  }
};

template <typename Op>
void reference_compare(const ReferenceContext& c) {
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    apply<T>(c, [](T a, T b) { return Op::apply(a, b); });
  });
}

void reference_equal(const ReferenceContext& c) {
  if (c.input(0).desc.dtype == DType::kString) {
    return apply<TextElement>(c, [](TextElement a, TextElement b) {
      return text_of(a).size() == text_of(b).size() && compare_texts(text_of(a), text_of(b)) == 0;
    });
  }
  if (c.input(0).desc.dtype != DType::kBool) return reference_compare<EqualOp>(c);
  apply<std::uint8_t>(c, [](std::uint8_t a, std::uint8_t b) { return (a != 0) == (b != 0); });
}

void reference_and(const ReferenceContext& c) {
  apply<std::uint8_t>(c, [](std::uint8_t a, std::uint8_t b) { return a != 0 && b != 0; });
}
void reference_or(const ReferenceContext& c) {
  apply<std::uint8_t>(c, [](std::uint8_t a, std::uint8_t b) { return a != 0 || b != 0; });
}
void reference_xor(const ReferenceContext& c) {
  apply<std::uint8_t>(c, [](std::uint8_t a, std::uint8_t b) { return (a != 0) != (b != 0); });
}

void reference_not(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  each_element(
      count, [x = c.input(0).as<std::uint8_t>(), y = c.output().as<std::uint8_t>()](std::int64_t i) { y[i] = x[i] == 0 ? 1 : 0; });
}

// Computes y[i] = f(x[i]) of any floating type.
template <typename F>
void test_each(const ReferenceContext& c, F f) {
  const DType dtype = c.input(0).desc.dtype;
  const std::int64_t count = c.output().desc.shape.elements();
  auto* const y = c.output().as<std::uint8_t>();
  if (is_small_type(dtype)) {
    const void* const x = c.input(0).data;
    return each_element(count, [=](std::int64_t i) { y[i] = f(small_value(dtype, x, i)) ? 1 : 0; });
  }
  dispatch_floats(dtype, [&](auto zero) {
    const auto* x = c.input(0).as<decltype(zero)>();
    each_element(count, [=](std::int64_t i) { y[i] = f(x[i]) ? 1 : 0; });
  });
}

void reference_is_nan(const ReferenceContext& c) {
  test_each(c, [](auto x) { return std::isnan(x); });
}

void reference_is_inf(const ReferenceContext& c) {
  const bool negative = attr_int(c.node, IsInfAttr::kDetectNegative) != 0;
  const bool positive = attr_int(c.node, IsInfAttr::kDetectPositive) != 0;
  test_each(c, [=](auto x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

constexpr AttributeSpec kIsInf[] = {int_attribute("detect_negative", 1), int_attribute("detect_positive", 1)};
constexpr std::uint32_t kBool = dtype_bit(DType::kBool);
constexpr std::uint32_t kEqualDtypes = kNumbers | kBool | kString;
constexpr std::uint32_t kTested = kFloats | (kFloat8s & ~dtype_bit(DType::kFloat8E8M0));
constexpr std::uint32_t kFlags = kOpElementwise;

constexpr OpDef kOps[] = {
    {.name = "Equal",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kEqualDtypes,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_equal,
     .parts = parts_of_pairs},
    {.name = "Less",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_compare<LessOp>,
     .parts = parts_of_pairs},
    {.name = "Greater",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_compare<GreaterOp>,
     .parts = parts_of_pairs},
    {.name = "LessOrEqual",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_compare<LessOrEqualOp>,
     .parts = parts_of_pairs},
    {.name = "GreaterOrEqual",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_compare<GreaterOrEqualOp>,
     .parts = parts_of_pairs},
    {.name = "And",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kBool,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_and,
     .parts = parts_of_pairs},
    {.name = "Or",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kBool,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_or,
     .parts = parts_of_pairs},
    {.name = "Xor",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kBool,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_compare,
     .reference = reference_xor,
     .parts = parts_of_pairs},
    {.name = "Not",
     .since = 1,
     .dtypes = kBool,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_same_shape,
     .reference = reference_not},
    {.name = "IsNaN",
     .since = 9,
     .dtypes = kTested,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_same_shape,
     .reference = reference_is_nan},
    {.name = "IsInf",
     .since = 10,
     .attributes = kIsInf,
     .dtypes = kTested,
     .flags = kFlags,
     .output_dtype = bool_output,
     .infer = infer_same_shape,
     .reference = reference_is_inf},
};

}  // namespace

extern const OpFamily compare_family;
const OpFamily compare_family = {kOps};

}  // namespace evn
