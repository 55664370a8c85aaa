// A list that its copies share in blocks. The plan of a part of a run begins with all that the part before it knew and changes
// little of it: a copy of the whole list for each part would take time and memory with the square of the number of parts.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace evn {

// Access to an element of a list that is not const copies the block first if others share it. A reference to an element of a const
// list does not show later changes.
template <typename T>
class SharedVector {
 public:
  // Elements of a block, a power of two: some 2 KiB.
  static constexpr std::size_t kBlock = std::bit_floor(std::max<std::size_t>(2048 / sizeof(T), 8));

  SharedVector() = default;
  SharedVector(SharedVector&&) noexcept = default;
  SharedVector& operator=(SharedVector&&) noexcept = default;
  // Neither of the two may change what they share: several threads may copy a list that is frozen.
  SharedVector(const SharedVector& other) : size_(other.size_) {
    other.freeze();
    blocks_ = other.blocks_;
  }
  SharedVector& operator=(const SharedVector& other) { return *this = SharedVector(other); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock].elements[i % kBlock]; }
  T& operator[](std::size_t i) {
    Block& block = blocks_[i / kBlock];
    if (block.is_shared) unshare(block);
    return block.elements[i % kBlock];
  }

  void reserve(std::size_t count) { blocks_.reserve((count + kBlock - 1) / kBlock); }
  void assign(std::size_t count, const T& value) {
    blocks_.clear();
    reserve(count);
    size_ = count;
    for (std::size_t at = 0; at < count; at += kBlock) {
      add_block();
      std::fill_n(blocks_.back().elements.get(), kBlock, value);
    }
  }
  void resize(std::size_t count) { assign(count, T()); }  // of an empty list
  void push_back(const T& value) {
    if (size_ % kBlock == 0) add_block();
    ++size_;
    (*this)[size_ - 1] = value;
  }

  // From now on the list shares its blocks.
  void freeze() const {
    for (const Block& block : blocks_) {
      if (!block.is_shared) block.is_shared = true;
    }
  }

 private:
  struct Block {
    std::shared_ptr<T[]> elements;
    mutable bool is_shared = false;
  };
  void add_block() { blocks_.push_back({std::make_shared<T[]>(kBlock), false}); }
  [[gnu::noinline]] static void unshare(Block& block) {
    std::shared_ptr<T[]> own = std::make_shared<T[]>(kBlock);
    std::copy_n(block.elements.get(), kBlock, own.get());
    block = {std::move(own), false};
  }

  std::vector<Block> blocks_;
  std::size_t size_ = 0;
};

}  // namespace evn
