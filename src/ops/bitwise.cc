// BitwiseAnd, BitwiseOr, BitwiseXor, BitShift of two broadcast inputs, BitwiseNot of one, and BitCast, which reads the same bytes
// as another dtype of the same size.
// BitShift moves to `direction` LEFT or RIGHT; a shift by as many bits as there are, or more, or by a negative number gives 0.
// Signed numbers keep their sign to the right: -1 is what is left of a negative one. dtypes: integers (BitShift: unsigned ones,
// from 28 all), both inputs alike; BitCast any. Failures: shapes that do not broadcast, unlike dtypes, another direction, a cast to
// another size. Exact.
#include "ops/infra/broadcast.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

constexpr std::uint32_t kInts = kSignedInts | kUnsignedInts;

void infer_bitwise(InferContext& c) {
  require_same_dtype(c, 0, 1);
  c.outputs[0].shape = broadcast_partial(c.shape(0), c.shape(1));
}

void infer_shift(InferContext& c) {
  const std::string& direction = attr_string(c.node, 0);
  if (direction != "LEFT" && direction != "RIGHT") fail(EVN_ERROR_INVALID_MODEL, "direction must not be '%s'", direction.c_str());
  infer_bitwise(c);
}

// Calls f(T{}) with the unsigned type of the element's size: signs do not matter to bits.
template <typename F>
void dispatch_bits(DType dtype, F&& f) {
  switch (dtype_size(dtype)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

template <Pairs kPairs = Pairs::kVector, typename F>
void apply_bits(const ReferenceContext& c, F) {
  dispatch_bits(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    apply_pairs(c, pair_loop<kPairs, T, T, T, F>);
  });
}

void reference_and(const ReferenceContext& c) {
  apply_bits(c, [](auto a, auto b) { return a & b; });
}
void reference_or(const ReferenceContext& c) {
  apply_bits(c, [](auto a, auto b) { return a | b; });
}
void reference_xor(const ReferenceContext& c) {
  apply_bits(c, [](auto a, auto b) { return a ^ b; });
}

// Shifts `bits`, which are those of a signed T, to the right.
template <typename T>
std::uint64_t shift_right_signed(std::uint64_t bits, std::uint64_t by) {
  const auto x = static_cast<T>(bits);
  const auto count = static_cast<T>(by);
  if (count < 0 || static_cast<std::uint64_t>(count) >= 8 * sizeof(T)) return x < 0 ? ~std::uint64_t{0} : 0;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(x) >> count);
}

void reference_shift(const ReferenceContext& c) {
  if (attr_string(c.node, 0) == "LEFT") {
    return apply_bits<Pairs::kFour>(c, [](auto a, auto b) { return b < 8 * sizeof(a) ? std::uint64_t{a} << b : 0; });
  }
  if ((kSignedInts & dtype_bit(c.input(0).desc.dtype)) != 0) {
    return apply_bits<Pairs::kFour>(c, [](auto a, auto b) { return shift_right_signed<std::make_signed_t<decltype(a)>>(a, b); });
  }
  apply_bits<Pairs::kFour>(c, [](auto a, auto b) { return b < 8 * sizeof(a) ? std::uint64_t{a} >> b : 0; });
}

void reference_not(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_bits(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    each_element(count, [x = c.input(0).as<T>(), y = c.output().as<T>()](std::int64_t i) { y[i] = static_cast<T>(~x[i]); });
  });
}

constexpr std::uint32_t kBits = kAnyDtype | kFloat8s | kSubByte | kComplex;

DType cast_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t to = attr_int(node, 0);
  if (to <= 0 || to > 1000) fail(EVN_ERROR_INVALID_MODEL, "to is %lld, which is no dtype", static_cast<long long>(to));
  const auto dtype = static_cast<DType>(to);
  if (to >= 32 || (kBits & dtype_bit(dtype)) == 0) fail(EVN_ERROR_UNSUPPORTED, "cast to dtype %lld", static_cast<long long>(to));
  if (inputs[0] != DType::kUndefined && dtype_bits(inputs[0]) != dtype_bits(dtype)) {
    fail(EVN_ERROR_INVALID_MODEL, "%s and %s have unlike sizes", dtype_name(inputs[0]), dtype_name(dtype));
  }
  return dtype;
}

void reference_cast(const ReferenceContext& c) { copy_all(c.input(0), c.output()); }

constexpr AttributeSpec kDirection[] = {required_attribute("direction", AttributeType::kString)};
constexpr AttributeSpec kTo[] = {required_attribute("to", AttributeType::kInt)};
constexpr std::uint32_t kFlags = kOpElementwise;
constexpr OpDef kOps[] = {
    {.name = "BitwiseAnd",
     .since = 18,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kInts,
     .flags = kFlags,
     .infer = infer_bitwise,
     .reference = reference_and,
     .parts = parts_of_pairs},
    {.name = "BitwiseOr",
     .since = 18,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kInts,
     .flags = kFlags,
     .infer = infer_bitwise,
     .reference = reference_or,
     .parts = parts_of_pairs},
    {.name = "BitwiseXor",
     .since = 18,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kInts,
     .flags = kFlags,
     .infer = infer_bitwise,
     .reference = reference_xor,
     .parts = parts_of_pairs},
    {.name = "BitwiseNot", .since = 18, .dtypes = kInts, .flags = kFlags, .infer = infer_same_shape, .reference = reference_not},
    {.name = "BitShift",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kDirection,
     .dtypes = kUnsignedInts,
     .flags = kFlags,
     .infer = infer_shift,
     .reference = reference_shift,
     .parts = parts_of_pairs},
    {.name = "BitShift",
     .since = 28,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kDirection,
     .dtypes = kInts,
     .flags = kFlags,
     .infer = infer_shift,
     .reference = reference_shift,
     .parts = parts_of_pairs},
    {.name = "BitCast",
     .since = 26,
     .attributes = kTo,
     .dtypes = kBits,
     .output_dtype = cast_dtype,
     .infer = infer_same_shape,
     .reference = reference_cast},
};

}  // namespace

extern const OpFamily bitwise_family;
const OpFamily bitwise_family = {kOps};

}  // namespace evn
