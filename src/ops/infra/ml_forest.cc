#include "ops/infra/ml_forest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/infra/ml_scores.h"

namespace evn::ml_forest {

double tensor_at(const Weight& tensor, std::size_t i) {
  double value = 0;
  const auto read = [&](auto raw) {  // a file's bytes may lie anywhere
    std::memcpy(&raw, static_cast<const char*>(tensor.data.get()) + i * sizeof raw, sizeof raw);
    if constexpr (std::is_same_v<decltype(raw), Float16>) {
      value = raw.value();
    } else {
      value = static_cast<double>(raw);
    }
  };
  dispatch<float, double, Float16, std::uint8_t>(tensor.desc.dtype, read);
  return value;
}

std::size_t count_of(const Weight* tensor) {
  return tensor == nullptr ? 0 : static_cast<std::size_t>(tensor->desc.shape.elements());
}

void require_count(std::size_t count, std::size_t expected, const char* what) {
  if (count != expected) fail(EVN_ERROR_INVALID_MODEL, "%s has %zu elements, expected %zu", what, count, expected);
}

std::size_t require_index(std::int64_t index, std::size_t count, const char* what) {
  if (index < 0 || static_cast<std::uint64_t>(index) >= count) {
    fail(EVN_ERROR_INVALID_MODEL, "%s %lld of %zu", what, static_cast<long long>(index), count);
  }
  return static_cast<std::size_t>(index);
}

void require_trees(const Forest& f, bool whole) {
  if (f.roots.empty()) fail(EVN_ERROR_INVALID_MODEL, "there are no trees");
  std::vector<bool> reached(f.branches.size());
  std::vector<std::size_t> open(f.roots);
  while (!open.empty()) {
    cancellation_point();
    const std::size_t at = open.back();
    open.pop_back();
    if (reached[at]) fail(EVN_ERROR_INVALID_MODEL, "node %zu is reached twice: this is no tree", at);
    reached[at] = true;
    const Branch& b = f.branches[at];
    if (b.is_leaf) continue;
    open.push_back(b.yes);
    open.push_back(b.no);
  }
  if (whole && std::find(reached.begin(), reached.end(), false) != reached.end()) {
    fail(EVN_ERROR_INVALID_MODEL, "there are nodes that no root leads to");
  }
}

void require_features(const Forest& f, std::int64_t features) {
  for (const Branch& b : f.branches) {
    cancellation_point();
    if (b.is_leaf) continue;
    if (b.feature < 0) fail(EVN_ERROR_INVALID_MODEL, "feature %lld", static_cast<long long>(b.feature));
    if (features < 0 || b.feature < features) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "feature %lld of %lld", static_cast<long long>(b.feature), static_cast<long long>(features));
  }
}

static bool holds(const Forest& f, const Branch& b, double x) {
  if (std::isnan(x) && b.nan_is_true) return true;
  switch (b.test) {
    case Test::kLeq: return x <= b.value;
    case Test::kLt: return x < b.value;
    case Test::kGte: return x >= b.value;
    case Test::kGt: return x > b.value;
    case Test::kEq: return x == b.value;
    case Test::kNeq: return x != b.value && !std::isnan(x);
    case Test::kMember: break;
  }
  const auto members = std::span(f.members).subspan(b.first, b.end - b.first);
  return std::find(members.begin(), members.end(), x) != members.end();
}

void score_row(const Forest& f, Aggregate how, const ConstTensor& x, std::int64_t row, std::span<double> scores,
               std::vector<bool>* voted) {
  std::fill(scores.begin(), scores.end(), 0.0);
  voted->assign(scores.size(), false);
  const std::int64_t start = row * feature_count(x.desc.shape);
  for (const std::size_t root : f.roots) {
    cancellation_point();
    const Branch* b = &f.branches[root];
    while (!b->is_leaf) {
      cancellation_point();
      b = &f.branches[holds(f, *b, feature_at(x, start + b->feature)) ? b->yes : b->no];
    }
    for (std::size_t v = b->first; v < b->end; ++v) {
      cancellation_point();
      const auto target = static_cast<std::size_t>(f.votes[v].target);
      const double weight = f.votes[v].weight;
      double& score = scores[target];
      if (how == Aggregate::kMin || how == Aggregate::kMax) {
        const bool better = how == Aggregate::kMin ? weight < score : weight > score;
        if (better || !(*voted)[target]) score = weight;
      } else {
        score += weight;
      }
      (*voted)[target] = true;
    }
  }
  if (how != Aggregate::kAverage) return;
  for (double& s : scores) {
    cancellation_point();
    s /= static_cast<double>(f.roots.size());
  }
}

}  // namespace evn::ml_forest
