// Arithmetic of two broadcast inputs: Add, Sub, Mul, Div, Mod, Pow, PRelu.
//   C = A op B, NumPy broadcasting (PRelu: of the slope B to X only)
// dtypes: all numbers, both inputs alike; Pow: float32, float64, int32, int64 with exponents of any number type.
// Integers wrap; INT_MIN / -1 is INT_MIN and INT_MIN mod -1 is 0; division truncates; Mod has the sign of the divisor, with fmod=1
// that of the dividend. Pow of an integer: exact modulo 2^bits for integer exponents, base^-n is 0 unless the base is 1 or -1; for
// a floating exponent, the double result saturated to the integer type.
// Failures: shapes that do not broadcast, unlike dtypes; at run: an integer divided by 0, 0 to a negative integer power.
// Tolerance: 1 ulp or so; Pow rtol 1e-5.
#include "ops/infra/broadcast.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_binary(InferContext& c) {
  require_same_dtype(c, 0, 1);
  c.outputs[0].shape = broadcast_partial(c.shape(0), c.shape(1));
}

void infer_pow(InferContext& c) {
  require_dtype(c, 1, kNumbers | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16));
  c.outputs[0].shape = broadcast_partial(c.shape(0), c.shape(1));
}

void infer_prelu(InferContext& c) {
  require_same_dtype(c, 0, 1);
  const Shape out = broadcast_partial(c.shape(0), c.shape(1));
  if (out.rank() != c.shape(0).rank()) fail(EVN_ERROR_INVALID_MODEL, "the slope has a higher rank than the input");
  for (int i = 0; i < out.rank(); ++i) require_dim(c.shape(0)[i], out[i], 0);
  c.outputs[0].shape = c.shape(0);
}

[[noreturn]] void fail_zero() { fail(EVN_ERROR_INVALID_ARGUMENT, "integer division by zero"); }

struct AddOp {
  static constexpr bool kVector = true;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a + b;
    else return wrap_add(a, b);
  }
};
struct SubOp {
  static constexpr bool kVector = true;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a - b;
    else return wrap_sub(a, b);
  }
};
struct MulOp {
  static constexpr bool kVector = true;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a * b;
    else return wrap_mul(a, b);
  }
};
struct DivOp {
  static constexpr bool kVector = false;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a / b;
    } else {
      if (b == 0) fail_zero();
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return wrap_sub(T{0}, a);
      }
      return static_cast<T>(a / b);
    }
  }
};
double remainder_of(double a, double b) { return std::fmod(a, b); }

// std::fmod, which takes its time. Where the quotient has no more than 28 bits, its product with b and what that leaves of a are
// exact in double. A quotient that was rounded up to a whole number is one too large.
float remainder_of(float a, float b) {
  const double divisor = std::fabs(b), magnitude = std::fabs(a);
  const double quotient = magnitude / divisor;
  if (!(quotient < 0x1p28) || std::isinf(b)) return std::fmod(a, b);
  double rest = magnitude - static_cast<double>(static_cast<std::int64_t>(quotient)) * divisor;
  rest += rest < 0 ? divisor : 0;
  return std::copysign(static_cast<float>(rest), a);
}

struct FmodOp {
  static constexpr bool kVector = false;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return remainder_of(a, b);
    } else {
      if (b == 0) fail_zero();
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    }
  }
};
struct ModOp {
  static constexpr bool kVector = false;
  template <typename T>
  static T apply(T a, T b) {
    const T r = FmodOp::apply(a, b);
    return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
};
struct PReluOp {
  static constexpr bool kVector = true;
  template <typename T>
  static T apply(T x, T slope) {
    return x < 0 ? MulOp::apply(x, slope) : x;
  }
};

template <typename T, typename U>
T integer_power(T base, U exponent) {
  if constexpr (std::is_signed_v<U>) {
    if (exponent < 0) {
      if (base == 0) fail_zero();
      if (base == 1) return 1;
      if constexpr (std::is_signed_v<T>) {
        if (base == -1) return exponent % 2 == 0 ? T{1} : T{-1};
      }
      return 0;
    }
  }
  std::uint64_t result = 1;
  auto square = static_cast<std::uint64_t>(base);
  for (auto n = static_cast<std::uint64_t>(exponent); n != 0; n >>= 1) {
    if ((n & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <typename U>
double real(U x) {
  if constexpr (std::is_arithmetic_v<U>) return static_cast<double>(x);
  else return x.value();
}

template <typename T, typename U>
T power(T base, U exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<U>) {
    return integer_power(base, exponent);
  } else {
    const double result = std::pow(static_cast<double>(base), real(exponent));
    if constexpr (std::is_integral_v<T>) return saturate_to<T>(result);
    else return static_cast<T>(result);
  }
}

template <typename Op>
void reference_binary(const ReferenceContext& c) {
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr auto kApply = [](T a, T b) { return Op::apply(a, b); };
    // There are no products of 64-bit integers side by side.
    constexpr bool kVector = Op::kVector && !(std::is_same_v<Op, MulOp> && std::is_integral_v<T> && sizeof(T) == 8);
    constexpr Pairs kPairs = kVector ? Pairs::kVector : Pairs::kSingle;
    apply_pairs(c, pair_loop<kPairs, T, T, T, decltype(kApply)>);
  });
}

void reference_mod(const ReferenceContext& c) {
  attr_int(c.node, 0) != 0 ? reference_binary<FmodOp>(c) : reference_binary<ModOp>(c);
}

void reference_pow(const ReferenceContext& c) {
  dispatch<float, double, std::int32_t, std::int64_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto with_exponents = [&](auto exponent) {
      using U = decltype(exponent);
      constexpr auto kPower = [](T a, U b) { return power(a, b); };
      apply_pairs(c, pair_loop<Pairs::kSingle, T, T, U, decltype(kPower)>);
    };
    const DType exponents = c.input(1).desc.dtype;
    const bool numbers = (kNumbers & dtype_bit(exponents)) != 0;
    numbers ? dispatch_numbers(exponents, with_exponents) : dispatch<Float16, Bfloat16>(exponents, with_exponents);
  });
}

constexpr AttributeSpec kModAttributes[] = {int_attribute("fmod", 0)};
constexpr std::uint32_t kPowDtypes = kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64);
constexpr Tolerance kOneUlp = {2.5e-7, 0};

constexpr OpDef kOps[] = {
    {.name = "Add",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_binary,
     .reference = reference_binary<AddOp>,
     .parts = parts_of_pairs},
    {.name = "Sub",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_binary,
     .reference = reference_binary<SubOp>,
     .parts = parts_of_pairs},
    {.name = "Mul",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_binary,
     .reference = reference_binary<MulOp>,
     .parts = parts_of_pairs},
    {.name = "Div",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_binary,
     .reference = reference_binary<DivOp>,
     .tolerance = kOneUlp,
     .parts = parts_of_pairs},
    {.name = "Mod",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kModAttributes,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_binary,
     .reference = reference_mod,
     .parts = parts_of_pairs},
    {.name = "Pow",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kPowDtypes,
     .flags = kOpElementwise,
     .infer = infer_pow,
     .reference = reference_pow,
     .tolerance = {1e-5, 1e-7},
     .parts = parts_of_pairs},
    {.name = "PRelu",
     .since = 7,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_prelu,
     .reference = reference_binary<PReluOp>,
     .parts = parts_of_pairs},
};

}  // namespace

extern const OpFamily binary_family;
const OpFamily binary_family = {kOps};

}  // namespace evn
