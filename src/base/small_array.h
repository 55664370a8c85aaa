// An array of run-time length that needs no memory of its own for a few elements.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace evn {

template <typename T, std::size_t kInline = 16>
class SmallArray {
 public:
  explicit SmallArray(std::size_t n) : size_(n) {
    if (n > kInline) heap_.resize(n);
  }
  std::size_t size() const { return size_; }
  T* data() { return size_ > kInline ? heap_.data() : inline_; }
  const T* data() const { return size_ > kInline ? heap_.data() : inline_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  std::size_t size_;
  T inline_[kInline] = {};
  std::vector<T> heap_;
};

}  // namespace evn
