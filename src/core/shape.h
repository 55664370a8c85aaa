// A tensor's shape: a plain value of fixed size, so that planning allocates nothing for it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/dtype.h"

namespace evn {

inline constexpr int kMaxRank = EVN_MAX_RANK;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  // Throws EVN_ERROR_LIMIT above kMaxRank. Dims may be -1 (unknown) where the user of the shape allows it.
  explicit Shape(std::span<const std::int64_t> dims);
  static Shape of_rank(int rank, std::int64_t fill = 0);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[i]; }
  std::int64_t& operator[](int i) { return dims_[i]; }
  std::span<const std::int64_t> dims() const { return {dims_, static_cast<std::size_t>(rank_)}; }
  void push_back(std::int64_t dim);

  // Product of the dims from `begin` to `end` (default: all); 1 for a scalar. Throws EVN_ERROR_LIMIT when it overflows or a
  // dim is negative.
  std::int64_t elements() const { return elements(0, rank_); }
  std::int64_t elements(int begin, int end) const;

  bool is_known() const;  // no dim is negative
  std::string to_string() const;  // "[1,3,?]"

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::int32_t rank_ = 0;
  std::int64_t dims_[kMaxRank] = {};
};

// ONNX axis rule: axis in [-rank, rank) counts from the end when negative. Throws EVN_ERROR_INVALID_MODEL naming `what`.
int normalize_axis(std::int64_t axis, int rank, const char* what = "axis");

// Row-major strides in elements.
void row_major_strides(const Shape& shape, std::int64_t* strides);

// ONNX multidirectional broadcasting (NumPy's rule). Throws EVN_ERROR_INVALID_ARGUMENT naming both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b);

// A tensor without its bytes.
struct TensorDesc {
  DType dtype = DType::kUndefined;
  Shape shape;

  // Dense row-major size. Throws EVN_ERROR_LIMIT on overflow.
  std::size_t size_bytes() const;
  friend bool operator==(const TensorDesc& a, const TensorDesc& b) = default;
};

}  // namespace evn
