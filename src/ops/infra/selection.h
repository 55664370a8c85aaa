// The largest elements of lines, in order.
#pragma once

#include <memory>

#include "ops/infra/sort_by_key.h"

namespace evn {

// What finds the k largest of a line.
template <typename W>
class Selection {
 public:
  static constexpr std::int64_t kLanes = 8;   // that are compared side by side
  static constexpr std::int64_t kBlock = 16;  // elements that are looked at together

  // k: at least 1.
  Selection(std::int64_t length, std::int64_t k, bool nan_is_last);

  // Where the k largest are, in order.
  const Keyed* find(const W* x, std::int64_t length);

 private:
  // Finds a limit that at least k elements reach: of some sets of elements that have none in common, the k-th largest of their
  // largest elements. A set is one lane of some rows; there are more than k of them, and less than three times as many. Returns
  // false for a short line, of which no more than most_ elements are to be sorted.
  bool find_limit(std::int64_t length);

  // Descending.
  std::uint64_t key(W x) const;

  bool is_within(W x) const { return !(is_strict_ ? x <= limit_ : x < limit_); }
  bool any_within(const W* x) const;

  // Adds those of fewer than kBlock + 1 elements that reach the limit.
  void add(std::int64_t begin, std::int64_t end);

  void keep_first();

  const std::int64_t k_;
  const std::int64_t most_;  // items that are kept between two calls of keep_first
  const bool nan_is_last_;
  const W* x_ = nullptr;
  W limit_ = 0;
  bool is_strict_ = false;  // k elements that reach the limit are kept: later ones must be above it
  std::int64_t count_ = 0;  // of items
  std::int64_t keyed_ = 0;  // that have their keys
  std::unique_ptr<Keyed[]> items_, scratch_;
  std::unique_ptr<W[]> bests_;  // the largest element of each set
};

}  // namespace evn
