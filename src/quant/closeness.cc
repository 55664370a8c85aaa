#include "quant/closeness.h"

#include <algorithm>
#include <cmath>

#include "base/cancel.h"

namespace evn {

void Closeness::add(std::span<const float> expected, std::span<const float> got, std::size_t row) {
  in_pieces(std::ssize(expected), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const double x = static_cast<double>(expected[i]), y = static_cast<double>(got[i]);
      dot += x * y;
      expected_square += x * x;
      got_square += y * y;
      error_square += (x - y) * (x - y);
      largest_error = std::max(largest_error, std::fabs(x - y));
    }
  });
  elements += expected.size();
  const auto place = [&](std::span<const float> all, std::size_t at) {
    const std::span<const float> s = all.subspan(at, row);
    std::size_t largest = 0;
    in_pieces(std::ssize(s), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        if (s[largest] < s[i]) largest = i;
      }
    });
    return largest;
  };
  for (std::size_t at = 0; row > 0 && at + row <= expected.size(); at += row) {
    ++rows;
    agreeing += place(expected, at) == place(got, at) ? 1u : 0u;
  }
}

double Closeness::cosine() const {
  if (expected_square == 0 && got_square == 0) return 1;
  return dot / std::sqrt(expected_square * got_square);
}

double Closeness::sqnr_db() const { return 10 * std::log10(expected_square / error_square); }

double Closeness::top1() const { return static_cast<double>(agreeing) / static_cast<double>(rows); }

}  // namespace evn
