// Cast: each element to the dtype `to`; CastLike: to the dtype of input 1.
//   to bool: x != 0 (NaN is true)              from bool: 0 or 1
//   float to integer: towards zero; outside the range the nearest end of it, but modulo 2^bits for 4 and 2 bits; NaN is 0
//   integer to integer: modulo 2^bits          to floating point: to nearest, ties to even; too large gives infinity
//   to floats of 8 and 4 bits: as `saturate` and `round_mode` say (ops/infra/small_types.h)
//   from a string: the decimal number that it is, inf or nan; to a string: the shortest text that gives the number again, bools 1
//   and 0
// ONNX leaves out-of-range conversions open; the above holds on every machine.
// dtypes: all that are stored but complex numbers, in every pair.
// Failures: a string that is no number (INVALID_ARGUMENT); `to` is no dtype (INVALID_MODEL) or one that is not stored
// (UNSUPPORTED). Exact.
#include <algorithm>
#include <charconv>
#include <string>

#include "base/number_text.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/small_types.h"
#include "ops/infra/text_number.h"

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

// ---- where one of the two types has 8 bits or less and is none of C++'s ----

struct SmallCast {
  bool saturate = true;
  Rounding rounding = Rounding::kUp;
};

SmallCast small_cast(const Node& node) {
  const bool like = node.op_type == "CastLike";
  SmallCast how;
  if (node.op->since < 19) return how;
  how.saturate = attr_int(node, like ? 0 : 1) != 0;
  if (node.op->since < 24) return how;
  const std::string& mode = attr_string(node, like ? 1 : 2);
  how.rounding = mode == "up" ? Rounding::kUp : mode == "down" ? Rounding::kDown : Rounding::kNearestEven;
  if (mode != "up" && mode != "down" && mode != "nearest") fail(EVN_ERROR_INVALID_MODEL, "round_mode is none of up, down, nearest");
  return how;
}

void infer_small_cast(InferContext& c) {
  small_cast(c.node);
  infer_same_shape(c);
}

template <typename From>
void set_small(const SmallCast& how, const MutableTensor& y, std::int64_t i, From x) {
  const DType to = y.desc.dtype;
  if constexpr (std::is_integral_v<From>) {
    if (is_small_integer(to)) return set_small_bits(to, y.data, i, static_cast<std::uint64_t>(x));
  }
  const auto value = static_cast<double>(x);
  if (!is_small_integer(to)) return set_small_value(to, y.data, i, value, how.saturate, how.rounding);
  set_small_bits(to, y.data, i, static_cast<std::uint64_t>(saturate_to<std::int64_t>(value)));
}

void cast_small(const ReferenceContext& c, std::int64_t count) {
  const SmallCast how = small_cast(c.node);
  const ConstTensor& x = c.input(0);
  const MutableTensor& y = c.output();
  if (is_small_type(x.desc.dtype) && is_small_type(y.desc.dtype)) {
    // y may lie over x: elements that grow are written from the last on.
    const bool grows = dtype_bits(y.desc.dtype) > dtype_bits(x.desc.dtype);
    for (std::int64_t n = 0; n < count; ++n) {
      cancellation_point();
      const std::int64_t i = grows ? count - 1 - n : n;
      set_small(how, y, i, small_value(x.desc.dtype, x.data, i));
    }
  } else if (is_small_type(x.desc.dtype)) {
    dispatch_any(y.desc.dtype, [&](auto to) {
      using To = decltype(to);
      for (std::int64_t i = 0; i < count; ++i) {
        cancellation_point();
        const double value = small_value(x.desc.dtype, x.data, i);
        if constexpr (std::is_integral_v<To>) {
          // Integers of 4 and 2 bits keep their sign's bits, as others do.
          y.as<To>()[i] =
              is_small_integer(x.desc.dtype) ? static_cast<To>(static_cast<std::int64_t>(value)) : saturate_to<To>(value);
        } else {
          y.as<To>()[i] = convert<To>(value);
        }
      }
    });
  } else {
    dispatch_any(x.desc.dtype, [&](auto from) {
      using From = decltype(from);
      for (std::int64_t i = 0; i < count; ++i) {
        cancellation_point();
        const From element = x.as<From>()[i];
        if constexpr (std::is_same_v<From, Bool>) {
          set_small(how, y, i, element.byte != 0 ? 1 : 0);
        } else if constexpr (kIsSmallFloat<From>) {
          set_small(how, y, i, element.value());
        } else {
          set_small(how, y, i, element);
        }
      }
    });
  }
  clear_rest(y.desc.dtype, y.data, count);
}

// ---- strings ----

// Converts numbers of 64 bits exactly, else by way of double.
template <typename To>
To element_of(std::string_view text) {
  if constexpr (std::is_integral_v<To>) {
    To value = 0;
    const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && end == digits.data() + digits.size()) return value;
  }
  return convert<To>(number_of_text(text));
}

// The shortest text that gives the number again.
template <typename T>
std::string text_of_number(T x) {
  if constexpr (std::is_integral_v<T>) {
    return std::to_string(x);
  } else {
    return shortest_text(x);
  }
}

