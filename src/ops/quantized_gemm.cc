// com.microsoft's products of quantized matrices, whose sums are int32, which wraps:
//   QGemm                   y = saturate(round(S * m) + y zero point), where S = A' B' + C, m = alpha * a scale * b scale / y
//   scale, A'
//                           is A less its zero point, with transA transposed, and B' likewise; C is int32 and broadcasts to y.
//                           Without a zero point of y: y = S * m with m = alpha * a scale * b scale, float32
//   MatMulIntegerToFloat    y = A' B' * (a scale * b scale) + bias, in the type of a scale, as MatMul; zero points may be missing
//   (0) DynamicQuantizeMatMul   the same where A is float32 and is quantized first as DynamicQuantizeLinear does it
// A's scale and zero point are one number; B's one, or one for each column; the bias [columns] may be missing. What the scales give
// is computed in float64 and is then a float32; from the sum on all is float32, and rounding is to even. dtypes: int8 and uint8;
// scales and bias float32. Failures: those of MatMul and Gemm, scales, zero points and biases that do not fit. Tolerance: rtol
// 1e-5, atol 1e-6; quantized results exact, where ONNX Runtime, which multiplies scales in float32, may be one step off.
#include <algorithm>
#include <vector>

#include "ops/infra/dynamic.h"
#include "ops/infra/product.h"
#include "ops/infra/quantized.h"

