// Elements of any number type as ones of the same type in which the first in an order are the largest.
#pragma once

#include <memory>

#include "base/checked.h"
#include "base/cxx20.h"
#include "ops/infra/numeric.h"

namespace evn {

// Memory that grows.
class LineRoom {
 public:
  void* of(std::size_t bytes) {
    if (bytes > size_) bytes_ = make_unique_for_overwrite<char[]>(size_ = bytes);
    return bytes_.get();
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
};

// Reads `width` columns of a tensor [rows, step] as lines of `rows` numbers that ascend with the elements, or descend if `largest`
// is false. NaN stays NaN. They are copied to `room` unless they lie like that already.
template <typename T>
struct OrderedLines {
  bool largest;

  // Into lines that follow each other. T is any type of numbers.
  void write(const T* from, std::int64_t rows, std::int64_t step, std::int64_t width, T* to) const;
  const T* read(const T* from, std::int64_t rows, std::int64_t step, std::int64_t width, LineRoom* room) const {
    if (largest && step == 1) return from;
    auto* const to = static_cast<T*>(room->of(checked_mul<std::size_t>(static_cast<std::size_t>(rows * width), sizeof(T))));
    write(from, rows, step, width, to);
    return to;
  }
};

}  // namespace evn
