// Det: the determinant of the square matrices in the last two axes, by elimination with row pivots. Of a 0 x 0 matrix it is 1.
// Inverse (com.microsoft): their inverses, in the same way. Of a singular matrix it has infinities and NaN.
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
  const auto row_at = [&](std::int64_t row) { return m.data() + row * n; };
  double result = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    double* const top = row_at(k);
    std::int64_t pivot = k;
    each_element(n - k, [&](std::int64_t i) {
      if (std::fabs(row_at(k + i)[k]) > std::fabs(row_at(pivot)[k])) pivot = k + i;
    });
    if (row_at(pivot)[k] == 0) return 0;
    if (pivot != k) {
      double* const other = row_at(pivot);
      each_element(n - k, [&](std::int64_t i) { std::swap(other[k + i], top[k + i]); });
      result = -result;
    }
    result *= top[k];
    for (std::int64_t row = k + 1; row < n; ++row) {
      double* const to = row_at(row);
      const double factor = to[k] / top[k];
      each_element(n - k - 1, [&](std::int64_t i) { to[k + 1 + i] -= factor * top[k + 1 + i]; });
    }
  }
  return result;
}

// A part is a matrix.
std::int64_t parts_of_det(const ReferenceContext& c) { return c.output().desc.shape.elements(); }

void reference_det(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t n = x[x.rank() - 1];
  const std::int64_t last = std::min(c.end, parts_of_det(c));
  if (c.begin >= last) return;
  std::vector<double> matrix(static_cast<std::size_t>(n * n));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = c.begin; i < last; ++i) {
      cancellation_point();
      copy_in_pieces(c.input(0).as<T>() + i * n * n, n * n, matrix.data());
      c.output().as<T>()[i] = static_cast<T>(determinant(matrix, n));
    }
  });
}

void infer_inverse(InferContext& c) {
  infer_det(c);
  infer_same_shape(c);
}

// Turns `m` into the identity by steps that turn the identity, which stands in `inverse`, into its inverse.
void invert(std::vector<double>& m, std::vector<double>& inverse, std::int64_t n) {
  const auto at = [&](std::int64_t row, std::int64_t column) { return static_cast<std::size_t>(row * n + column); };
  for (std::int64_t k = 0; k < n; ++k) {
    cancellation_point();
    std::int64_t pivot = k;
    for (std::int64_t row = k + 1; row < n; ++row) {
      cancellation_point();
      if (std::fabs(m[at(row, k)]) > std::fabs(m[at(pivot, k)])) pivot = row;
    }
    const double divisor = m[at(pivot, k)];
    for (std::int64_t column = 0; column < n; ++column) {
      cancellation_point();
      for (std::vector<double>* side : {&m, &inverse}) {
        std::swap((*side)[at(pivot, column)], (*side)[at(k, column)]);
        (*side)[at(k, column)] /= divisor;
      }
    }
    for (std::int64_t row = 0; row < n; ++row) {
      cancellation_point();
      const double factor = m[at(row, k)];
      if (row == k || factor == 0) continue;
      for (std::int64_t column = 0; column < n; ++column) {
        cancellation_point();
        m[at(row, column)] -= factor * m[at(k, column)];
        inverse[at(row, column)] -= factor * inverse[at(k, column)];
      }
    }
  }
}

void reference_inverse(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t n = x[x.rank() - 1];
  if (x.elements() == 0) return;
  std::vector<double> matrix(static_cast<std::size_t>(n * n));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t begin = 0; begin < x.elements(); begin += n * n) {
      cancellation_point();
      copy_in_pieces(c.input(0).as<T>() + begin, n * n, matrix.data());
      std::vector<double> inverse(matrix.size(), 0.0);
      for (std::int64_t i = 0; i < n; ++i) {
        cancellation_point();
        inverse[static_cast<std::size_t>(i * (n + 1))] = 1;
      }
      invert(matrix, inverse, n);
      copy_in_pieces(inverse.data(), n * n, c.output().as<T>() + begin);
    }
  });
}

constexpr OpDef kOps[] = {
    {.name = "Det",
     .since = 11,
     .dtypes = kFloats,
     .infer = infer_det,
     .reference = reference_det,
     .tolerance = {1e-5, 1e-6},
     .parts = parts_of_det},
    {.name = "Inverse",
     .domain = "com.microsoft",
     .since = 1,
     .dtypes = kFloats,
     .infer = infer_inverse,
     .reference = reference_inverse,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily det_family;
const OpFamily det_family = {kOps};

}  // namespace evn
