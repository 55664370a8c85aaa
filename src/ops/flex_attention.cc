// FlexScores and FlexOutput: what is left of a FlexAttention once its bodies stand among the other nodes. Not operators of the
// format.
//   FlexScores: scores[b,h,l,s] = scale * sum over d of Q[b,h,l,d] K[b,h / g,s,d], g query heads to each head of K; scale is 1 /
//   sqrt(D)
//     where it is not given, in the type that `softmax_precision` says (0: float64 for float64, else float32).
//   FlexOutput: Y[b,h,l,v] = sum over s of P[b,h,l,s] V[b,h / g,s,v], in the type of V.
// dtypes: floating. Failures: ranks other than 4, heads that do not divide, unlike batches, lengths or depths.
// Tolerance: of a product.
#include <cmath>

#include "ops/flex_attention.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::uint32_t kDtypes = kFloats | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

enum : int { kScale, kPrecision };

template <typename F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::kFloat16) return f(Float16{});
  if (dtype == DType::kBfloat16) return f(Bfloat16{});
  dispatch_floats(dtype, f);
}

double get(const ConstTensor& x, std::int64_t i) {
  double value = 0;
  with_type(x.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) value = x.as<T>()[i];
    else value = x.as<T>()[i].value();
  });
  return value;
}

void put(const MutableTensor& y, std::int64_t i, double x) {
  with_type(y.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) y.as<T>()[i] = static_cast<T>(x);
    else y.as<T>()[i] = T::from(x);
  });
}

void require_heads(std::int64_t queries, std::int64_t heads) {
  if (queries >= 0 && heads >= 0 && (heads == 0 ? queries != 0 : queries % heads != 0)) {
    fail(EVN_ERROR_INVALID_MODEL, "%lld query heads are no multiple of %lld", static_cast<long long>(queries),
         static_cast<long long>(heads));
  }
}

DType score_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t precision = attr_int(node, kPrecision);
  if (precision == 0) return inputs[0] == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (precision < 0 || precision >= 32 || (kDtypes >> precision & 1u) == 0) {
    fail(EVN_ERROR_INVALID_MODEL, "softmax_precision %lld is no floating type", static_cast<long long>(precision));
  }
  return static_cast<DType>(precision);
}

void infer_scores(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 4, 4);
  require_rank(c, 1, 4, 4);
  const Shape &q = c.shape(0), &k = c.shape(1);
  require_dim(k[0], q[0], 1);
  require_dim(k[3], q[3], 1);
  require_heads(q[1], k[1]);
  c.outputs[0].shape = {q[0], q[1], q[2], k[2]};
}

void reference_scores(const ReferenceContext& c) {
  const Shape &q = c.input(0).desc.shape, &k = c.input(1).desc.shape;
  const std::int64_t depth = q[3];
  const double given = attr_float(c.node, kScale);
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(depth));
  const std::int64_t group = k[1] == 0 ? 1 : q[1] / k[1];
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < q[0]; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < q[1]; ++h) {
      cancellation_point();
      for (std::int64_t l = 0; l < q[2]; ++l) {
        cancellation_point();
        for (std::int64_t s = 0; s < k[2]; ++s, ++i) {
          cancellation_point();
          double sum = 0;
          for (std::int64_t d = 0; d < depth; ++d) {
            cancellation_point();
            sum += get(c.input(0), ((b * q[1] + h) * q[2] + l) * depth + d) *
                   get(c.input(1), ((b * k[1] + h / group) * k[2] + s) * depth + d);
          }
          put(c.output(), i, scale * sum);
        }
      }
    }
  }
}

DType value_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[1]; }

void infer_output(InferContext& c) {
  require_dtype(c, 1, kDtypes);
  require_rank(c, 0, 4, 4);
  require_rank(c, 1, 4, 4);
  const Shape &p = c.shape(0), &v = c.shape(1);
  require_dim(v[0], p[0], 1);
  require_dim(v[2], p[3], 1);
  require_heads(p[1], v[1]);
  c.outputs[0].shape = {p[0], p[1], p[2], v[3]};
}

void reference_output(const ReferenceContext& c) {
  const Shape &p = c.input(0).desc.shape, &v = c.input(1).desc.shape;
  const std::int64_t group = v[1] == 0 ? 1 : p[1] / v[1];
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < p[0]; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < p[1]; ++h) {
      cancellation_point();
      for (std::int64_t l = 0; l < p[2]; ++l) {
        cancellation_point();
        for (std::int64_t d = 0; d < v[3]; ++d, ++i) {
          cancellation_point();
          double sum = 0;
          for (std::int64_t s = 0; s < p[3]; ++s) {
            cancellation_point();
            sum += get(c.input(0), ((b * p[1] + h) * p[2] + l) * p[3] + s) *
                   get(c.input(1), ((b * v[1] + h / group) * v[2] + s) * v[3] + d);
          }
          put(c.output(), i, sum);
        }
      }
    }
  }
}

constexpr AttributeSpec kScores[] = {float_attribute("scale", 0), int_attribute("softmax_precision", 0)};
constexpr Tolerance kTolerance = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = kFlexScores,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kScores,
     .dtypes = kDtypes,
     .output_dtype = score_dtype,
     .infer = infer_scores,
     .reference = reference_scores,
     .tolerance = kTolerance},
    {.name = kFlexOutput,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kDtypes,
     .output_dtype = value_dtype,
     .infer = infer_output,
     .reference = reference_output,
     .tolerance = kTolerance},
};

}  // namespace

extern const OpFamily flex_attention_family;
const OpFamily flex_attention_family = {kOps};

}  // namespace evn
