// GlobalAveragePool, GlobalMaxPool, GlobalLpPool: the mean, the maximum or the p-norm of each plane; x [N, C, spatial...] -> y [N,
// C, 1...]. A NaN in a plane gives NaN. Of a plane without elements the mean is NaN, the maximum -infinity and the norm 0. dtypes:
// floating point. Failures: a rank below 2, p below 1. Tolerance: rtol 1e-5, maximum exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_global(InferContext& c) {
  require_rank(c, 0, 2);
  Shape out = c.shape(0);
  for (int i = 2; i < out.rank(); ++i) out[i] = 1;
  c.outputs[0].shape = out;
}

// finish(fold(... fold(first, x0) ..., xn)) of each plane, in double.
template <typename Fold, typename Finish>
void fold_planes(const ReferenceContext& c, double first, Fold&& fold, Finish&& finish) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t planes = x.elements(0, 2);
  const std::int64_t size = x.elements(2, x.rank());
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t p = 0; p < planes; ++p) {
      cancellation_point();
      double value = first;
      for (std::int64_t i = 0; i < size; ++i) {
        cancellation_point();
        value = fold(value, static_cast<double>(c.input(0).as<T>()[p * size + i]));
      }
      c.output().as<T>()[p] = static_cast<T>(finish(value, size));
    }
  });
}

void reference_average(const ReferenceContext& c) {
  fold_planes(
      c, 0, [](double a, double x) { return a + x; }, [](double a, std::int64_t n) { return a / static_cast<double>(n); });
}

void reference_max(const ReferenceContext& c) {
  fold_planes(
      c, -std::numeric_limits<double>::infinity(), [](double a, double x) { return std::isnan(a) || a > x ? a : x; },
      [](double a, std::int64_t) { return a; });
}

void infer_norm(InferContext& c) {
  if (attr_int(c.node, 0) < 1) fail(EVN_ERROR_INVALID_MODEL, "p is %lld", static_cast<long long>(attr_int(c.node, 0)));
  infer_global(c);
}

void reference_norm(const ReferenceContext& c) {
  const auto p = static_cast<double>(attr_int(c.node, 0));
  fold_planes(
      c, 0, [p](double a, double x) { return a + std::pow(std::fabs(x), p); },
      [p](double a, std::int64_t) { return std::pow(a, 1 / p); });
}

constexpr AttributeSpec kNorm[] = {int_attribute("p", 2)};
constexpr OpDef kOps[] = {
    {.name = "GlobalAveragePool",
     .since = 1,
     .dtypes = kFloats,
     .infer = infer_global,
     .reference = reference_average,
     .tolerance = {1e-5, 1e-6}},
    {.name = "GlobalMaxPool", .since = 1, .dtypes = kFloats, .infer = infer_global, .reference = reference_max},
    {.name = "GlobalLpPool",
     .since = 2,
     .attributes = kNorm,
     .dtypes = kFloats,
     .infer = infer_norm,
     .reference = reference_norm,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily global_pool_family;
const OpFamily global_pool_family = {kOps};

}  // namespace evn
