// What the references of all attention operators share: softmax(softcap(scale * Q K^T) + bias) V, row by row. They differ in where
// rows stand and in what is masked, which the operator's own class says.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"

namespace evn {

struct AttentionSizes {
  std::int64_t batch = 0, heads = 0, kv_heads = 0;  // kv_heads divides heads: each serves several
  std::int64_t queries = 0, keys = 0;               // keys with the past ones
  std::int64_t depth = 0, value_depth = 0;
};

struct AttentionRule {
  double scale = 1;
  double softcap = 0;  // x -> softcap * tanh(x / softcap) where it is not 0
  double (*round)(double) =
      nullptr;  // scores before the softmax and weights after it, to the softmax's own type; nullptr: as they are
};

// 1 / sqrt(depth) where no scale is given.
inline double attention_scale(double given, std::int64_t depth) {
  return given != 0 ? given : 1 / std::sqrt(static_cast<double>(depth));
}

// -1 where the hidden size is not known.
inline std::int64_t split_depth(std::int64_t hidden, std::int64_t heads) {
  if (hidden >= 0 && hidden % heads != 0) fail(EVN_ERROR_INVALID_MODEL, "the heads do not divide the hidden size");
  return hidden < 0 ? -1 : hidden / heads;
}

// Scores to weights, in place. A row whose every score is masked away becomes zeros. The weights of a row and its sink, which
// stands for a key without a value, sum to 1; a sink of -infinity is none.
inline void attention_softmax(std::span<double> row, double largest_bias, double sink) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (largest_bias == -kInfinity) return std::fill(row.begin(), row.end(), 0.0);
  double top = sink;
  for (const double x : row) {
    cancellation_point();
    top = std::max(top, x);
  }
  double sum = sink == -kInfinity ? 0 : std::exp(sink - top);
  for (double& x : row) {
    cancellation_point();
    x = std::exp(x - top);
    sum += x;
  }
  for (double& x : row) {
    cancellation_point();
    x /= sum;
  }
}

// `r` has, for batch b, head h (kv_h of keys and values), query s, key t:
//   q(b, h, s), k(b, kv_h, t), v(b, kv_h, t)   where the row begins
//   y(b, h, s)                                 where its result is written
//   bias(b, h, s, t)                           what is added to the score; -infinity: masked
//   sink(h)                                    see attention_softmax
//   scores(stage, b, h, s, row)                is told the row after: 0 the scaled product, 1 softcap, 2 the bias, 3 the softmax
template <typename Rows>
void attend(const AttentionSizes& z, const AttentionRule& rule, Rows& r) {
  std::vector<double> bias(static_cast<std::size_t>(z.keys)), row(bias.size());
  const auto attend_row = [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t kv_head = h / (z.heads / z.kv_heads);
    const auto* q = r.q(b, h, s);
    double largest_bias = -std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < z.keys; ++t) {
      cancellation_point();
      const auto i = static_cast<std::size_t>(t);
      const auto* k = r.k(b, kv_head, t);
      double sum = 0;
      for (std::int64_t d = 0; d < z.depth; ++d) {
        cancellation_point();
        sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      }
      row[i] = sum * rule.scale;
      bias[i] = r.bias(b, h, s, t);
      largest_bias = std::max(largest_bias, bias[i]);
    }
    r.scores(0, b, h, s, std::span<const double>(row));
    for (double& x : row) {
      cancellation_point();
      if (rule.softcap != 0) x = rule.softcap * std::tanh(x / rule.softcap);
    }
    r.scores(1, b, h, s, std::span<const double>(row));
    for (std::size_t i = 0; i < row.size(); ++i) {
      cancellation_point();
      row[i] = bias[i] == -std::numeric_limits<double>::infinity() ? bias[i] : row[i] + bias[i];  // padding may be NaN
    }
    r.scores(2, b, h, s, std::span<const double>(row));
    const auto round_row = [&] {
      for (std::size_t i = 0; rule.round != nullptr && i < row.size(); ++i) {
        cancellation_point();
        row[i] = rule.round(row[i]);
      }
    };
    round_row();
    attention_softmax(row, largest_bias, r.sink(h));
    round_row();
    r.scores(3, b, h, s, std::span<const double>(row));
    auto* y = r.y(b, h, s);
    using Y = std::remove_reference_t<decltype(*y)>;
    for (std::int64_t d = 0; d < z.value_depth; ++d) {
      cancellation_point();
      double sum = 0;
      for (std::int64_t t = 0; t < z.keys; ++t) {
        cancellation_point();
        const double weight = row[static_cast<std::size_t>(t)];
        if (weight != 0) sum += weight * static_cast<double>(r.v(b, kv_head, t)[d]);
      }
      y[d] = static_cast<Y>(sum);
    }
  };
  for (std::int64_t b = 0; b < z.batch; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < z.heads; ++h) {
      cancellation_point();
      for (std::int64_t s = 0; s < z.queries; ++s) {
        cancellation_point();
        attend_row(b, h, s);
      }
    }
  }
}

}  // namespace evn
