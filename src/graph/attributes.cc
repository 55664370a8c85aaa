#include "graph/attributes.h"

#include <algorithm>

namespace evn {
namespace {

template <typename T>
const T* value_of(const Node& node, std::string_view name) {
  const Attribute* const found = find_attribute(node.attributes, name);
  return found == nullptr ? nullptr : std::get_if<T>(&found->value);
}

}  // namespace

const Attribute* find_attribute(std::span<const Attribute> attributes, std::string_view name) {
  const auto found = std::ranges::find(attributes, name, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

std::int64_t int_attribute_of(const Node& node, std::string_view name, std::int64_t otherwise) {
  const auto* const value = value_of<std::int64_t>(node, name);
  return value == nullptr ? otherwise : *value;
}

float float_attribute_of(const Node& node, std::string_view name, float otherwise) {
  const auto* const value = value_of<float>(node, name);
  return value == nullptr ? otherwise : *value;
}

std::vector<std::int64_t> ints_attribute_of(const Node& node, std::string_view name) {
  const auto* const values = value_of<std::vector<std::int64_t>>(node, name);
  return values == nullptr ? std::vector<std::int64_t>() : *values;
}

std::string text_attribute_of(const Node& node, std::string_view name) {
  const auto* const value = value_of<std::string>(node, name);
  return value == nullptr ? std::string() : *value;
}

void drop_attribute(Node& node, std::string_view name) {
  std::erase_if(node.attributes, [&](const Attribute& a) { return a.name == name; });
}

void set_attribute(Node& node, Attribute attribute) {
  drop_attribute(node, attribute.name);
  node.attributes.push_back(std::move(attribute));
}

}  // namespace evn
