#include "quant/range.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/cancel.h"

namespace evn {
namespace {

constexpr int kLevels = 255;  // steps of 8 bits
constexpr int kTrials = 40;   // ranges that are tried, from a fifth of what was seen to all of it
constexpr double kLeastPart = 0.2;
constexpr std::int64_t kBinsWork = 2 * Observer::kHalf;  // work of a loop over all bins

double center(const Observer& seen, int bin) { return (bin - Observer::kHalf + 0.5) * seen.width(); }

// Calls body(range) for ranges around zero, the widest first; returns the one with the least result.
template <typename F>
Range least(const Range& all, F&& body) {
  Range best = all;
  double least_cost = body(all);
  for (int t = 1; t < kTrials; ++t) {
    const double part = 1 - (1 - kLeastPart) * t / (kTrials - 1);
    const Range r{static_cast<float>(all.low * part), static_cast<float>(all.high * part)};
    const double cost = body(r);
    if (cost < least_cost) {
      least_cost = cost;
      best = r;
    }
  }
  return best;
}

double square_error(const Observer& seen, const Range& r) {
  cancellation_point(kBinsWork);
  const double step = (static_cast<double>(r.high) - r.low) / kLevels;
  double error = 0;
  for (int i = 0; i < 2 * Observer::kHalf; ++i) {
    const std::uint64_t n = seen.bins()[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    const double x = center(seen, i);
    const double inside = std::clamp(x, static_cast<double>(r.low), static_cast<double>(r.high));
    const double image = step > 0 ? std::nearbyint((inside - r.low) / step) * step + r.low : 0;
    error += static_cast<double>(n) * ((x - image) * (x - image) + (x == inside ? 0 : step * step / 12));
  }
  return error;
}

// Divergence of what was seen, with what is outside moved to the edge, from its image in kLevels steps, each spread evenly
// over the bins of the step that are not empty. Zero has a step of its own in every range: what a Relu leaves there says nothing,
// and spread over a step's bins it would let the narrowest range win. Its bin counts as the larger of its neighbours.
double divergence(const Observer& seen, const Range& r) {
  cancellation_point(kBinsWork);
  const int first = std::clamp(static_cast<int>(std::floor(r.low / seen.width())) + Observer::kHalf, 0, 2 * Observer::kHalf - 1);
  const int last =
      std::clamp(static_cast<int>(std::floor(r.high / seen.width())) + Observer::kHalf, first, 2 * Observer::kHalf - 1);
  const int bins = last - first + 1;
  std::vector<double> p(static_cast<std::size_t>(bins)), inside(static_cast<std::size_t>(bins));
  double total = 0, kept = 0;
  for (int i = 0; i < 2 * Observer::kHalf; ++i) {
    const auto at = [&](int bin) { return static_cast<double>(seen.bins()[static_cast<std::size_t>(bin)]); };
    const double n = i == Observer::kHalf ? std::min(at(i), std::max(at(i - 1), at(i + 1))) : at(i);
    p[static_cast<std::size_t>(std::clamp(i - first, 0, bins - 1))] += n;
    if (i >= first && i <= last) {
      inside[static_cast<std::size_t>(i - first)] = n;
      kept += n;
    }
    total += n;
  }
  if (kept == 0) return DBL_MAX;
  const int levels = std::min(kLevels, bins);
  double result = 0;
  for (int level = 0; level < levels; ++level) {
    const int begin = static_cast<int>(std::int64_t{bins} * level / levels),
              end = static_cast<int>(std::int64_t{bins} * (level + 1) / levels);
    cancellation_point((end - begin) * kFunctionWork);
    double sum = 0;
    int used = 0;
    for (int i = begin; i < end; ++i) {
      sum += inside[static_cast<std::size_t>(i)];
      used += inside[static_cast<std::size_t>(i)] > 0 ? 1 : 0;
    }
    for (int i = begin; i < end; ++i) {
      const double a = p[static_cast<std::size_t>(i)] / total;
      if (a == 0) continue;
      const double b = used > 0 ? sum / used / kept : 0;
      result += a * std::log(a / std::max(b, 1e-12));
    }
  }
  return result;
}

Range inside_percentile(const Observer& seen, double percentile) {
  cancellation_point(2 * kBinsWork);
  const double outside = static_cast<double>(seen.count()) * (1 - percentile / 100) / 2;
  Range r{seen.low(), seen.high()};
  double n = 0;
  for (int i = 0; i < 2 * Observer::kHalf; ++i) {
    n += static_cast<double>(seen.bins()[static_cast<std::size_t>(i)]);
    if (n <= outside) continue;
    r.low = std::max(r.low, static_cast<float>((i - Observer::kHalf) * seen.width()));
    break;
  }
  n = 0;
  for (int i = 2 * Observer::kHalf - 1; i >= 0; --i) {
    n += static_cast<double>(seen.bins()[static_cast<std::size_t>(i)]);
    if (n <= outside) continue;
    r.high = std::min(r.high, static_cast<float>((i + 1 - Observer::kHalf) * seen.width()));
    break;
  }
  return r;
}

}  // namespace

Range choose_range(const Observer& seen, Calibration calibration, double percentile) {
  Range all{std::min(seen.low(), 0.0f), std::max(seen.high(), 0.0f)};
  if (!seen.bins().empty() && all.high > all.low) {
    switch (calibration) {
      case Calibration::kMinMax: break;
      case Calibration::kPercentile: all = inside_percentile(seen, percentile); break;
      case Calibration::kEntropy: all = least(all, [&](const Range& r) { return divergence(seen, r); }); break;
      case Calibration::kMse: all = least(all, [&](const Range& r) { return square_error(seen, r); }); break;
    }
  }
  return {std::min(all.low, 0.0f), std::max(all.high, 0.0f)};
}

QuantParams params_of(const Range& range, DType dtype) {
  const double low = std::min(range.low, 0.0f), high = std::max(range.high, 0.0f);
  if (dtype == DType::kInt8) {
    const double largest = std::max(-low, high);
    return largest == 0 ? QuantParams{} : QuantParams{std::max(static_cast<float>(largest / 127), FLT_MIN), 0};
  }
  if (high == low) return {};
  const float scale = std::max(static_cast<float>((high - low) / kLevels), FLT_MIN);
  return {scale, static_cast<std::int32_t>(std::clamp(std::nearbyint(-low / scale), 0.0, 255.0))};
}

}  // namespace evn
