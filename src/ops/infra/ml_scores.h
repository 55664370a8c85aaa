// What the models of ai.onnx.ml share: rows of features, class labels, and what becomes of a row's scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {

inline constexpr std::uint32_t kFeatureDtypes = kFloats | kIndexDtypes;

// [N, F]; a vector is one row.
inline std::int64_t row_count(const Shape& x) { return x.rank() == 1 ? 1 : x[0]; }
inline std::int64_t feature_count(const Shape& x) { return x[x.rank() - 1]; }

inline void require_rows(const InferContext& c) {
  require_dtype(c, 0, kFeatureDtypes);
  require_rank(c, 0, 1, 2);
}

inline double feature_at(const ConstTensor& x, std::int64_t i) {
  double value = 0;
  dispatch<float, double, std::int64_t, std::int32_t>(x.desc.dtype,
                                                      [&](auto zero) { value = static_cast<double>(x.as<decltype(zero)>()[i]); });
  return value;
}

// ---------------------------------------------------------------------------------------------------------- transforms --

enum class ScoreTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

inline ScoreTransform score_transform(const std::string& name) {
  constexpr const char* kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  for (int i = 0; i < 5; ++i) {
    if (name == kNames[i]) return static_cast<ScoreTransform>(i);
  }
  fail(EVN_ERROR_INVALID_MODEL, "post_transform '%.40s' is not known", name.c_str());
}

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The x that a standard normal variable is below with probability p; NaN outside [0, 1].
inline double probit(double p) {
  if (!(p >= 0 && p <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (p == 0 || p == 1) return p == 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (p > 0.5) return -probit(1 - p);
  // Winitzki's approximation, and then Halley's steps.
  const double t = std::log(4 * p * (1 - p)) / 2;
  const double u = 2 / (3.14159265358979323846 * 0.147) + t;
  double x = -std::sqrt(2 * (std::sqrt(std::max(0.0, u * u - 2 * t / 0.147)) - u));
  for (int i = 0; i < 4; ++i) {
    const double off = (std::erfc(-x / std::sqrt(2.0)) / 2 - p) * std::sqrt(2 * 3.14159265358979323846) * std::exp(x * x / 2);
    x -= off / (1 + x * off / 2);
  }
  return x;
}

// Softmax over the scores; `skip_zeros`: over those that are not 0, which stay 0.
inline void softmax_scores(std::span<double> scores, bool skip_zeros) {
  const auto counts = [&](double s) { return !skip_zeros || std::fabs(s) > 1e-7; };
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double s : scores) {
    cancellation_point();
    top = counts(s) ? std::max(top, s) : top;
  }
  for (double& s : scores) {
    cancellation_point();
    s = counts(s) ? std::exp(s - top) : 0;
    sum += s;
  }
  for (double& s : scores) {
    cancellation_point();
    s = sum > 0 ? s / sum : s;
  }
}

// Transforms a row's scores. One score alone is no distribution: both forms of softmax leave it.
inline void transform_scores(ScoreTransform transform, std::span<double> scores) {
  if (transform == ScoreTransform::kSoftmax || transform == ScoreTransform::kSoftmaxZero) {
    if (scores.size() > 1) softmax_scores(scores, transform == ScoreTransform::kSoftmaxZero);
    return;
  }
  for (double& s : scores) {
    cancellation_point();
    if (transform == ScoreTransform::kLogistic) s = logistic(s);
    if (transform == ScoreTransform::kProbit) s = probit(s);
  }
}

// The scores of two classes from the one, s, that is the second's.
inline void transform_pair(ScoreTransform transform, bool is_probability, double s, std::span<double> pair) {
  const bool opposite = transform == ScoreTransform::kLogistic || !is_probability;
  pair[0] = opposite ? -s : 1 - s;
  pair[1] = s;
  if (transform == ScoreTransform::kLogistic || transform == ScoreTransform::kProbit) transform_scores(transform, pair);
}

// -------------------------------------------------------------------------------------------------------------- labels --

// The labels of the classes: attributes `ints` and `strings`, of which just one is there.
struct ClassLabels {
  std::span<const std::int64_t> ints;
  std::span<const std::string> strings;
  bool are_strings() const { return !strings.empty(); }
  std::size_t count() const { return are_strings() ? strings.size() : ints.size(); }

  void write(const ReferenceContext& c, std::int64_t row, std::size_t label) const {
    if (!c.output(0).present()) return;
    if (are_strings()) {
      c.output(0).as<TextElement>()[row] = c.add_text(strings[label]);
    } else {
      c.output(0).as<std::int64_t>()[row] = ints[label];
    }
  }
};

inline ClassLabels class_labels(const Node& node, int ints, int strings) {
  const ClassLabels labels{attr_ints(node, ints), attr_strings(node, strings)};
  if (labels.ints.empty() == labels.strings.empty()) fail(EVN_ERROR_INVALID_MODEL, "just one list of class labels must be there");
  return labels;
}

// The first of the largest.
inline std::size_t best_class(std::span<const double> scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// The first of the largest among classes that got votes, or among all if none got any.
inline std::size_t voted_class(std::span<const double> scores, const std::vector<bool>& voted) {
  std::size_t best = scores.size();
  for (std::size_t k = 0; k < scores.size(); ++k) {
    cancellation_point();
    if (voted[k] && (best == scores.size() || scores[k] > scores[best])) best = k;
  }
  return best == scores.size() ? best_class(scores) : best;
}

}  // namespace evn
