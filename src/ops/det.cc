// Det: the determinant of the square matrices in the last two axes, by elimination with row pivots. Of a 0 x 0 matrix it is 1.
// dtypes: floating point. Failures: a rank below 2, matrices that are not square. Tolerance: rtol 1e-5, atol 1e-6.
#include <algorithm>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_det(InferContext& c) {
  require_rank(c, 0, 2);
  const Shape& x = c.shape(0);
  require_dim(x[x.rank() - 2], x[x.rank() - 1], 0);
  c.outputs[0].shape = Shape(x.dims().first(static_cast<std::size_t>(x.rank() - 2)));
}

// Destroys `m`.
double determinant(std::vector<double>& m, std::int64_t n) {
  const auto at = [&](std::int64_t row, std::int64_t column) -> double& { return m[static_cast<std::size_t>(row * n + column)]; };
  double result = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t row = k + 1; row < n; ++row) {
      if (std::fabs(at(row, k)) > std::fabs(at(pivot, k))) pivot = row;
    }
    if (at(pivot, k) == 0) return 0;
    if (pivot != k) {
      for (std::int64_t column = 0; column < n; ++column) std::swap(at(pivot, column), at(k, column));
      result = -result;
    }
    result *= at(k, k);
    for (std::int64_t row = k + 1; row < n; ++row) {
      const double factor = at(row, k) / at(k, k);
      for (std::int64_t column = k; column < n; ++column) at(row, column) -= factor * at(k, column);
    }
  }
  return result;
}

void reference_det(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t n = x[x.rank() - 1];
  if (c.output().desc.shape.elements() == 0) return;
  std::vector<double> matrix(static_cast<std::size_t>(n * n));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      std::copy_n(c.input(0).as<T>() + i * n * n, n * n, matrix.begin());
      c.output().as<T>()[i] = static_cast<T>(determinant(matrix, n));
    }
  });
}

constexpr OpDef kOps[] = {
    {"Det", "", 11, 1, 1, 1, 1, {}, kFloats, 0, 0, nullptr, infer_det, reference_det, {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily det_family;
const OpFamily det_family = {kOps};

}  // namespace evn
