// Elements of a sequence, in a tree whose nodes lists share: a list with one element more or less costs the nodes of one path from
// the root to a leaf, so that the time of a loop that inserts an element in each iteration is near linear.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace evn {

struct RuntimeValue;
using RuntimeValuePtr = std::shared_ptr<const RuntimeValue>;

class PartList {
 public:
  PartList() = default;
  PartList(const std::vector<RuntimeValuePtr>& parts);  // NOLINT: a list of these parts
  PartList(std::initializer_list<RuntimeValuePtr> parts) : PartList(std::vector<RuntimeValuePtr>(parts)) {}

  std::size_t size() const { return root_.node == nullptr ? 0 : root_.size; }
  bool empty() const { return size() == 0; }
  const RuntimeValuePtr& operator[](std::size_t at) const { return rest_of_leaf(at).front(); }

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

    Iterator(const PartList& list, std::size_t at) : list_(&list), at_(at), rest_(list.rest_of_leaf(at)) {}
    const RuntimeValuePtr& operator*() const { return rest_.front(); }
    Iterator& operator++() {
      ++at_;
      rest_ = rest_.subspan(1);
      if (rest_.empty()) rest_ = list_->rest_of_leaf(at_);
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const PartList* list_;
    std::size_t at_;
    std::span<const RuntimeValuePtr> rest_;
  };
  Iterator begin() const { return Iterator(*this, 0); }
  Iterator end() const { return Iterator(*this, size()); }

 private:
  // A leaf or an inner node; never empty. All leaves of a list have the same depth.
  struct Node;
  struct Child {
    std::shared_ptr<const Node> node;
    std::size_t size = 0;  // elements beneath it
  };

  static Child make_leaf(std::vector<RuntimeValuePtr> parts);
  static Child make_inner(std::vector<Child> children);
  // The node with the element, in two nodes if one would have too many entries. `at_end`: of the whole list.
  static std::pair<Child, Child> insert(const Node& node, std::size_t at, RuntimeValuePtr part, bool at_end);
  // The node without the element; without a node if that was the last.
  static Child erase(const Node& node, std::size_t at);
  // Elements of the leaf that has position `at`, from there on; none at the end of the list.
  std::span<const RuntimeValuePtr> rest_of_leaf(std::size_t at) const;

  Child root_;  // without a node: no elements
};

}  // namespace evn
