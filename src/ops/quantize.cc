// QuantizeLinear: y = saturate(round(x / scale) + zero point), ties to even, NaN to the least number of an integer type;
// DequantizeLinear: y = (x - zero point) * scale. One scale, one for each index of `axis`, or, from 21 with block_size, one for
// each block of that many indices along `axis`. The zero point is optional (0); from 21 output_dtype may name the quantized type
// instead (default uint8). DynamicQuantizeLinear: uint8 with scale (max(x, 0) - min(x, 0)) / 255, or 1 if all of x is 0, and the
// zero point that makes 0 exact. To the floating formats of 8 and 4 bits nothing is rounded to whole numbers; `saturate` says what
// becomes of what is too large. dtypes: float32 (dequantized also float16 and bfloat16, as the scale) to and from int8, uint8,
// int16, uint16 and the types of 8 bits and less; int32 also to float32. Failures: dims, axes or blocks that do not fit, an
// output_dtype that is not the zero point's; a `precision` of the quotient other than float32. Exact, dequantized rtol 2.5e-7.
#include <cmath>
#include <limits>

#include "ops/infra/dynamic.h"
#include "ops/infra/quantized.h"
#include "ops/infra/small_types.h"

namespace evn {
namespace {

enum : int { kAxis, kBlockSize, kOutputDtype, kSaturate, kPrecision };

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);
constexpr std::uint32_t kQuantized = dtype_bit(DType::kInt8) | dtype_bit(DType::kUint8) | dtype_bit(DType::kInt16) |
                                     dtype_bit(DType::kUint16) | kSubByte | (kFloat8s & ~dtype_bit(DType::kFloat8E8M0));

std::int64_t block_size(const Node& node) { return attr_given(node, kBlockSize) ? attr_int(node, kBlockSize) : 0; }

bool per_tensor(const Shape& scale) { return scale.rank() == 0 || (scale.rank() == 1 && scale[0] == 1); }

void check_scales(const InferContext& c) {
  require_dtype(c, 1, kScaleDtypes);
  const Shape& x = c.shape(0);
  const Shape& scale = c.shape(1);
  // One number may be a scalar on one side and a vector on the other.
  const auto may_be_one = [](const Shape& s) { return s.rank() == 0 || (s.rank() == 1 && (s[0] == 1 || s[0] < 0)); };
  if (c.has_input(2) && !(may_be_one(scale) && may_be_one(c.shape(2)))) {
    require_rank(c, 2, scale.rank(), scale.rank());
    for (int i = 0; i < scale.rank(); ++i) require_dim(c.shape(2)[i], scale[i], 2);
  }
  const std::int64_t block = block_size(c.node);
  if (block < 0) fail(EVN_ERROR_INVALID_MODEL, "block_size is negative");
  if (block == 0 && per_tensor(scale)) return;
  if (block == 0 && c.node.op->since < 13) fail(EVN_ERROR_INVALID_MODEL, "scale must have one element");
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  if (block == 0) return require_vector(c, 1, x[axis]);
  require_rank(c, 1, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) require_dim(scale[i], x[i], 1);
    if (i == axis && x[i] >= 0) require_dim(scale[i], x[i] / block + (x[i] % block != 0 ? 1 : 0), 1);
  }
}

// Where the scale of an element of x stands.
class ScaleIndex {
 public:
  ScaleIndex(const Node& node, const Shape& x, const Shape& scale) : block_(block_size(node)) {
    if (block_ == 0 && per_tensor(scale)) return;
    const int axis = normalize_axis(attr_int(node, kAxis), x.rank());
    length_ = x[axis];
    inner_ = x.elements(axis + 1, x.rank());
    blocks_ = block_ == 0 ? 0 : scale[axis];
  }
  std::int64_t of(std::int64_t i) const {
    if (length_ == 0) return 0;
    const std::int64_t at = i / inner_ % length_;
    return block_ == 0 ? at : (i / inner_ / length_ * blocks_ + at / block_) * inner_ + i % inner_;
  }

 private:
  std::int64_t block_;
  std::int64_t length_ = 0;
  std::int64_t inner_ = 1;
  std::int64_t blocks_ = 0;
};

// ------------------------------------------------------------------------------------------------- Quantize --

