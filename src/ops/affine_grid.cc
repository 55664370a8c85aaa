// AffineGrid: positions for GridSample. Each point of a regular grid from -1 to 1 in each of two or three axes, x first, is mapped
// by the affine matrix of its batch element: y = theta * (x, y, [z,] 1).
//   inputs      theta [N, 2, 3] or [N, 3, 4]; size: [N, C, H, W] or [N, C, D, H, W]
//   attributes  align_corners: -1 and 1 are the centres of the corner pixels, else their outer edges
// dtypes: floating point; size int64. Failures: ranks, sizes and dims that do not fit. Tolerance: rtol 1e-5, atol 1e-6.
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_grid(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 0, 3, 3);
  require_rank(c, 1, 1, 1);
  const Shape& theta = c.shape(0);
  const std::int64_t length = c.shape(1)[0];
  const std::int64_t spatial = theta[1] >= 0 ? theta[1] : theta[2] >= 0 ? theta[2] - 1 : length - 2;
  if (spatial < 0) return c.set_unknown_rank(0);
  if (spatial != 2 && spatial != 3) fail(EVN_ERROR_INVALID_MODEL, "a grid of %lld axes", static_cast<long long>(spatial));
  require_dim(theta[1], spatial, 0);
  require_dim(theta[2], spatial + 1, 0);
  require_vector(c, 1, spatial + 2);
  InferContext::Ints size;
  const bool known = c.int_value(1, &size);
  Shape y = {theta[0]};
  if (known) require_dim(theta[0], size.v[0], 0);
  for (int i = 0; i < spatial; ++i) {
    if (known && size.v[i + 2] < 0) fail(EVN_ERROR_INVALID_MODEL, "size %d is negative", i + 2);
    y.push_back(known ? size.v[i + 2] : -1);
  }
  y.push_back(spatial);
  c.outputs[0].shape = y;
}

double coordinate(std::int64_t i, std::int64_t count, bool align) {
  if (align) return count == 1 ? 0 : -1 + 2 * static_cast<double>(i) / static_cast<double>(count - 1);
  return (2 * static_cast<double>(i) + 1) / static_cast<double>(count) - 1;
}

template <typename T>
void grid(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  const int spatial = y.rank() - 2;
  const bool align = attr_int(c.node, 0) != 0;
  const std::int64_t points = y.elements(1, 1 + spatial);
  T* out = c.output().as<T>();
  for (std::int64_t n = 0; n < y[0]; ++n) {
    cancellation_point();
    const T* theta = c.input(0).as<T>() + n * spatial * (spatial + 1);
    for (std::int64_t p = 0; p < points; ++p) {
      cancellation_point();
      double at[4] = {};  // x is the last axis
      std::int64_t rest = p;
      for (int i = 0; i < spatial; ++i) {
        const std::int64_t count = y[spatial - i];
        at[i] = coordinate(rest % count, count, align);
        rest /= count;
      }
      at[spatial] = 1;
      for (int row = 0; row < spatial; ++row) {
        double sum = 0;
        for (int i = 0; i <= spatial; ++i) sum += static_cast<double>(theta[row * (spatial + 1) + i]) * at[i];
        *out++ = static_cast<T>(sum);
      }
    }
  }
}

void reference_grid(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { grid<decltype(zero)>(c); });
}

constexpr AttributeSpec kAlign[] = {int_attribute("align_corners", 0)};
constexpr OpDef kOps[] = {
    {.name = "AffineGrid",
     .since = 20,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAlign,
     .dtypes = kFloats,
     .value_inputs = 2,
     .infer = infer_grid,
     .reference = reference_grid,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily affine_grid_family;
const OpFamily affine_grid_family = {kOps};

}  // namespace evn
