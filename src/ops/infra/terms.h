// Weighted sums of a plane's elements at places between them: the elements and weights are found once and used for all channels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/op.h"

namespace evn {

struct Term {
  std::int64_t at;
  double weight;
};

// The terms of some sums, one sum after the other.
class Terms {
 public:
  void clear() {
    used_ = 0;
    begin_.assign(1, 0);
  }
  void add(std::int64_t at, double weight) { *grow(1) = {at, weight}; }
  // Adds a term, or the weight to one of the last two terms of the sum if that is of the same element.
  void merge(std::int64_t at, double weight);
  // Room for so many terms at the end.
  Term* grow(std::size_t count) {
    if (terms_.size() - used_ < count) terms_.resize(2 * terms_.size() + count);
    used_ += count;
    return terms_.data() + used_ - count;
  }
  // Ends a sum.
  void close() { begin_.push_back(used_); }

  std::int64_t sums() const { return static_cast<std::int64_t>(begin_.size()) - 1; }
  std::int64_t size() const { return static_cast<std::int64_t>(used_); }
  std::span<const Term> of(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return {terms_.data() + begin_[at], begin_[at + 1] - begin_[at]};
  }
  const Term* data() const { return terms_.data(); }

 private:
  std::vector<Term> terms_;  // of which some are used
  std::size_t used_ = 0;
  std::vector<std::size_t> begin_ = {0};
};

// Element `at` of a floating point tensor.
struct Place {
  const ConstTensor& tensor;
  std::int64_t at;
};
struct Target {
  const MutableTensor& tensor;
  std::int64_t at;
};
double number_at(Place x);

// y[i] = sum i from x on, for some planes, each `x_step` (`y_step`) behind the one before. Not more than kWorkPerLook / 4 terms.
void add_terms(Place x, std::int64_t x_step, const Terms& terms, Target y, std::int64_t y_step, std::int64_t planes);

// y[j] = unit * the sum over pairs of `rows` and of columns j of x[row.at + column.at], times both weights.
void add_pairs(Place x, std::span<const Term> rows, const Terms& columns, double unit, Target y);

// y[j] = the largest of these products and of least[j].
void largest_pairs(Place x, std::span<const Term> rows, const Terms& columns, std::span<const double> least, Target y);

// Elements [begin, end) of an axis.
struct Bin {
  std::int64_t begin, end;
};

// y[j] = the largest element of the rows and columns j of a plane, 0 where there are none. A NaN is it where it is the first.
void largest_of_bins(Place plane, std::int64_t width, Bin rows, std::span<const Bin> columns, Target y);

}  // namespace evn
