// QLinearMatMul: y = saturate(round((A - a zero point) x (B - b zero point) * m) + y zero point), as MatMul.
// ConvInteger: Conv of x - x zero point with w - w zero point, int32, which wraps. Padding is the zero point, which adds nothing.
// ConvIntegerToFloat (our own): y = that sum * m + bias, float32, where m = x scale * w scale is computed in float64 and is then a
// float32, as
//   is the sum; inputs x, w, x scale, w scale, x zero point, w zero point, bias [M], of which the last three may be missing.
// QLinearConv: y = saturate(round((that sum + bias) * m) + y zero point); the bias is int32.
//   A sum is int32, which wraps, and then float32; m = (one scale * the other / y scale) is computed in float64 and is then a
//   float32, as its product with the sum. Rounding is to even. A scale and its zero point are one number; of the left-hand matrix
//   also one for each row, of the right-hand one for each column, of the weight of a convolution one for each output channel.
// dtypes: int8 and uint8; scales float32, of QLinearMatMul from 21 also float16 and bfloat16. Failures: those of MatMul and Conv,
// scales and zero points that do not fit. Exact; ConvIntegerToFloat but for numbers below 1.2e-38, which kernels take for 0.
#include "ops/conv.h"

#include <algorithm>

#include "ops/infra/product.h"
#include "ops/infra/quantized.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);

void check_operand(const InferContext& c, int tensor, int scale, int zero, std::int64_t length) {
  require_quantized(c, tensor, scale, zero, length, c.node.op->since >= 21 ? kScaleDtypes : kFloat);
}

// --------------------------------------------------------------------------------------------- QLinearMatMul --

enum : int { kA, kAScale, kAZero, kB, kBScale, kBZero, kYScale, kYZero };

DType last_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[kYZero]; }

void infer_matmul(InferContext& c) {
  require_rank(c, kA, 1);
  require_rank(c, kB, 1);
  const ProductSide a = side_of(c.shape(kA), true), b = side_of(c.shape(kB), false);
  check_operand(c, kA, kAScale, kAZero, a.rows);
  check_operand(c, kB, kBScale, kBZero, b.columns);
  require_dtype(c, kYZero, kByteDtypes);
  require_dtype(c, kYScale, c.node.op->since >= 21 ? kScaleDtypes : kFloat);
  require_numbers(c, kYScale, a.rows);
  require_numbers(c, kYZero, a.rows);
  c.outputs[0].shape = product_shape(a, c.shape(kA).rank(), b, c.shape(kB).rank(), kB);
}

void reference_matmul(const ReferenceContext& c) {
  const ProductSide a = side_of(c.input(kA).desc.shape, true);
  ProductSide b = side_of(c.input(kB).desc.shape, false);
  if (c.output().desc.shape.elements() == 0) return;
  const std::vector<std::int32_t> x = centered(c, kA, kAZero, std::max<std::int64_t>(a.columns, 1), a.rows);
  std::vector<std::int32_t> w = centered(c, kB, kBZero, 1, b.columns);
  turn_columns(&b, &w);
  multiply<std::int64_t>(
      a, b,
      [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
        return std::int64_t{x[static_cast<std::size_t>(i)]} * w[static_cast<std::size_t>(j)];
      },
      [&](std::int64_t i, std::int64_t m, std::int64_t n, std::int64_t sum) {
        const double scale = scale_at(c, kAScale, m) * scale_at(c, kBScale, n) / scale_at(c, kYScale, m);
        put_requantized(c.output(), i, wrapped(sum), static_cast<float>(scale), zero_at(c, kYZero, m));
      });
}

// ---------------------------------------------------------------------------------------------- convolutions --

// The inputs' numbers; -1: the operator has none.
struct ConvInputs {
  int x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
};
constexpr ConvInputs kInteger = {0, -1, 2, 1, -1, 3, -1, -1, -1};
constexpr ConvInputs kToFloat = {0, 2, 4, 1, 3, 5, -1, -1, 6};
constexpr ConvInputs kLinear = {0, 1, 2, 3, 4, 5, 6, 7, 8};

DType int32_output(const Node&, std::span<const DType>, int) { return DType::kInt32; }

// Writes a sum to element i of the output, in channel m.
void put_sum(const ReferenceContext& c, const ConvInputs& in, std::int64_t i, std::int64_t m, std::int64_t sum) {
  const bool has_bias = in.bias >= 0 && c.has_input(in.bias);
  if (in.x_scale < 0) {
    c.output().as<std::int32_t>()[i] = wrapped(sum);
    return;
  }
  const double scale = scale_at(c, in.x_scale, 0) * scale_at(c, in.w_scale, m);
  if (in.y_scale < 0) {
    const float y = static_cast<float>(wrapped(sum)) * static_cast<float>(scale);
    c.output().as<float>()[i] = has_bias ? y + c.input(in.bias).as<float>()[m] : y;
    return;
  }
  if (has_bias) sum += c.input(in.bias).as<std::int32_t>()[m];
  put_requantized(c.output(), i, wrapped(sum), static_cast<float>(scale / scale_at(c, in.y_scale, 0)), zero_at(c, in.y_zero, 0));
}

