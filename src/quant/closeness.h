// How far one tensor is from another that it stands for.
#pragma once

#include <cstdint>
#include <span>

namespace evn {

struct Closeness {
  double dot = 0, expected_square = 0, got_square = 0, error_square = 0, largest_error = 0;
  std::uint64_t rows = 0, agreeing = 0, elements = 0;

  // More elements of both; a row has `row` of them (0: there are no rows). Figures to which an add was stopped are of no further
  // use.
  void add(std::span<const float> expected, std::span<const float> got, std::size_t row);

  double cosine() const;   // 1 where both are nothing but 0
  double sqnr_db() const;  // signal to quantization noise; infinite without an error
  double top1() const;     // the share of rows whose largest element is at the same place
};

}  // namespace evn
