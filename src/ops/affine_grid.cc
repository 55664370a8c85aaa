// AffineGrid: positions for GridSample. Each point of a regular grid from -1 to 1 in each of two or three axes, x first, is mapped
// by the affine matrix of its batch element: y = theta * (x, y, [z,] 1).
//   inputs      theta [N, 2, 3] or [N, 3, 4]; size: [N, C, H, W] or [N, C, D, H, W]
//   attributes  align_corners: -1 and 1 are the centres of the corner pixels, else their outer edges
// dtypes: floating point; size int64. Failures: ranks, sizes and dims that do not fit. Tolerance: rtol 1e-5, atol 1e-6.
#include <algorithm>
#include <vector>

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

// A part is a line of points along the last axis.
std::int64_t parts_of_grid(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  return y.elements(0, y.rank() - 2);
}

template <typename T, int kSpatial>
void grid_line(const T* x, std::int64_t width, const T* slope, const T* base, T* out) {
  T slopes[kSpatial], bases[kSpatial];
  for (int row = 0; row < kSpatial; ++row) {
    slopes[row] = slope[row];
    bases[row] = base[row];
  }
  each_element(width, [&](std::int64_t i) {
    for (int row = 0; row < kSpatial; ++row) out[i * kSpatial + row] = slopes[row] * x[i] + bases[row];
  });
}

template <typename T>
void grid(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  const int spatial = y.rank() - 2;
  const bool align = attr_int(c.node, 0) != 0;
  const std::int64_t width = y[spatial];
  std::vector<T> columns(static_cast<std::size_t>(width));
  each_element(width, [&](std::int64_t i) { columns[static_cast<std::size_t>(i)] = static_cast<T>(coordinate(i, width, align)); });
  const std::int64_t last = std::min(c.end, parts_of_grid(c));
  for (std::int64_t line = c.begin; line < last; ++line) {
    cancellation_point();
    double at[4] = {};  // x is the last axis
    std::int64_t rest = line;
    for (int i = 1; i < spatial; ++i) {
      const std::int64_t count = y[spatial - i];
      at[i] = coordinate(rest % count, count, align);
      rest /= count;
    }
    at[spatial] = 1;
    const T* theta = c.input(0).as<T>() + rest * spatial * (spatial + 1);
    T* const out = c.output().as<T>() + line * width * spatial;
    T slope[3], base[3];
    for (int row = 0; row < spatial; ++row, theta += spatial + 1) {
      double sum = 0;
      for (int i = 1; i <= spatial; ++i) sum += static_cast<double>(theta[i]) * at[i];
      slope[row] = theta[0];
      base[row] = static_cast<T>(sum);
    }
    if (spatial == 2) grid_line<T, 2>(columns.data(), width, slope, base, out);
    else grid_line<T, 3>(columns.data(), width, slope, base, out);
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
     .tolerance = {1e-5, 1e-6},
     .parts = parts_of_grid},
};

}  // namespace

extern const OpFamily affine_grid_family;
const OpFamily affine_grid_family = {kOps};

}  // namespace evn
