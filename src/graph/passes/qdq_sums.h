// How large sums of products of quantized numbers become, for fuse_qdq.
#pragma once

#include <limits>
#include <vector>

#include "graph/passes/quantization.h"

namespace evn {

inline constexpr double kMostSum = std::numeric_limits<std::int32_t>::max();

// A product's right-hand side, or a convolution's weight.
struct ByteWeight {
  ValueId value = kNoValue;
  Quantization q;
  WeightPtr weight;
};

// What a bias is: numbers, and where they are int32 in the right steps, those.
struct ByteBias {
  std::vector<double> numbers;
  bool one = false;          // for all columns
  ValueId steps = kNoValue;  // int32
  std::vector<std::int32_t> whole;
  std::vector<float> scales;
  double at(std::size_t i) const { return numbers[one ? 0 : i]; }
};

// What sums of products stay below, whatever the numbers are.
double any_sum(const ByteWeight& w, const Quantization& x, int axis);

// The largest sums by the weight's own numbers: for each index of `axis` the sum of |w| over what is summed, times the largest |x|.
std::vector<double> largest_sums(const ByteWeight& w, const Quantization& x, int axis);

// Returns true if no sum of products can overflow int32, whatever the quantized numbers of x are.
bool sums_fit(const ByteWeight& w, const Quantization& x, int axis);

// Returns true if no sum of `depth` products of two activations can overflow int32. A negative depth is unknown: false.
bool sums_fit(std::int64_t depth, const Quantization& a, const Quantization& b);

// Returns true if the sums of products of `a`, rows of a Softmax, and `b` cannot overflow int32. A row sums to 1 and to half a step
// of each of its `depth` elements, so that a negative, unknown depth counts as 2^23.
bool softmax_sums_fit(std::int64_t depth, const Quantization& a, const Quantization& b);

// The scale of the sums of a column.
double sum_scale(const Quantization& x, const ByteWeight& w, std::size_t column);

// A step of a sum is no more than one of the result: what is lost of a bias is not seen.
bool is_fine(const Quantization& x, const ByteWeight& w, const Quantization& y);

}  // namespace evn
