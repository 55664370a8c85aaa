// Elements of a sequence. Lists share their elements in blocks: a list with one element more or less costs one block and the list
// of blocks, so that a loop that inserts an element in each iteration does not copy the whole sequence each time.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <vector>

namespace evn {

struct RuntimeValue;
using RuntimeValuePtr = std::shared_ptr<const RuntimeValue>;

class PartList {
 public:
  PartList() = default;
  PartList(const std::vector<RuntimeValuePtr>& parts);  // NOLINT: a list of these parts
  PartList(std::initializer_list<RuntimeValuePtr> parts) : PartList(std::vector<RuntimeValuePtr>(parts)) {}

  std::size_t size() const { return blocks_.empty() ? 0 : blocks_.back().end; }
  bool empty() const { return size() == 0; }
  const RuntimeValuePtr& operator[](std::size_t at) const;

  // The list with a further element in front of position `at`, or without the element there.
  PartList with(std::size_t at, RuntimeValuePtr part) const;
  PartList without(std::size_t at) const;

  // All elements, one behind the other.
  std::vector<RuntimeValuePtr> all() const;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = RuntimeValuePtr;
    using difference_type = std::ptrdiff_t;
    using pointer = const RuntimeValuePtr*;
    using reference = const RuntimeValuePtr&;

    Iterator(const PartList& list, std::size_t block) : list_(&list), block_(block) {}
    const RuntimeValuePtr& operator*() const { return (*list_->blocks_[block_].parts)[at_]; }
    Iterator& operator++() {
      if (++at_ < list_->blocks_[block_].parts->size()) return *this;
      ++block_;
      at_ = 0;
      return *this;
    }
    bool operator==(const Iterator& other) const { return block_ == other.block_ && at_ == other.at_; }

   private:
    const PartList* list_;
    std::size_t block_;
    std::size_t at_ = 0;
  };
  Iterator begin() const { return Iterator(*this, 0); }
  Iterator end() const { return Iterator(*this, blocks_.size()); }

 private:
  static constexpr std::size_t kBlock = 256;  // most elements of a block

  // A block is never empty. `end`: number of elements up to its end.
  struct Block {
    std::shared_ptr<const std::vector<RuntimeValuePtr>> parts;
    std::size_t end = 0;
  };
  std::size_t block_of(std::size_t at) const;
  std::size_t begin_of(std::size_t block) const { return block == 0 ? 0 : blocks_[block - 1].end; }
  void append(std::vector<RuntimeValuePtr> parts);

  std::vector<Block> blocks_;
};

}  // namespace evn