DType quantized_dtype(const Node& node, std::span<const DType> inputs, int) {
  const bool by_input = inputs.size() > 2 && inputs[2] != DType::kUndefined;
  const std::int64_t named = attr_given(node, kOutputDtype) ? attr_int(node, kOutputDtype) : 0;
  const DType dtype = by_input ? inputs[2] : named == 0 ? DType::kUint8 : static_cast<DType>(named);
  const auto number = by_input ? static_cast<std::int64_t>(dtype) : named == 0 ? std::int64_t{2} : named;
  if (number < 0 || number >= 32 || (kQuantized >> number & 1u) == 0) {
    fail(EVN_ERROR_UNSUPPORTED, "quantization to dtype %lld is not supported", static_cast<long long>(number));
  }
  if (by_input && named != 0 && named != number) {
    fail(EVN_ERROR_INVALID_MODEL, "attribute 'output_dtype' is %lld, but the zero point is of %s", static_cast<long long>(named),
         dtype_name(dtype));
  }
  const std::int64_t precision = attr_given(node, kPrecision) ? attr_int(node, kPrecision) : 0;
  if (precision != 0 && precision != EVN_DTYPE_FLOAT32) {
    fail(EVN_ERROR_UNSUPPORTED, "attribute 'precision' is %lld; QuantizeLinear divides in float32 (1)",
         static_cast<long long>(precision));
  }
  return dtype;
}

void infer_quantize(InferContext& c) {
  check_scales(c);
  infer_same_shape(c);
}

void quantize_small(const ReferenceContext& c, const ScaleIndex& index) {
  const DType to = c.output().desc.dtype;
  const bool saturate = !attr_given(c.node, kSaturate) || attr_int(c.node, kSaturate) != 0;
  for (std::int64_t i = 0; i < c.input(0).desc.shape.elements(); ++i) {
    cancellation_point();
    const std::int64_t at = index.of(i);
    const double quotient = static_cast<double>(c.input(0).as<float>()[i] / scale_value(c.input(1), at));
    const double shift = c.has_input(2) ? small_value(to, c.input(2).data, at) : 0;
    const bool is_integer = is_small_integer(to);
    double value = (is_integer ? round_even(quotient) : quotient) + shift;
    if (is_integer && std::isnan(value)) value = -std::numeric_limits<double>::infinity();  // the least number of the type
    set_small_value(to, c.output().data, i, value, saturate, Rounding::kNearestEven);
  }
  clear_rest(to, c.output().data, c.input(0).desc.shape.elements());
}

void reference_quantize(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const ScaleIndex index(c.node, x, c.input(1).desc.shape);
  if (is_small_type(c.output().desc.dtype)) return quantize_small(c, index);
  dispatch<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t>(c.output().desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      cancellation_point();
      const std::int64_t at = index.of(i);
      // The quotient is a float32, as it is where the standard's own implementations divide.
      const float quotient = c.input(0).as<float>()[i] / scale_value(c.input(1), at);
      const double shift = c.has_input(2) ? static_cast<double>(c.input(2).as<T>()[at]) : 0;
      c.output().as<T>()[i] = quantized_to<T>(round_even(static_cast<double>(quotient)) + shift);
    }
  });
}

// ----------------------------------------------------------------------------------------------- Dequantize --

DType float_output(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t named = attr_given(node, kOutputDtype) ? attr_int(node, kOutputDtype) : 0;
  const std::int64_t number = named == 0 ? static_cast<std::int64_t>(inputs[1]) : named;
  if (number < 0 || number >= 32 || (kScaleDtypes >> number & 1u) == 0) {
    fail(EVN_ERROR_UNSUPPORTED, "dequantization to dtype %lld is not supported", static_cast<long long>(number));
  }
  return static_cast<DType>(number);
}

void infer_dequantize(InferContext& c) {
  check_scales(c);
  if (c.has_input(2) && c.inputs[2].dtype != c.inputs[0].dtype) {
    fail(EVN_ERROR_INVALID_MODEL, "the zero point has another element type than x");
  }
  infer_same_shape(c);
}

