// Elements of any number type as ones of few types, in which the first in an order are the largest.
#pragma once

#include <memory>

#include "base/checked.h"
#include "ops/infra/numeric.h"

namespace evn {

// Calls f(W{}) with the type in which elements are compared: float, double or std::int64_t.
template <typename F>
void with_ordered(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kFloat64) return f(double{});
  f(std::int64_t{});
}

// Memory that grows.
class LineRoom {
 public:
  void* of(std::size_t bytes) {
    if (bytes > size_) bytes_ = std::make_unique_for_overwrite<char[]>(size_ = bytes);
    return bytes_.get();
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
};

// Reads elements [rows, width] of a tensor [rows, step] as numbers W that ascend with the elements, or descend where `largest` is
// false. NaN stays NaN. They are copied to `room` unless they lie like that already.
struct OrderedLines {
  DType dtype;
  bool largest;

  bool are_there(std::int64_t step, std::int64_t width) const {
    return largest && step == width && (dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt64);
  }
  void write(const void* from, std::int64_t rows, std::int64_t step, std::int64_t width, void* to) const;
  template <typename W>
  const W* read(const void* from, std::int64_t rows, std::int64_t step, std::int64_t width, LineRoom* room) const {
    if (are_there(step, width)) return static_cast<const W*>(from);
    void* const to = room->of(checked_mul<std::size_t>(static_cast<std::size_t>(rows * width), sizeof(W)));
    write(from, rows, step, width, to);
    return static_cast<const W*>(to);
  }
};

}  // namespace evn
