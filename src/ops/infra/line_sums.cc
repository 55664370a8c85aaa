#include "ops/infra/line_sums.h"

#include <cmath>
#include <type_traits>

#include "base/cancel.h"

namespace evn {
namespace {

constexpr std::int64_t kLanes = 16;  // elements that are taken side by side

template <typename T, typename F>
double sum_terms(const T* x, std::int64_t count, std::int64_t step, F&& term) {
  double sums[kLanes] = {};
  double rest = 0;
  in_pieces(count, 1, [&](std::int64_t i, std::int64_t end) {
    for (; step == 1 && end - i >= kLanes; i += kLanes) {
      for (std::int64_t n = 0; n < kLanes; ++n) sums[n] += term(static_cast<double>(x[i + n]));
    }
    for (; i < end; ++i) rest += term(static_cast<double>(x[i * step]));
  });
  for (const double sum : sums) rest += sum;
  return rest;
}

}  // namespace

template <typename T>
double line_sum(LineSum what, const T* x, std::int64_t count, std::int64_t step, double center) {
  switch (what) {
    case LineSum::kElements: return sum_terms(x, count, step, [=](double v) { return v - center; });
    case LineSum::kMagnitudes: return sum_terms(x, count, step, [=](double v) { return std::fabs(v - center); });
    default: return sum_terms(x, count, step, [=](double v) { return (v - center) * (v - center); });
  }
}

template <typename T>
void normalize_line(const T* x, T* y, std::int64_t count, std::int64_t step, double center, double divisor) {
  // A product by the reciprocal is as good once it is rounded to float.
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  const double factor = 1 / divisor;
  const auto normal = [=](T v) {
    const double distance = static_cast<double>(v) - center;
    return static_cast<T>(kIsFloat ? distance * factor : distance / divisor);
  };
  in_pieces(count, 1, [&](std::int64_t i, std::int64_t end) {
    for (; step == 1 && end - i >= kLanes; i += kLanes) {
      T some[kLanes];
      for (std::int64_t n = 0; n < kLanes; ++n) some[n] = normal(x[i + n]);
      for (std::int64_t n = 0; n < kLanes; ++n) y[i + n] = some[n];
    }
    for (; i < end; ++i) y[i * step] = normal(x[i * step]);
  });
}

template double line_sum(LineSum, const float*, std::int64_t, std::int64_t, double);
template double line_sum(LineSum, const double*, std::int64_t, std::int64_t, double);
template void normalize_line(const float*, float*, std::int64_t, std::int64_t, double, double);
template void normalize_line(const double*, double*, std::int64_t, std::int64_t, double, double);

}  // namespace evn
