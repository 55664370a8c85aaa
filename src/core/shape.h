// A tensor's shape: a plain value of fixed size, so that planning allocates nothing for it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

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

  // Product of the dims from `begin` to `end` (default: all); 1 for a scalar. Throws EVN_ERROR_LIMIT when it overflows, and
  // EVN_ERROR_INVALID_MODEL when a dim is negative.
  std::int64_t elements() const { return elements(0, rank_); }
  std::int64_t elements(int begin, int end) const;

  bool is_known() const;          // no dim is negative
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

// What is around the tensors of a value that is more than a tensor.
enum class Wrap : std::uint8_t { kNone, kSequence, kOptional, kMapOfInts, kMapOfStrings };

// The wraps of a value, the outermost first; none for a tensor. "optional(sequence(tensor))" has two.
class Wraps {
 public:
  Wraps() = default;
  Wrap outer() const { return static_cast<Wrap>(bits_ & 7u); }
  explicit operator bool() const { return bits_ != 0; }
  // Without the outermost.
  Wraps inside() const { return Wraps(static_cast<std::uint16_t>(bits_ >> 3)); }
  // Throws EVN_ERROR_LIMIT above kMaxDepth.
  Wraps in(Wrap outer) const;
  static constexpr int kMaxDepth = 5;
  friend bool operator==(Wraps a, Wraps b) = default;

 private:
  explicit Wraps(std::uint16_t bits) : bits_(bits) {}
  std::uint16_t bits_ = 0;
};

// A tensor without its bytes; or, with wraps, the type of a value that is more than a tensor: dtype is then that of the tensors
// (of a map's values) in it, and the shape means nothing.
struct TensorDesc {
  DType dtype = DType::kUndefined;
  Shape shape;
  Wraps wraps = {};

  // Dense row-major size. Throws EVN_ERROR_LIMIT on overflow.
  std::size_t size_bytes() const;
  // The type as ONNX writes it: "tensor(float32)", "optional(seq(tensor(int64)))", "map(string,tensor(float32))".
  std::string type_string() const;
  friend bool operator==(const TensorDesc& a, const TensorDesc& b) = default;
};

// The type that such a text names; ONNX's own names of dtypes ("float", "double") are taken as well. Throws
// EVN_ERROR_INVALID_ARGUMENT.
TensorDesc parse_type(std::string_view text);

}  // namespace evn
