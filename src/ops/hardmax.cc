// Hardmax: 1 at the first largest element along `axis`, 0 elsewhere. Before opset 13 over all axes from `axis` on as if they were
// one. NaN is the largest.
// dtypes: floating point. Failures: axis outside the rank. Exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_hardmax(InferContext& c) {
  normalize_axis(attr_int(c.node, 0), c.shape(0).rank());
  infer_same_shape(c);
}

void reference_hardmax(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  const bool one_axis = c.node.op->since >= 13;
  const std::int64_t length = one_axis ? x[axis] : x.elements(axis, x.rank());
  const std::int64_t inner = one_axis ? x.elements(axis + 1, x.rank()) : 1;
  if (x.elements() == 0) return;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t row = 0; row < x.elements() / length; ++row) {
      cancellation_point();
      const std::int64_t begin = row / inner * length * inner + row % inner;
      const T* from = c.input(0).as<T>() + begin;
      T* to = c.output().as<T>() + begin;
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < length; ++i) {
        cancellation_point();
        const T top = from[best * inner];
        if (from[i * inner] > top || (std::isnan(from[i * inner]) && !std::isnan(top))) best = i;
      }
      for (std::int64_t i = 0; i < length; ++i) {
        cancellation_point();
        to[i * inner] = i == best ? 1 : 0;
      }
    }
  });
}

constexpr AttributeSpec kAxis1[] = {int_attribute("axis", 1)};
constexpr AttributeSpec kAxis13[] = {int_attribute("axis", -1)};
constexpr OpDef kOps[] = {
    {.name = "Hardmax",
     .since = 1,
     .attributes = kAxis1,
     .dtypes = kFloats,
     .infer = infer_hardmax,
     .reference = reference_hardmax},
    {.name = "Hardmax",
     .since = 13,
     .attributes = kAxis13,
     .dtypes = kFloats,
     .infer = infer_hardmax,
     .reference = reference_hardmax},
};

}  // namespace

extern const OpFamily hardmax_family;
const OpFamily hardmax_family = {kOps};

}  // namespace evn
