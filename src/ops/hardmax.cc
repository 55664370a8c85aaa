// Hardmax: 1 at the first largest element along `axis`, 0 elsewhere. Before opset 13 over all axes from `axis` on as if they were
// one. NaN is the largest.
// dtypes: floating point. Failures: axis outside the rank. Exact.
#include "ops/infra/check.h"
#include "ops/infra/first_largest.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_hardmax(InferContext& c) {
  normalize_axis(attr_int(c.node, 0), c.shape(0).rank());
  infer_same_shape(c);
}

// Elements that compete with each other: `count` lines of `length` elements, `inner` apart.
struct Lines {
  std::int64_t count, length, inner;
};

Lines lines_of(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  const bool one_axis = c.node.op->since >= 13;
  const std::int64_t length = one_axis ? x[axis] : x.elements(axis, x.rank());
  const std::int64_t inner = one_axis ? x.elements(axis + 1, x.rank()) : 1;
  return {length > 0 ? x.elements() / length : 0, length, inner};
}

std::int64_t parts_of_hardmax(const ReferenceContext& c) { return lines_of(c).count; }

void reference_hardmax(const ReferenceContext& c) {
  const Lines lines = lines_of(c);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t line = c.begin; line < std::min(c.end, lines.count); ++line) {
      const std::int64_t begin = line / lines.inner * lines.length * lines.inner + line % lines.inner;
      const T* from = c.input(0).as<T>() + begin;
      T* to = c.output().as<T>() + begin;
      if (lines.inner == 1) {
        fill_in_pieces(to, 0, static_cast<std::size_t>(lines.length) * sizeof(T));
        to[first_extreme(from, lines.length)] = 1;
        continue;
      }
      std::int64_t best = 0;
      T top = from[0];
      in_pieces(lines.length, 1, [&](std::int64_t i, std::int64_t end) {
        for (; i < end; ++i) {
          const T x = from[i * lines.inner];
          to[i * lines.inner] = 0;
          if (x <= top || std::isnan(top)) continue;
          best = i;
          top = x;
        }
      });
      to[best * lines.inner] = 1;
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
     .reference = reference_hardmax,
     .parts = parts_of_hardmax},
    {.name = "Hardmax",
     .since = 13,
     .attributes = kAxis13,
     .dtypes = kFloats,
     .infer = infer_hardmax,
     .reference = reference_hardmax,
     .parts = parts_of_hardmax},
};

}  // namespace

extern const OpFamily hardmax_family;
const OpFamily hardmax_family = {kOps};

}  // namespace evn
