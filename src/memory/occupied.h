// Occupied bytes of an arena over the time of a plan. Queries and insertions take time that grows with the logarithm of the number
// of values, where a scan of all values would make a plan quadratic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace evn {

// Disjoint ranges of addresses, in order; ranges that touch are one range.
class Ranges {
 public:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  // Most ranges of one list. Beyond that, a quarter of the gaps count as occupied, the smallest ones.
  static constexpr std::size_t kMost = 512;

  // Adds a range. Returns false if ranges that were added before cover it; closed gaps do not.
  bool add(std::size_t begin, std::size_t end);

  std::span<const Range> all() const { return ranges_; }

 private:
  void close_small_gaps();

  std::vector<Range> ranges_;
  bool is_exact_ = true;  // no gap has been closed
};

// Tree over the moments of a plan. Each node of the tree stands for a period, and has the union of the ranges that are occupied at
// any moment of that period.
class OccupiedRanges {
 public:
  // `moments`: number of moments, from 0 on.
  explicit OccupiedRanges(std::int32_t moments);

  // Occupies [begin, end) during the moments [first, last].
  void add(std::int32_t first, std::int32_t last, std::size_t begin, std::size_t end);

  // Most ranges that one search looks at. Plans of some thousand values stay far below; beyond it, the best gap so far is taken.
  static constexpr std::int64_t kMostLooks = 8192;

  // Returns the start of the smallest gap of `bytes` or more that is free during all of [first, last]; the lowest of several.
  // Without such a gap, returns the end of all that is occupied then. Searches from the top, where gaps are large.
  std::size_t find_gap(std::int32_t first, std::int32_t last, std::size_t bytes);

 private:
  struct Period {
    Ranges some;   // occupied at some moment of the period
    Ranges whole;  // occupied by values that live through the whole period, but not through the whole period around it
  };
  // Calls visit(node) for the nodes whose periods make up [first, last].
  template <typename F>
  void for_each_part(std::int32_t first, std::int32_t last, F&& visit) const;
  void collect(const Ranges& ranges);

  std::size_t leaves_ = 1;
  std::vector<Period> nodes_;                          // the children of node i are 2 i and 2 i + 1; the root is 1
  std::vector<std::span<const Ranges::Range>> lists_;  // work space of find_gap
};

}  // namespace evn