namespace evn {
namespace {

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);

// ------------------------------------------------------------------------------------------------------ QGemm --

enum : int { kA, kAScale, kAZero, kB, kBScale, kBZero, kC, kYScale, kYZero };
enum : int { kAlpha, kTransA, kTransB };

bool has_output_zero(std::span<const DType> inputs) { return inputs.size() > kYZero && inputs[kYZero] != DType::kUndefined; }

DType gemm_dtype(const Node&, std::span<const DType> inputs, int) {
  return has_output_zero(inputs) ? inputs[kYZero] : DType::kFloat32;
}

void infer_gemm(InferContext& c) {
  require_rank(c, kA, 2, 2);
  require_rank(c, kB, 2, 2);
  const ProductSide a = side_of(c.shape(kA), true, attr_int(c.node, kTransA) != 0);
  const ProductSide b = side_of(c.shape(kB), false, attr_int(c.node, kTransB) != 0);
  require_quantized(c, kA, kAScale, kAZero, 1, kFloat);
  require_quantized(c, kB, kBScale, kBZero, b.columns, kFloat);
  const Shape out = product_shape(a, 2, b, 2, kB);
  if (c.has_input(kC)) {
    require_dtype(c, kC, dtype_bit(DType::kInt32));
    const Shape both = broadcast_partial(out, c.shape(kC));
    if (both.rank() != 2) fail(EVN_ERROR_INVALID_MODEL, "C has a rank above 2");
    for (int i = 0; i < 2; ++i) require_dim(out[i], both[i], kC);
  }
  if (c.has_input(kYZero)) {
    if (!c.has_input(kYScale)) fail(EVN_ERROR_INVALID_MODEL, "a zero point without a scale");
    require_dtype(c, kYZero, kByteDtypes);
    require_quantized_output(c, kYScale, c.inputs[kYZero].dtype);
  }
  c.outputs[0].shape = out;
}

void reference_gemm(const ReferenceContext& c) {
  const Shape& out = c.output().desc.shape;
  const Strides added = c.has_input(kC) ? broadcast_strides(c.input(kC).desc.shape, out) : Strides{};
  const double alpha = static_cast<double>(attr_float(c.node, kAlpha)) * scale_at(c, kAScale);
  if (out.elements() == 0) return;
  const ProductSide a = side_of(c.input(kA).desc.shape, true, attr_int(c.node, kTransA) != 0);
  ProductSide b = side_of(c.input(kB).desc.shape, false, attr_int(c.node, kTransB) != 0);
  const std::vector<std::int32_t> x = centered(c, kA, kAZero, 1, 1);
  std::vector<std::int32_t> w = centered(c, kB, kBZero, std::max<std::int64_t>(b.column_step, 1), b.columns);
  turn_columns(&b, &w);
  multiply<std::int64_t>(
      a, b,
      [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
        return std::int64_t{x[static_cast<std::size_t>(i)]} * w[static_cast<std::size_t>(j)];
      },
      [&](std::int64_t i, std::int64_t row, std::int64_t column, std::int64_t sum) {
        if (c.has_input(kC)) sum += c.input(kC).as<std::int32_t>()[row * added.step[0] + column * added.step[1]];
        const double scale = alpha * scale_at(c, kBScale, column);
        if (c.has_input(kYZero)) {
          put_requantized(c.output(), i, wrapped(sum), static_cast<float>(scale / scale_at(c, kYScale)), zero_at(c, kYZero));
        } else {
          c.output().as<float>()[i] = static_cast<float>(wrapped(sum)) * static_cast<float>(scale);
        }
      });
}

// ------------------------------------------------------------------------------------------- MatMul to float --

// The inputs' numbers; -1: the operator has none.
struct MatMulInputs {
  int a_scale, b_scale, a_zero, b_zero, bias;
};
constexpr MatMulInputs kInteger = {2, 3, 4, 5, 6};
constexpr MatMulInputs kDynamic = {-1, 2, -1, 3, 4};

DType scale_output(const Node&, std::span<const DType> inputs, int) { return inputs[kInteger.a_scale]; }

void infer_matmul(InferContext& c, const MatMulInputs& in) {
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const ProductSide a = side_of(c.shape(0), true);
  const ProductSide b = side_of(c.shape(1), false);
  const std::uint32_t floats = in.a_scale < 0 ? kFloat : dtype_bit(c.inputs[kInteger.a_scale].dtype);
  require_quantized(c, 1, in.b_scale, in.b_zero, b.columns, floats);
  require_dtype(c, in.bias, floats);
  require_vector(c, in.bias, b.columns);
  c.outputs[0].shape = product_shape(a, c.shape(0).rank(), b, c.shape(1).rank(), 1);
}

// `x` is A less its zero point.
void matmul(const ReferenceContext& c, const MatMulInputs& in, double a_scale, const std::vector<std::int32_t>& x) {
  const ProductSide a = side_of(c.input(0).desc.shape, true);
  ProductSide b = side_of(c.input(1).desc.shape, false);
  if (c.output().desc.shape.elements() == 0) return;
  std::vector<std::int32_t> w = centered(c, 1, in.b_zero, 1, b.columns);
  turn_columns(&b, &w);
  multiply<std::int64_t>(
      a, b,
      [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
        return std::int64_t{x[static_cast<std::size_t>(i)]} * w[static_cast<std::size_t>(j)];
      },
      [&](std::int64_t i, std::int64_t, std::int64_t column, std::int64_t sum) {
        const float y = static_cast<float>(wrapped(sum)) * static_cast<float>(a_scale * scale_at(c, in.b_scale, column));
        put_scaled(c.output(), i, static_cast<double>(c.has_input(in.bias) ? y + scale_value(c.input(in.bias), column) : y));
      });
}

void infer_integer(InferContext& c) {
  require_quantized(c, 0, kInteger.a_scale, kInteger.a_zero, 1, kScaleDtypes);
  infer_matmul(c, kInteger);
}

void reference_integer(const ReferenceContext& c) {
  matmul(c, kInteger, scale_at(c, kInteger.a_scale), centered(c, 0, kInteger.a_zero, 1, 1));
}

void infer_dynamic(InferContext& c) { infer_matmul(c, kDynamic); }

void reference_dynamic(const ReferenceContext& c) {
  const std::int64_t count = c.input(0).desc.shape.elements();
  const DynamicRange range = dynamic_range(c.input(0).as<float>(), count);
  std::vector<std::int32_t> whole(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    whole[static_cast<std::size_t>(i)] = range.quantized(c.input(0).as<float>()[i]) - static_cast<std::int32_t>(range.zero);
  }
  matmul(c, kDynamic, static_cast<double>(range.scale), whole);
}

constexpr const char* kDomain = "com.microsoft";
constexpr AttributeSpec kGemm[] = {float_attribute("alpha", 1), int_attribute("transA", 0), int_attribute("transB", 0)};
constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "QGemm",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 6,
     .max_inputs = 9,
     .attributes = kGemm,
     .dtypes = kByteDtypes,
     .output_dtype = gemm_dtype,
     .infer = infer_gemm,
     .reference = reference_gemm,
     .tolerance = kNear},
    {.name = "MatMulIntegerToFloat",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 4,
     .max_inputs = 7,
     .dtypes = kByteDtypes,
     .output_dtype = scale_output,
     .infer = infer_integer,
     .reference = reference_integer,
     .tolerance = kNear},
    {.name = "DynamicQuantizeMatMul",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 5,
     .dtypes = kFloat,
     .infer = infer_dynamic,
     .reference = reference_dynamic,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily quantized_gemm_family;
const OpFamily quantized_gemm_family = {kOps};

}  // namespace evn
