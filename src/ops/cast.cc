// Cast: each element to the dtype `to`; CastLike: to the dtype of input 1.
//   to bool: x != 0 (NaN is true)              from bool: 0 or 1
//   float to integer: towards zero; outside the range the nearest end of it; NaN is 0
//   integer to integer: modulo 2^bits          to floating point: to nearest, ties to even; too large gives infinity
// ONNX leaves out-of-range conversions open; the above holds on every machine.
// dtypes: all numbers, bool, float16, bfloat16, in every pair. `saturate` and `round_mode` concern types that are not stored here.
// Failures: `to` is no dtype (INVALID_MODEL) or one that is not stored (UNSUPPORTED). Exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// A bool, read as its byte.
struct Bool {
  std::uint8_t byte = 0;
};

template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return convert<To>(static_cast<std::uint8_t>(x.byte != 0 ? 1 : 0));
  } else if constexpr (kIsSmallFloat<From>) {
    return convert<To>(x.value());
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<std::uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (kIsSmallFloat<To>) {
    return To::from(static_cast<double>(x));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return saturate_to<To>(static_cast<double>(x));
  } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>) {
    // Beyond the largest float and half a step, the conversion itself is undefined.
    constexpr double kEdge = 0x1.ffffffp127;
    if (std::fabs(x) >= kEdge) return static_cast<float>(std::copysign(std::numeric_limits<double>::infinity(), x));
    return static_cast<float>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename F>
void dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool: return f(Bool{});
    case DType::kFloat16: return f(Float16{});
    case DType::kBfloat16: return f(Bfloat16{});
    default: return dispatch_numbers(dtype, f);
  }
}

void reference_cast(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_any(c.input(0).desc.dtype, [&](auto from) {
    using From = decltype(from);
    dispatch_any(c.output().desc.dtype, [&](auto to) {
      using To = decltype(to);
      const From* x = c.input(0).as<From>();
      To* y = c.output().as<To>();
      for (std::int64_t i = 0; i < count; ++i) y[i] = convert<To>(x[i]);
    });
  });
}

DType cast_dtype(const Node& node, std::span<const DType>, int) {
  const std::int64_t to = attr_int(node, 0);
  const auto dtype = static_cast<DType>(to < 0 || to > 1000 ? 0 : to);
  if (to <= 0 || to > 1000) fail(EVN_ERROR_INVALID_MODEL, "to is %lld, which is no dtype", static_cast<long long>(to));
  if (dtype_size(dtype) == 0) fail(EVN_ERROR_UNSUPPORTED, "cast to dtype %lld", static_cast<long long>(to));
  return dtype;
}

DType like_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[1]; }

constexpr AttributeSpec kCast6[] = {required_attribute("to", AttributeType::kInt)};
constexpr AttributeSpec kCast19[] = {required_attribute("to", AttributeType::kInt), int_attribute("saturate", 1)};
constexpr AttributeSpec kCast24[] = {required_attribute("to", AttributeType::kInt), int_attribute("saturate", 1),
                                     string_attribute("round_mode", "up")};
constexpr AttributeSpec kLike19[] = {int_attribute("saturate", 1)};

constexpr OpDef kOps[] = {
    {"Cast", "", 6, 1, 1, 1, 1, kCast6, kAnyDtype, 0, kOpElementwise, cast_dtype, infer_same_shape, reference_cast, {}},
    {"Cast", "", 19, 1, 1, 1, 1, kCast19, kAnyDtype, 0, kOpElementwise, cast_dtype, infer_same_shape, reference_cast, {}},
    {"Cast", "", 24, 1, 1, 1, 1, kCast24, kAnyDtype, 0, kOpElementwise, cast_dtype, infer_same_shape, reference_cast, {}},
    {"CastLike", "", 15, 2, 2, 1, 1, {}, kAnyDtype, 0, 0, like_dtype, infer_same_shape, reference_cast, {}},
    {"CastLike", "", 19, 2, 2, 1, 1, kLike19, kAnyDtype, 0, 0, like_dtype, infer_same_shape, reference_cast, {}},
};

}  // namespace

extern const OpFamily cast_family;
const OpFamily cast_family = {kOps};

}  // namespace evn
