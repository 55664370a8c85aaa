#include "ops/infra/part_list.h"

#include <algorithm>

#include "base/cancel.h"

namespace evn {

struct PartList::Node {
  std::vector<RuntimeValuePtr> parts;  // of a leaf
  std::vector<Child> children;         // of an inner node
};

namespace {

constexpr std::size_t kMost = 32;  // entries of a node

template <typename T>
std::vector<T> copy_for_one_more(const std::vector<T>& entries) {
  cancellation_point(static_cast<std::int64_t>(entries.size()));
  std::vector<T> copy;
  copy.reserve(entries.size() + 1);
  copy.insert(copy.end(), entries.begin(), entries.end());
  return copy;
}

// Takes the second half off entries that are too many. At the end of a list the last entry alone, so that nodes of a list that
// grows there are full.
template <typename T>
std::vector<T> split_off(std::vector<T>& entries, bool at_end) {
  if (entries.size() <= kMost) return {};
  const auto from = entries.begin() + static_cast<std::ptrdiff_t>(at_end ? kMost : kMost / 2);
  std::vector<T> second(std::make_move_iterator(from), std::make_move_iterator(entries.end()));
  entries.erase(from, entries.end());
  return second;
}

// Groups of at most kMost entries, one after the other.
template <typename T, typename Make>
auto group(const std::vector<T>& entries, Make&& make) {
  std::vector<decltype(make(entries))> groups;
  groups.reserve(entries.size() / kMost + 1);
  for (std::size_t at = 0; at < entries.size(); at += kMost) {
    const std::size_t count = std::min(kMost, entries.size() - at);
    cancellation_point(static_cast<std::int64_t>(count));
    const auto first = entries.begin() + static_cast<std::ptrdiff_t>(at);
    groups.push_back(make(std::vector<T>(first, first + static_cast<std::ptrdiff_t>(count))));
  }
  return groups;
}

}  // namespace

PartList::Child PartList::make_leaf(std::vector<RuntimeValuePtr> parts) {
  const std::size_t size = parts.size();
  return {std::make_shared<const Node>(Node{std::move(parts), {}}), size};
}

PartList::Child PartList::make_inner(std::vector<Child> children) {
  std::size_t size = 0;
  for (const Child& c : children) size += c.size;
  return {std::make_shared<const Node>(Node{{}, std::move(children)}), size};
}

PartList::PartList(const std::vector<RuntimeValuePtr>& parts) {
  if (parts.empty()) return;
  std::vector<Child> level = group(parts, make_leaf);
  while (level.size() > 1) level = group(level, make_inner);
  root_ = std::move(level.front());
}

std::span<const RuntimeValuePtr> PartList::rest_of_leaf(std::size_t at) const {
  if (at >= size()) return {};
  const Node* node = root_.node.get();
  while (!node->children.empty()) {
    const Child* child = node->children.data();
    while (at >= child->size) at -= (child++)->size;
    node = child->node.get();
  }
  return std::span<const RuntimeValuePtr>(node->parts).subspan(at);
}

std::pair<PartList::Child, PartList::Child> PartList::insert(const Node& node, std::size_t at, RuntimeValuePtr part, bool at_end) {
  if (node.children.empty()) {
    std::vector<RuntimeValuePtr> parts = copy_for_one_more(node.parts);
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at), std::move(part));
    std::vector<RuntimeValuePtr> second = split_off(parts, at_end);
    return {make_leaf(std::move(parts)), second.empty() ? Child{} : make_leaf(std::move(second))};
  }
  std::vector<Child> children = copy_for_one_more(node.children);
  auto child = children.begin();
  while (at > child->size) at -= (child++)->size;  // what is added between two children joins the first
  auto [first, next] = insert(*child->node, at, std::move(part), at_end);
  *child = std::move(first);
  if (next.node != nullptr) children.insert(child + 1, std::move(next));
  std::vector<Child> second = split_off(children, at_end);
  return {make_inner(std::move(children)), second.empty() ? Child{} : make_inner(std::move(second))};
}

PartList::Child PartList::erase(const Node& node, std::size_t at) {
  if (node.children.empty()) {
    cancellation_point(static_cast<std::int64_t>(node.parts.size()));
    std::vector<RuntimeValuePtr> parts = node.parts;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
    return parts.empty() ? Child{} : make_leaf(std::move(parts));
  }
  cancellation_point(static_cast<std::int64_t>(node.children.size()));
  std::vector<Child> children = node.children;
  auto child = children.begin();
  while (at >= child->size) at -= (child++)->size;
  *child = erase(*child->node, at);
  if (child->node == nullptr) children.erase(child);
  return children.empty() ? Child{} : make_inner(std::move(children));
}

PartList PartList::with(std::size_t at, RuntimeValuePtr part) const {
  PartList list;
  if (empty()) {
    list.root_ = make_leaf({std::move(part)});
    return list;
  }
  auto [first, second] = insert(*root_.node, at, std::move(part), at == size());
  list.root_ = second.node == nullptr ? std::move(first) : make_inner({std::move(first), std::move(second)});
  return list;
}

PartList PartList::without(std::size_t at) const {
  PartList list;
  list.root_ = erase(*root_.node, at);
  while (list.root_.node != nullptr && list.root_.node->children.size() == 1) {
    Child only = list.root_.node->children.front();
    list.root_ = std::move(only);
  }
  return list;
}

std::vector<RuntimeValuePtr> PartList::all() const {
  std::vector<RuntimeValuePtr> all;
  all.reserve(size());
  while (all.size() < size()) {
    const std::span<const RuntimeValuePtr> parts = rest_of_leaf(all.size());
    cancellation_point(static_cast<std::int64_t>(parts.size()));
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace evn
