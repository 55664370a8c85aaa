// com.microsoft's operators that join or reduce quantized tensors. Each dequantizes, x = (q - zero point) * scale, computes, and
// quantizes the result, q = saturate(round(y / y scale) + zero point), ties to even:
//   QLinearConcat              the inputs, each with a scale and zero point of its own, one after the other along `axis`
//   QLinearGlobalAveragePool   the mean of each plane of x [N, C, spatial...], or with channels_last [N, spatial..., C]
//   QLinearSoftmax             Softmax along `axis`, or, with an `opset` below 13, over all axes from `axis` on
// Scales and zero points are one number each; QLinearSoftmax's zero point of x may be missing (0).
// dtypes: int8 and uint8, all alike; scales float32. Failures: unlike dtypes, ranks and dims that do not fit, more than one scale,
// inputs of QLinearConcat that are not in threes. Exact; ONNX Runtime, which computes in float32, may be one step beside.
#include <algorithm>

#include "ops/concat.h"
#include "ops/infra/quantized.h"

namespace evn {
namespace {

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);

// ----------------------------------------------------------------------------------------------------- Concat --

enum : int { kJoinedScale, kJoinedZero, kFirst };

DType zero_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[kJoinedZero]; }

void infer_concat(InferContext& c) {
  const int count = static_cast<int>(c.inputs.size());
  if (count == kFirst || (count - kFirst) % 3 != 0) fail(EVN_ERROR_INVALID_MODEL, "the inputs are not x, scale, zero point, ...");
  require_dtype(c, kJoinedZero, kByteDtypes);
  require_quantized_output(c, kJoinedScale, c.inputs[kJoinedZero].dtype);
  for (int i = kFirst; i < count; i += 3) {
    require_quantized(c, i, i + 1, i + 2, 1, kFloat);
    require_zero_point(c, i, c.inputs[kJoinedZero].dtype);
  }
  c.outputs[0].shape = concat_shape(c, kFirst, 3, attr_int(c.node, 0));
}

void reference_concat(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), y.rank());
  const std::int64_t outer = y.elements(0, axis);
  const std::int64_t row = y.elements(axis, y.rank());
  std::int64_t begin = 0;
  for (int input = kFirst; input < static_cast<int>(c.inputs.size()); input += 3) {
    cancellation_point();
    const std::int64_t block = c.input(input).desc.shape.elements(axis, y.rank());
    for (std::int64_t i = 0; i < outer * block; ++i) {
      cancellation_point();
      put_quantized(c, kJoinedScale, i / block * row + begin + i % block, dequantized_at(c, input, i));
    }
    begin += block;
  }
}

// ----------------------------------------------------------------------------------------- GlobalAveragePool --

enum : int { kX, kXScale, kXZero, kYScale, kYZero };

void infer_x_and_y(InferContext& c) {
  require_quantized(c, kX, kXScale, kXZero, 1, kFloat);
  require_quantized_output(c, kYScale, c.inputs[kX].dtype);
  infer_same_shape(c);
}

void infer_average(InferContext& c) {
  infer_x_and_y(c);
  require_rank(c, kX, 3);
  Shape& y = c.outputs[0].shape;
  const bool channels_last = attr_int(c.node, 0) != 0;
  for (int i = channels_last ? 1 : 2; i < y.rank() - (channels_last ? 1 : 0); ++i) y[i] = 1;
}

void reference_average(const ReferenceContext& c) {
  const Shape& x = c.input(kX).desc.shape;
  const bool channels_last = attr_int(c.node, 0) != 0;
  const std::int64_t channels = x[channels_last ? x.rank() - 1 : 1];
  if (channels_last ? x[0] == 0 || channels == 0 : x.elements(0, 2) == 0) return;
  const std::int64_t size = channels_last ? x.elements(1, x.rank() - 1) : x.elements(2, x.rank());
  for (std::int64_t plane = 0; plane < x[0] * channels; ++plane) {
    cancellation_point();
    const std::int64_t first = channels_last ? plane / channels * size * channels + plane % channels : plane * size;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      sum += byte_at(c.input(kX), first + i * (channels_last ? channels : 1)) - zero_at(c, kXZero);
    }
    // One rounding, of the quotient of exact products: what lies half-way between two steps stays there.
    const double steps =
        size == 0 ? 0 : static_cast<double>(sum) * scale_at(c, kXScale) / (scale_at(c, kYScale) * static_cast<double>(size));
    put_byte(c.output(), plane, round_even(steps) + zero_at(c, kYScale + 1));
  }
}

// ---------------------------------------------------------------------------------------------------- Softmax --

enum : int { kAxis, kOpset };

void infer_softmax(InferContext& c) {
  require_input(c, kYScale);
  require_input(c, kYZero);
  infer_x_and_y(c);
  normalize_axis(attr_int(c.node, kAxis), c.shape(kX).rank());
}

void reference_softmax(const ReferenceContext& c) {
  const Shape& x = c.input(kX).desc.shape;
  if (x.elements() == 0) return;
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  const bool one_axis = attr_int(c.node, kOpset) >= 13;
  const std::int64_t inner = one_axis ? x.elements(axis + 1, x.rank()) : 1;
  const std::int64_t length = one_axis ? x[axis] : x.elements(axis, x.rank());
  for (std::int64_t row = 0; row < x.elements() / length; ++row) {
    cancellation_point();
    const std::int64_t first = row / inner * length * inner + row % inner;
    std::int32_t top = byte_at(c.input(kX), first);
    for (std::int64_t i = 1; i < length; ++i) {
      cancellation_point();
      top = std::max(top, byte_at(c.input(kX), first + i * inner));
    }
    // The zero point of x is subtracted from the largest too, and so does not matter.
    const auto power = [&](std::int64_t i) {
      return std::exp((byte_at(c.input(kX), first + i * inner) - top) * scale_at(c, kXScale));
    };
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      cancellation_point();
      sum += power(i);
    }
    for (std::int64_t i = 0; i < length; ++i) {
      cancellation_point();
      put_quantized(c, kYScale, first + i * inner, power(i) / sum);
    }
  }
}

constexpr const char* kDomain = "com.microsoft";
constexpr AttributeSpec kConcat[] = {required_attribute("axis", AttributeType::kInt)};
constexpr AttributeSpec kPool[] = {int_attribute("channels_last", 0)};
constexpr AttributeSpec kSoftmax[] = {int_attribute("axis", -1), required_attribute("opset", AttributeType::kInt)};
constexpr OpDef kOps[] = {
    {.name = "QLinearConcat",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = kVariadic,
     .attributes = kConcat,
     .dtypes = kFloat,
     .output_dtype = zero_dtype,
     .infer = infer_concat,
     .reference = reference_concat},
    {.name = "QLinearGlobalAveragePool",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 5,
     .max_inputs = 5,
     .attributes = kPool,
     .dtypes = kByteDtypes,
     .infer = infer_average,
     .reference = reference_average},
    {.name = "QLinearSoftmax",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 5,
     .attributes = kSoftmax,
     .dtypes = kByteDtypes,
     .infer = infer_softmax,
     .reference = reference_softmax},
};

}  // namespace

extern const OpFamily quantized_rows_family;
const OpFamily quantized_rows_family = {kOps};

}  // namespace evn
