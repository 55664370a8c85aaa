// com.microsoft's element-wise operators on quantized tensors. Each dequantizes, x = (q - zero point) * scale, computes, and
// quantizes the result, q = saturate(round(y / y scale) + zero point), ties to even:
//   QLinearAdd, QLinearMul           y = a + b, y = a * b; a and b broadcast. In float32, as in ONNX Runtime, and rounded with the
//   zero
//                                    point in it: a (a scale / y scale) + b (b scale / y scale) + y zero point, where a and b are
//                                    less their zero points, and a b (a scale * b scale / y scale) + y zero point
//   QLinearWhere                     y = condition ? a : b, all three broadcast
//   QLinearSigmoid                   y = 1 / (1 + exp(-x))
//   QLinearLeakyRelu                 y = x < 0 ? alpha * x : x
// Each operand is followed by its scale and its zero point, one number each; the zero point may be missing (0).
// dtypes: int8 and uint8, all alike; scales float32. Failures: unlike dtypes, shapes that do not broadcast, more than one scale.
// Exact; ONNX Runtime, which computes in float32, may be one step beside where a result lies half-way between two.
#include "ops/infra/quantized.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);

// ----------------------------------------------------------------------------------------------- two operands --

enum : int { kA = 0, kB = 3, kBinaryScale = 6 };

void infer_binary(InferContext& c) {
  for (const int i : {int{kB}, kB + 1, int{kBinaryScale}}) require_input(c, i);
  require_quantized(c, kA, kA + 1, kA + 2, 1, kFloat);
  require_quantized(c, kB, kB + 1, kB + 2, 1, kFloat);
  require_zero_point(c, kB, c.inputs[kA].dtype);
  require_quantized_output(c, kBinaryScale, c.inputs[kA].dtype);
  c.outputs[0].shape = broadcast_partial(c.shape(kA), c.shape(kB));
}

// y(a, b) is the result in steps, of elements less their zero points.
template <typename F>
void reference_binary(const ReferenceContext& c, F&& y) {
  const Shape& out = c.output().desc.shape;
  const std::int32_t a_zero = zero_at(c, kA + 2), b_zero = zero_at(c, kB + 2);
  walk<2>(out, {broadcast_strides(c.input(kA).desc.shape, out), broadcast_strides(c.input(kB).desc.shape, out)},
          [&](std::int64_t i, const std::int64_t* at) {
            const auto a = static_cast<float>(byte_at(c.input(kA), at[0]) - a_zero);
            const auto b = static_cast<float>(byte_at(c.input(kB), at[1]) - b_zero);
            put_byte(c.output(), i, round_even(static_cast<double>(y(a, b))));
          });
}

float float_scale(const ReferenceContext& c, int input) { return *c.input(input).as<float>(); }

void reference_add(const ReferenceContext& c) {
  const float y_scale = float_scale(c, kBinaryScale), zero = static_cast<float>(zero_at(c, kBinaryScale + 1));
  const float a_scale = float_scale(c, kA + 1) / y_scale, b_scale = float_scale(c, kB + 1) / y_scale;
  reference_binary(c, [&](float a, float b) { return a * a_scale + b * b_scale + zero; });
}

void reference_mul(const ReferenceContext& c) {
  const float factor = quantized_factor(float_scale(c, kA + 1), float_scale(c, kB + 1), float_scale(c, kBinaryScale));
  const float zero = static_cast<float>(zero_at(c, kBinaryScale + 1));
  reference_binary(c, [&](float a, float b) { return a * b * factor + zero; });
}

// ------------------------------------------------------------------------------------------------------ Where --

enum : int { kCondition = 0, kTrue = 1, kFalse = 4, kWhereScale = 7 };

DType where_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[kTrue]; }

void infer_where(InferContext& c) {
  require_dtype(c, kCondition, dtype_bit(DType::kBool));
  require_quantized(c, kTrue, kTrue + 1, kTrue + 2, 1, kFloat);
  require_quantized(c, kFalse, kFalse + 1, kFalse + 2, 1, kFloat);
  require_zero_point(c, kFalse, c.inputs[kTrue].dtype);
  require_quantized_output(c, kWhereScale, c.inputs[kTrue].dtype);
  c.outputs[0].shape = broadcast_partial(broadcast_partial(c.shape(kCondition), c.shape(kTrue)), c.shape(kFalse));
}

void reference_where(const ReferenceContext& c) {
  const Shape& out = c.output().desc.shape;
  const auto strides = [&](int input) { return broadcast_strides(c.input(input).desc.shape, out); };
  walk<3>(out, {strides(kCondition), strides(kTrue), strides(kFalse)}, [&](std::int64_t i, const std::int64_t* at) {
    const bool first = c.input(kCondition).as<std::uint8_t>()[at[0]] != 0;
    put_quantized(c, kWhereScale, i, first ? dequantized_at(c, kTrue, at[1]) : dequantized_at(c, kFalse, at[2]));
  });
}

// ------------------------------------------------------------------------------------------------ one operand --

enum : int { kX = 0, kUnaryScale = 3 };

void infer_unary(InferContext& c) {
  require_input(c, kUnaryScale);
  require_quantized(c, kX, kX + 1, kX + 2, 1, kFloat);
  require_quantized_output(c, kUnaryScale, c.inputs[kX].dtype);
  infer_same_shape(c);
}

double sigmoid(double x, double) { return 1 / (1 + std::exp(-x)); }
double leaky_relu(double x, double alpha) { return x < 0 ? alpha * x : x; }

template <double (*kFunction)(double, double)>
void reference_unary(const ReferenceContext& c) {
  const double alpha = c.node.op->attributes.empty() ? 0 : static_cast<double>(attr_float(c.node, 0));
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    put_quantized(c, kUnaryScale, i, kFunction(dequantized_at(c, kX, i), alpha));
  }
}

constexpr const char* kDomain = "com.microsoft";
constexpr std::uint32_t kBool = dtype_bit(DType::kBool);
constexpr AttributeSpec kAlpha[] = {float_attribute("alpha", 0.01f)};
constexpr OpDef kOps[] = {
    {.name = "QLinearAdd",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 8,
     .dtypes = kByteDtypes,
     .infer = infer_binary,
     .reference = reference_add},
    {.name = "QLinearMul",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 8,
     .dtypes = kByteDtypes,
     .infer = infer_binary,
     .reference = reference_mul},
    {.name = "QLinearWhere",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 9,
     .max_inputs = 9,
     .dtypes = kBool,
     .output_dtype = where_dtype,
     .infer = infer_where,
     .reference = reference_where},
    {.name = "QLinearSigmoid",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 5,
     .dtypes = kByteDtypes,
     .infer = infer_unary,
     .reference = reference_unary<sigmoid>},
    {.name = "QLinearLeakyRelu",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 5,
     .attributes = kAlpha,
     .dtypes = kByteDtypes,
     .infer = infer_unary,
     .reference = reference_unary<leaky_relu>},
};

}  // namespace

extern const OpFamily quantized_elementwise_family;
const OpFamily quantized_elementwise_family = {kOps};

}  // namespace evn
