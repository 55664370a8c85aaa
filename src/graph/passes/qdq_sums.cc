#include "graph/passes/qdq_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/cancel.h"

namespace evn {

static double largest(const Quantization& q) {
  const auto [low, high] = std::minmax_element(q.zeros.begin(), q.zeros.end());
  return std::max(q.most() - *low, *high - q.least());
}

double any_sum(const ByteWeight& w, const Quantization& x, int axis) {
  const Shape& shape = w.weight->desc.shape;
  return shape[axis] == 0 ? 0 : static_cast<double>(shape.elements() / shape[axis]) * largest(x) * largest(w.q);
}

std::vector<double> largest_sums(const ByteWeight& w, const Quantization& x, int axis) {
  const Shape& shape = w.weight->desc.shape;
  const std::int64_t count = shape[axis], inner = shape.elements(axis + 1, shape.rank()), all = shape.elements();
  std::vector<std::int64_t> sums(static_cast<std::size_t>(count));
  const auto* bytes = static_cast<const std::uint8_t*>(w.weight->bytes());
  const bool is_signed = w.q.dtype == DType::kInt8;
  for (std::int64_t i = 0; i < all; ++i) {
    cancellation_point();
    const auto at = static_cast<std::size_t>(i / inner % count);
    const std::int32_t b = is_signed ? static_cast<std::int8_t>(bytes[i]) : bytes[i];
    sums[at] += std::abs(b - w.q.zeros[w.q.zeros.size() > 1 ? at : 0]);
  }
  std::vector<double> most;
  for (const std::int64_t sum : sums) most.push_back(static_cast<double>(sum) * largest(x));
  return most;
}

double sum_scale(const Quantization& x, const ByteWeight& w, std::size_t column) {
  return static_cast<double>(x.scales[0]) * static_cast<double>(w.q.scales[w.q.single() ? 0 : column]);
}

bool is_fine(const Quantization& x, const ByteWeight& w, const Quantization& y) {
  for (std::size_t i = 0; i < w.q.scales.size(); ++i) {
    cancellation_point();
    if (!(sum_scale(x, w, i) <= static_cast<double>(y.scales[0]))) return false;
  }
  return true;
}

}  // namespace evn
