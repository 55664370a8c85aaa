// A list that its copies share. The plan of a part of a run begins with all that the part before it knew and changes little of it:
// a copy of the whole list for each part would take time and memory with the square of the number of parts.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace evn {

// The elements are in the leaves of a tree: a copy takes the root, and a change copies the nodes on the path to the element if
// other lists share them. Access to an element of a list that is not const counts as a change. A reference to an element of a const
// list does not show later changes.
template <typename T>
class SharedVector {
 public:
  // Elements of a leaf, a power of two: some 1 KiB. They lie one behind the other.
  static constexpr std::size_t kBlock = std::bit_floor(std::max<std::size_t>(1024 / sizeof(T), 8));

  SharedVector() = default;
  SharedVector(SharedVector&&) noexcept = default;
  SharedVector& operator=(SharedVector&&) noexcept = default;
  // Neither of the two may change what they share: several threads may copy a list that is frozen.
  SharedVector(const SharedVector& other) : size_(other.size_), height_(other.height_) {
    other.freeze();
    root_ = other.root_;
  }
  SharedVector& operator=(const SharedVector& other) { return *this = SharedVector(other); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](std::size_t i) const {
    const void* node = root_.get();
    for (int h = height_; h > 0; --h) node = static_cast<const Inner*>(node)->children[child_of(i, h)].get();
    return static_cast<const Leaf*>(node)->elements[i % kBlock];
  }
  T& operator[](std::size_t i) {
    if (owner_ == 0) owner_ = new_owner();
    std::shared_ptr<void>* node = &root_;
    for (int h = height_; h > 0; --h) node = &own<Inner>(*node).children[child_of(i, h)];
    return own<Leaf>(*node).elements[i % kBlock];
  }

  void assign(std::size_t count, const T& value) {
    *this = SharedVector();
    size_ = count;
    while (capacity() < count) ++height_;
    for (std::size_t at = 0; at < count; at += kBlock) std::fill_n(&(*this)[at], kBlock, value);
  }
  void resize(std::size_t count) { assign(count, T()); }  // of an empty list
  void push_back(T value) {
    if (size_ == capacity()) {
      auto root = std::make_shared<Inner>();
      root->children[0] = std::move(root_);
      root_ = std::move(root);
      ++height_;
    }
    (*this)[size_] = std::move(value);
    ++size_;
  }

  // From now on the list shares its nodes.
  void freeze() const {
    if (owner_ != 0) owner_ = 0;
  }

 private:
  static constexpr int kFanBits = 5;
  static constexpr std::size_t kFan = std::size_t{1} << kFanBits;  // children of an inner node

  // `owner`: the list that may change the node; 0: none. All leaves have the same depth.
  struct Leaf {
    std::uint64_t owner = 0;
    T elements[kBlock] = {};
  };
  struct Inner {
    std::uint64_t owner = 0;
    std::shared_ptr<void> children[kFan];  // Leaf or Inner
  };

  static std::uint64_t new_owner() {
    static std::atomic<std::uint64_t> latest{0};
    return latest.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  std::size_t capacity() const { return kBlock << kFanBits * height_; }
  // Child of an inner node, `height` above the leaves, that has element i.
  static std::size_t child_of(std::size_t i, int height) {
    return (i >> (std::countr_zero(kBlock) + kFanBits * (height - 1))) % kFan;
  }

  template <typename Node>
  Node& own(std::shared_ptr<void>& node) {
    auto* const there = static_cast<Node*>(node.get());
    return there != nullptr && there->owner == owner_ ? *there : make_own<Node>(node);
  }
  template <typename Node>
  [[gnu::noinline]] Node& make_own(std::shared_ptr<void>& node) {
    const auto* const there = static_cast<const Node*>(node.get());
    std::shared_ptr<Node> own = there != nullptr ? std::make_shared<Node>(*there) : std::make_shared<Node>();
    own->owner = owner_;
    node = own;
    return *own;
  }

  std::shared_ptr<void> root_;
  std::size_t size_ = 0;
  int height_ = 0;                   // inner nodes above a leaf
  mutable std::uint64_t owner_ = 0;  // of nodes that this list alone has; 0: it has none
};

}  // namespace evn
