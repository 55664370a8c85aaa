#include "memory/occupied.h"

#include <algorithm>
#include <bit>

#include "base/cancel.h"

namespace evn {

bool Ranges::add(std::size_t begin, std::size_t end) {
  // The first range that touches the new one, and the first that lies behind it.
  const auto from =
      std::lower_bound(ranges_.begin(), ranges_.end(), begin, [](const Range& r, std::size_t b) { return r.end < b; });
  if (from == ranges_.end() || from->begin > end) {
    cancellation_point(1 + (ranges_.end() - from) / 4);
    ranges_.insert(from, {begin, end});
    if (ranges_.size() > kMost) close_small_gaps();
    return true;
  }
  if (from->begin <= begin && end <= from->end) return !is_exact_;
  auto behind = from + 1;
  while (behind != ranges_.end() && behind->begin <= end) ++behind;
  cancellation_point(1 + (behind - from) + (ranges_.end() - behind) / 4);
  from->begin = std::min(from->begin, begin);
  from->end = std::max(end, (behind - 1)->end);
  ranges_.erase(from + 1, behind);
  return true;
}

void Ranges::close_small_gaps() {
  is_exact_ = false;
  std::vector<std::size_t> gaps;
  gaps.reserve(ranges_.size());
  for (std::size_t i = 1; i < ranges_.size(); ++i) gaps.push_back(ranges_[i].begin - ranges_[i - 1].end);
  cancellation_point(static_cast<std::int64_t>(4 * gaps.size()));
  const auto limit = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 4);
  std::nth_element(gaps.begin(), limit, gaps.end());
  std::size_t to = 0;
  for (std::size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].begin - ranges_[to].end <= *limit) {
      ranges_[to].end = ranges_[i].end;
    } else {
      ranges_[++to] = ranges_[i];
    }
  }
  ranges_.resize(to + 1);
}

OccupiedRanges::OccupiedRanges(std::int32_t moments)
    : leaves_(std::bit_ceil(static_cast<std::size_t>(std::max(moments, std::int32_t{1})))), nodes_(2 * leaves_) {}

template <typename F>
void OccupiedRanges::for_each_part(std::int32_t first, std::int32_t last, F&& visit) const {
  std::size_t left = static_cast<std::size_t>(first) + leaves_, right = static_cast<std::size_t>(last) + leaves_ + 1;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) visit(left++);
    if (right % 2 == 1) visit(--right);
  }
}

void OccupiedRanges::add(std::int32_t first, std::int32_t last, std::size_t begin, std::size_t end) {
  for_each_part(first, last, [&](std::size_t node) {
    nodes_[node].whole.add(begin, end);
    // A range that covers this one in a period covers it in all periods around that one; a closed gap covers it there alone.
    for (; node > 0 && nodes_[node].some.add(begin, end); node /= 2) cancellation_point();
  });
}

void OccupiedRanges::collect(const Ranges& ranges) {
  if (!ranges.all().empty()) lists_.push_back(ranges.all());
}

std::size_t OccupiedRanges::find_gap(std::int32_t first, std::int32_t last, std::size_t bytes) {
  lists_.clear();
  for_each_part(first, last, [&](std::size_t node) { collect(nodes_[node].some); });
  // Periods around the parts are those around the first and the last moment. A part itself may be among them: its ranges count
  // twice.
  std::size_t left = static_cast<std::size_t>(first) + leaves_, right = static_cast<std::size_t>(last) + leaves_;
  for (; left > 0; left /= 2, right /= 2) {
    collect(nodes_[left].whole);
    if (left != right) collect(nodes_[right].whole);
  }
  std::size_t top = 0;
  for (const std::span<const Ranges::Range>& list : lists_) top = std::max(top, list.back().end);
  std::size_t begin = top;  // from here on, all gaps have been looked at
  std::size_t best_offset = top, best_gap = SIZE_MAX;
  for (std::int64_t looked = 0; begin > 0 && looked < kMostLooks;) {
    std::size_t next = 0;  // where the gap below `begin` begins
    for (bool grows = true; grows;) {
      grows = false;
      next = 0;
      looked += static_cast<std::int64_t>(lists_.size());
      cancellation_point(static_cast<std::int64_t>(lists_.size()));
      for (std::span<const Ranges::Range>& list : lists_) {
        while (!list.empty() && list.back().end >= begin) {
          cancellation_point();
          ++looked;
          grows |= list.back().begin < begin;
          begin = std::min(begin, list.back().begin);
          list = list.first(list.size() - 1);
        }
        if (!list.empty()) next = std::max(next, list.back().end);
      }
    }
    const std::size_t gap = begin - next;
    if (gap >= bytes && gap <= best_gap && gap > 0) {
      best_gap = gap;
      best_offset = next;
    }
    begin = next;
  }
  return best_offset;
}

}  // namespace evn