void cast_strings(const ReferenceContext& c, std::int64_t count) {
  const ConstTensor& x = c.input(0);
  const MutableTensor& y = c.output();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    if (x.desc.dtype != DType::kString) {
      std::string text;
      if (is_small_type(x.desc.dtype)) {
        text = text_of_number(static_cast<float>(small_value(x.desc.dtype, x.data, i)));
      } else {
        dispatch_any(x.desc.dtype, [&](auto from) {
          using From = decltype(from);
          const From element = x.as<From>()[i];
          if constexpr (std::is_same_v<From, Bool>) {
            text.assign(1, element.byte != 0 ? '1' : '0');
          } else if constexpr (kIsSmallFloat<From>) {
            text = text_of_number(static_cast<float>(element.value()));
          } else if constexpr (std::is_integral_v<From>) {
            text = text_of_number(+element);
          } else {
            text = text_of_number(element);
          }
        });
      }
      y.as<TextElement>()[i] = c.add_text(text);
      continue;
    }
    const std::string_view text = text_of(x.as<TextElement>()[i]);
    if (y.desc.dtype == DType::kString) {
      y.as<TextElement>()[i] = x.as<TextElement>()[i];
    } else if (is_small_type(y.desc.dtype)) {
      set_small(small_cast(c.node), y, i, number_of_text(text));
    } else {
      dispatch_any(y.desc.dtype, [&](auto to) { y.as<decltype(to)>()[i] = element_of<decltype(to)>(text); });
    }
  }
  if (is_small_type(y.desc.dtype)) clear_rest(y.desc.dtype, y.data, count);
}

void reference_cast(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  if (c.input(0).desc.dtype == DType::kString || c.output().desc.dtype == DType::kString) return cast_strings(c, count);
  if (is_small_type(c.input(0).desc.dtype) || is_small_type(c.output().desc.dtype)) return cast_small(c, count);
  dispatch_any(c.input(0).desc.dtype, [&](auto from) {
    using From = decltype(from);
    dispatch_any(c.output().desc.dtype, [&](auto to) {
      using To = decltype(to);
      const From* x = c.input(0).as<From>();
      To* y = c.output().as<To>();
      each_element(count, [x, y](std::int64_t i) { y[i] = convert<To>(x[i]); });
    });
  });
}

DType cast_dtype(const Node& node, std::span<const DType>, int) {
  const std::int64_t to = attr_int(node, 0);
  const auto dtype = static_cast<DType>(to < 0 || to > 1000 ? 0 : to);
  if (to <= 0 || to > 1000) fail(EVN_ERROR_INVALID_MODEL, "to is %lld, which is no dtype", static_cast<long long>(to));
  if (!is_stored(dtype) || is_complex(dtype)) fail(EVN_ERROR_UNSUPPORTED, "cast to dtype %lld", static_cast<long long>(to));
  return dtype;
}

DType like_dtype(const Node&, std::span<const DType> inputs, int) {
  if (is_complex(inputs[1])) fail(EVN_ERROR_UNSUPPORTED, "cast to %s", dtype_name(inputs[1]));
  return inputs[1];
}

constexpr std::uint32_t kCastable = kStoredDtype & ~kComplex;
constexpr AttributeSpec kCast6[] = {required_attribute("to", AttributeType::kInt)};
constexpr AttributeSpec kCast19[] = {required_attribute("to", AttributeType::kInt), int_attribute("saturate", 1)};
constexpr AttributeSpec kCast24[] = {required_attribute("to", AttributeType::kInt), int_attribute("saturate", 1),
                                     string_attribute("round_mode", "up")};
constexpr AttributeSpec kLike19[] = {int_attribute("saturate", 1)};
constexpr AttributeSpec kLike24[] = {int_attribute("saturate", 1), string_attribute("round_mode", "up")};

constexpr OpDef kOps[] = {
    {.name = "Cast",
     .since = 6,
     .attributes = kCast6,
     .dtypes = kCastable,
     .flags = kOpElementwise,
     .output_dtype = cast_dtype,
     .infer = infer_same_shape,
     .reference = reference_cast},
    {.name = "Cast",
     .since = 19,
     .attributes = kCast19,
     .dtypes = kCastable,
     .flags = kOpElementwise,
     .output_dtype = cast_dtype,
     .infer = infer_same_shape,
     .reference = reference_cast},
    {.name = "Cast",
     .since = 24,
     .attributes = kCast24,
     .dtypes = kCastable,
     .flags = kOpElementwise,
     .output_dtype = cast_dtype,
     .infer = infer_small_cast,
     .reference = reference_cast},
    {.name = "CastLike",
     .since = 15,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kCastable,
     .output_dtype = like_dtype,
     .infer = infer_same_shape,
     .reference = reference_cast},
    {.name = "CastLike",
     .since = 19,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kLike19,
     .dtypes = kCastable,
     .output_dtype = like_dtype,
     .infer = infer_same_shape,
     .reference = reference_cast},
    {.name = "CastLike",
     .since = 24,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kLike24,
     .dtypes = kCastable,
     .output_dtype = like_dtype,
     .infer = infer_small_cast,
     .reference = reference_cast},
};

}  // namespace

extern const OpFamily cast_family;
const OpFamily cast_family = {kOps};

}  // namespace evn
