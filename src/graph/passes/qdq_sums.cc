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
  const std::int64_t count = shape[axis], inner = shape.elements(axis + 1, shape.rank()), runs = shape.elements(0, axis) * count;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(count));
  const auto* bytes = static_cast<const std::uint8_t*>(w.weight->bytes());
  const bool is_signed = w.q.dtype == DType::kInt8, single = w.q.zeros.size() <= 1;
  std::size_t at = 0;  // what a run of `inner` bytes is added to
  for (std::int64_t run = 0; run < runs; ++run, bytes += inner, at = at + 1 == sums.size() ? 0 : at + 1) {
    const std::int32_t zero = w.q.zeros[single ? 0 : at];
    std::int64_t sum = 0;
    in_pieces(inner, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        sum += std::abs((is_signed ? static_cast<std::int8_t>(bytes[i]) : bytes[i]) - zero);
    });
    sums[at] += sum;
  }
  std::vector<double> most;
  for (const std::int64_t sum : sums) most.push_back(static_cast<double>(sum) * largest(x));
  return most;
}

bool sums_fit(const ByteWeight& w, const Quantization& x, int axis) {
  if (any_sum(w, x, axis) <= kMostSum) return true;
  const std::vector<double> sums = largest_sums(w, x, axis);
  return std::all_of(sums.begin(), sums.end(), [](double sum) { return sum <= kMostSum; });
}

bool sums_fit(std::int64_t depth, const Quantization& a, const Quantization& b) {
  return depth >= 0 && static_cast<double>(depth) * largest(a) * largest(b) <= kMostSum;
}

bool softmax_sums_fit(std::int64_t depth, const Quantization& a, const Quantization& b) {
  constexpr std::int64_t kMostDepth = std::int64_t{1} << 23;
  const double terms = static_cast<double>(depth < 0 ? kMostDepth : depth);
  return (1 / static_cast<double>(a.scales[0]) + terms / 2) * largest(b) <= kMostSum;
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