void dequantize_small(const ReferenceContext& c, const ScaleIndex& index) {
  const DType from = c.input(0).desc.dtype;
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    const std::int64_t at = index.of(i);
    const double value = small_value(from, c.input(0).data, i) - (c.has_input(2) ? small_value(from, c.input(2).data, at) : 0);
    put_scaled(c.output(), i, value * static_cast<double>(scale_value(c.input(1), at)));
  }
}

void reference_dequantize(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const ScaleIndex index(c.node, x, c.input(1).desc.shape);
  if (is_small_type(c.input(0).desc.dtype)) return dequantize_small(c, index);
  dispatch<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::int32_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      cancellation_point();
      const std::int64_t at = index.of(i);
      const double shift = c.has_input(2) ? static_cast<double>(c.input(2).as<T>()[at]) : 0;
      const double value = static_cast<double>(c.input(0).as<T>()[i]) - shift;
      put_scaled(c.output(), i, value * static_cast<double>(scale_value(c.input(1), at)));
    }
  });
}

// -------------------------------------------------------------------------------------------------- Dynamic --

DType dynamic_dtype(const Node&, std::span<const DType>, int output) { return output == 1 ? DType::kFloat32 : DType::kUint8; }

void infer_dynamic(InferContext& c) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = i == 0 ? c.shape(0) : Shape{};
}

void reference_dynamic(const ReferenceContext& c) {
  const std::int64_t count = c.input(0).desc.shape.elements();
  const float* x = c.input(0).as<float>();
  const DynamicRange range = dynamic_range(x, count);
  for (std::int64_t i = 0; i < count && c.output().present(); ++i) {
    cancellation_point();
    c.output().as<std::uint8_t>()[i] = range.quantized(x[i]);
  }
  if (c.output(1).present()) *c.output(1).as<float>() = range.scale;
  if (c.output(2).present()) *c.output(2).as<std::uint8_t>() = saturate_to<std::uint8_t>(range.zero);
}

constexpr AttributeSpec kAxis13[] = {int_attribute("axis", 1)};
constexpr AttributeSpec kQuantize19[] = {int_attribute("axis", 1), int_attribute("block_size", 0), int_attribute("output_dtype", 0),
                                         int_attribute("saturate", 1), int_attribute("precision", 0)};
constexpr AttributeSpec kDequantize21[] = {int_attribute("axis", 1), int_attribute("block_size", 0)};
constexpr AttributeSpec kDequantize23[] = {int_attribute("axis", 1), int_attribute("block_size", 0),
                                           int_attribute("output_dtype", 0)};
constexpr std::span<const AttributeSpec> kQuantize21 = std::span<const AttributeSpec>(kQuantize19).first(4);
constexpr std::uint32_t kTo = kQuantized | dtype_bit(DType::kInt32);
constexpr Tolerance kRounded = {2.5e-7, 0};

constexpr OpDef quantize_row(int since, std::span<const AttributeSpec> attributes) {
  return {.name = "QuantizeLinear",
          .since = since,
          .min_inputs = 2,
          .max_inputs = 3,
          .attributes = attributes,
          .dtypes = kFloat,
          .output_dtype = quantized_dtype,
          .infer = infer_quantize,
          .reference = reference_quantize};
}
constexpr OpDef dequantize_row(int since, std::span<const AttributeSpec> attributes) {
  return {.name = "DequantizeLinear",
          .since = since,
          .min_inputs = 2,
          .max_inputs = 3,
          .attributes = attributes,
          .dtypes = kTo,
          .output_dtype = float_output,
          .infer = infer_dequantize,
          .reference = reference_dequantize,
          .tolerance = kRounded};
}

constexpr OpDef kOps[] = {
    quantize_row(10, {}),
    quantize_row(13, kAxis13),
    quantize_row(19, kQuantize21),
    quantize_row(23, kQuantize19),
    dequantize_row(10, {}),
    dequantize_row(13, kAxis13),
    dequantize_row(21, kDequantize21),
    dequantize_row(23, kDequantize23),
    {.name = "DynamicQuantizeLinear",
     .since = 11,
     .min_outputs = 3,
     .max_outputs = 3,
     .dtypes = kFloat,
     .output_dtype = dynamic_dtype,
     .infer = infer_dynamic,
     .reference = reference_dynamic},
};

}  // namespace

extern const OpFamily quantize_family;
const OpFamily quantize_family = {kOps};

}  // namespace evn
