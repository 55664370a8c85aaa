// An array of run-time length that needs no memory of its own for a few elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/spare_blocks.h"

namespace evn {

template <typename T, std::size_t kInline = 16>
class SmallArray {
 public:
  // `spare`: where memory for more elements comes from, and goes back; nullptr: it is allocated.
  explicit SmallArray(std::size_t n, SpareBlocks* spare = nullptr) : size_(n), spare_(spare), data_(inline_) {
    if (n <= kInline) return;
    if (n > PTRDIFF_MAX / sizeof(T)) throw std::bad_alloc();
    data_ = static_cast<T*>(spare != nullptr ? spare->take(n * sizeof(T)) : ::operator new(n * sizeof(T)));
    std::uninitialized_value_construct_n(data_, n);  // which throws nothing
  }
  ~SmallArray() {
    if (data_ == inline_) return;
    std::destroy_n(data_, size_);
    if (spare_ != nullptr) spare_->give_back(data_, size_ * sizeof(T));
    else ::operator delete(data_);
  }
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;

  std::size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  static_assert(std::is_nothrow_default_constructible_v<T>);

  const std::size_t size_;
  SpareBlocks* const spare_;
  T* data_;
  T inline_[kInline] = {};
};

}  // namespace evn