void convolve(const ReferenceContext& c, const ConvInputs& in) {
  const Shape& x = c.input(in.x).desc.shape;
  const Shape& w = c.input(in.w).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  const Window window = conv_window(c.node, x, w);
  const std::int64_t per_group = w[0] / attr_int(c.node, ConvAttr::kGroup);
  const std::int64_t image = window.input_elements(), taps = std::max<std::int64_t>(w.elements(1, w.rank()), 1);
  const std::vector<std::int32_t> numbers = centered(c, in.x, in.x_zero, 1, 1);
  const std::vector<std::int32_t> weights = centered(c, in.w, in.w_zero, taps, w[0]);
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    const std::int64_t plane = i / window.output_elements(), n = plane / w[0], m = plane % w[0];
    const std::int64_t place[kMaxSpatial] = {i / window.axis[2].output / window.axis[1].output % window.axis[0].output,
                                             i / window.axis[2].output % window.axis[1].output, i % window.axis[2].output};
    const std::int32_t* from = numbers.data() + (n * x[1] + m / per_group * w[1]) * image;
    put_sum(c, in, i, m, window_dot<std::int64_t>(window, {1, image}, from, weights.data() + m * taps, w[1], place));
  }
}

void infer_integer(InferContext& c) {
  require_dtype(c, 1, kByteDtypes);
  infer_convolution(c, kInteger.x, kInteger.w);
  for (const int i : {2, 3}) require_zero_point(c, i, c.inputs[static_cast<std::size_t>(i) - 2].dtype);
  require_scalar(c, 2);
  require_numbers(c, 3, c.shape(1)[0]);
}

void reference_integer(const ReferenceContext& c) { convolve(c, kInteger); }

DType float_output(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

void infer_to_float(InferContext& c) {
  check_operand(c, kToFloat.x, kToFloat.x_scale, kToFloat.x_zero, 1);
  check_operand(c, kToFloat.w, kToFloat.w_scale, kToFloat.w_zero, c.shape(kToFloat.w).rank() > 0 ? c.shape(kToFloat.w)[0] : -1);
  require_dtype(c, kToFloat.bias, kFloat);
  infer_convolution(c, kToFloat.x, kToFloat.w);
  require_vector(c, kToFloat.bias, c.shape(kToFloat.w)[0]);
}

void reference_to_float(const ReferenceContext& c) { convolve(c, kToFloat); }

void infer_linear(InferContext& c) {
  check_operand(c, 0, kLinear.x_scale, 2, 1);
  check_operand(c, 3, kLinear.w_scale, 5, c.shape(3).rank() > 0 ? c.shape(3)[0] : -1);
  require_dtype(c, kLinear.y_scale, kFloat);
  require_dtype(c, kLinear.y_zero, kByteDtypes);
  require_scalar(c, kLinear.y_scale);
  require_scalar(c, kLinear.y_zero);
  require_dtype(c, 8, dtype_bit(DType::kInt32));
  infer_convolution(c, kLinear.x, kLinear.w);
  require_vector(c, 8, c.shape(3)[0]);
}

void reference_linear(const ReferenceContext& c) { convolve(c, kLinear); }

constexpr OpDef kOps[] = {
    {.name = "QLinearMatMul",
     .since = 10,
     .min_inputs = 8,
     .max_inputs = 8,
     .dtypes = kByteDtypes,
     .output_dtype = last_dtype,
     .infer = infer_matmul,
     .reference = reference_matmul},
    {.name = "QLinearMatMul",
     .since = 21,
     .min_inputs = 8,
     .max_inputs = 8,
     .dtypes = kByteDtypes,
     .output_dtype = last_dtype,
     .infer = infer_matmul,
     .reference = reference_matmul},
    {.name = "ConvInteger",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 4,
     .attributes = kConvAttributes,
     .dtypes = kByteDtypes,
     .output_dtype = int32_output,
     .infer = infer_integer,
     .reference = reference_integer},
    {.name = kConvIntegerToFloat,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 4,
     .max_inputs = 7,
     .attributes = kConvAttributes,
     .dtypes = kByteDtypes,
     .output_dtype = float_output,
     .infer = infer_to_float,
     .reference = reference_to_float,
     .tolerance = {0, 1e-37}},
    {.name = "QLinearConv",
     .since = 10,
     .min_inputs = 8,
     .max_inputs = 9,
     .attributes = kConvAttributes,
     .dtypes = kByteDtypes,
     .output_dtype = last_dtype,
     .infer = infer_linear,
     .reference = reference_linear},
};

}  // namespace

extern const OpFamily quantized_products_family;
const OpFamily quantized_products_family = {kOps};

}  // namespace evn
