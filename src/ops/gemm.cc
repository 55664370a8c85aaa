// Gemm: y = alpha * A' * B' + beta * C, where A' is A or, with transA, its transpose, likewise B'; C (optional from 11) broadcasts
// to the result.
//   A' [M, K], B' [K, N], y [M, N]
// FusedGemm (com.microsoft): act(y), where `activation` names act (infra/fused_activation.h). float32.
// dtypes: floating point, all inputs alike. Failures: ranks other than 2, dims that do not fit, a C that does not broadcast to y.
// Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/gemm.h"

#include "ops/infra/check.h"
#include "ops/infra/fused_activation.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kActivation = GemmAttr::kTransB + 1, kActivationAlpha, kActivationBeta };

void infer_gemm(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_rank(c, 0, 2, 2);
  require_rank(c, 1, 2, 2);
  const bool trans_a = attr_int(c.node, GemmAttr::kTransA) != 0;
  const bool trans_b = attr_int(c.node, GemmAttr::kTransB) != 0;
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  require_dim(b[trans_b ? 1 : 0], a[trans_a ? 0 : 1], 1);
  const Shape out = {a[trans_a ? 1 : 0], b[trans_b ? 0 : 1]};
  if (c.has_input(2)) {
    const Shape both = broadcast_partial(out, c.shape(2));
    if (both.rank() != 2) fail(EVN_ERROR_INVALID_MODEL, "C has a rank above 2");
    for (int i = 0; i < 2; ++i) require_dim(out[i], both[i], 2);
  }
  c.outputs[0].shape = out;
}

template <typename T>
void gemm(const ReferenceContext& c) {
  const Shape& a = c.input(0).desc.shape;
  const Shape& b = c.input(1).desc.shape;
  const Shape& out = c.output().desc.shape;
  const bool trans_a = attr_int(c.node, GemmAttr::kTransA) != 0;
  const bool trans_b = attr_int(c.node, GemmAttr::kTransB) != 0;
  const double alpha = attr_float(c.node, GemmAttr::kAlpha);
  const double beta = attr_float(c.node, GemmAttr::kBeta);
  const std::int64_t k_size = a[trans_a ? 0 : 1];
  const Strides bias = c.has_input(2) ? broadcast_strides(c.input(2).desc.shape, out) : Strides{};
  for (std::int64_t m = 0; m < out[0]; ++m) {
    cancellation_point();
    for (std::int64_t n = 0; n < out[1]; ++n) {
      cancellation_point();
      double sum = 0;
      for (std::int64_t k = 0; k < k_size; ++k) {
        cancellation_point();
        sum += static_cast<double>(c.input(0).as<T>()[trans_a ? k * a[1] + m : m * a[1] + k]) *
               static_cast<double>(c.input(1).as<T>()[trans_b ? n * b[1] + k : k * b[1] + n]);
      }
      const double added = c.has_input(2) ? static_cast<double>(c.input(2).as<T>()[m * bias.step[0] + n * bias.step[1]]) : 0;
      c.output().as<T>()[m * out[1] + n] = static_cast<T>(alpha * sum + (c.has_input(2) ? beta * added : 0));
    }
  }
}

void reference_gemm(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { gemm<decltype(zero)>(c); });
}

EpilogueOp fused_step_of(const Node& node) {
  const float parameters[] = {attr_float(node, kActivationAlpha), attr_float(node, kActivationBeta)};
  return fused_step(attr_string(node, kActivation), parameters);
}

void infer_fused(InferContext& c) {
  infer_gemm(c);
  if (attr_given(c.node, kActivation)) fused_step_of(c.node);
}

void reference_fused(const ReferenceContext& c) {
  gemm<float>(c);
  if (attr_given(c.node, kActivation)) apply_to_all(fused_step_of(c.node), c.output());
}

constexpr AttributeSpec kFused[] = {
    float_attribute("alpha", 1),
    float_attribute("beta", 1),
    int_attribute("transA", 0),
    int_attribute("transB", 0),
    optional_attribute("activation", AttributeType::kString),
    float_attribute("activation_alpha", 0),
    float_attribute("activation_beta", 0),
    float_attribute("activation_gamma", 0),
};
constexpr std::span<const AttributeSpec> kAttributes = std::span<const AttributeSpec>(kFused).first(4);
constexpr OpDef kOps[] = {
    {.name = "Gemm",
     .since = 7,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_gemm,
     .reference = reference_gemm,
     .tolerance = {1e-4, 1e-5}},
    {.name = "FusedGemm",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kFused,
     .dtypes = dtype_bit(DType::kFloat32),
     .infer = infer_fused,
     .reference = reference_fused,
     .tolerance = {1e-4, 1e-5}},
    {.name = "Gemm",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_gemm,
     .reference = reference_gemm,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily gemm_family;
const OpFamily gemm_family = {kOps};

}  // namespace evn
